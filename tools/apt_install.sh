#!/bin/sh
# Installs Debian packages: apt_install.sh NAME... As root or through sudo; elsewhere it says what to install.
set -eu
if ! command -v apt-get >/dev/null 2>&1; then
    echo "apt-get is not here; install by hand: $*" >&2
    exit 1
fi
if [ "$(id -u)" = 0 ]; then
    run=""
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    run="sudo -n"
else
    echo "not root and no sudo; install by hand: $*" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086
$run apt-get -qq -o Dpkg::Use-Pty=0 install -y --no-install-recommends "$@" >/dev/null 2>&1 || {
    $run apt-get -qq update
    $run apt-get -qq -o Dpkg::Use-Pty=0 install -y --no-install-recommends "$@" >/dev/null
}
