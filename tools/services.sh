#!/bin/sh
# Makes sure the programs that tests start are here. One that cannot be had is named; its tests then say that
# they are skipped. With CI=true a missing program is a failure.
set -eu
here=$(dirname "$0")
missing=""
need() { # need PROGRAM PACKAGE
    if ! command -v "$1" >/dev/null 2>&1; then missing="$missing $2"; fi
}
need git git                  # merges of decision records, hooks
need strace strace            # kills and failures injected at a chosen system call
need fusermount3 fuse3        # the file system that drops unsynced data
need mkfs.ext4 e2fsprogs      # a real small file system that runs full
need mount mount
need chromium chromium        # opens the HTML pages as readers do
need ip iproute2              # network namespaces: hosts of their own
# The server's programs are not on the PATH; tests start a cluster of their own with them.
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null 2>&1 || missing="$missing postgresql"
missing=${missing# }
[ -n "$missing" ] || exit 0
echo "installing: $missing"
# shellcheck disable=SC2086
if sh "$here/apt_install.sh" $missing; then exit 0; fi
if [ "${CI:-}" = true ]; then
    echo "missing under CI: $missing" >&2
    exit 1
fi
echo "the tests that need them will be skipped: $missing" >&2
