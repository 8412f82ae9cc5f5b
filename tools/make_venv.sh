#!/bin/sh
# Makes the virtual environment: make_venv.sh PYTHON FOLDER. Installs Debian's venv package where it is missing.
set -eu
python=$1
folder=$2
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "turnlog needs Python 3.11 or newer; '$python' is not. Try: make setup PYTHON=python3.12" >&2
    exit 1
fi
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    sh "$(dirname "$0")/apt_install.sh" "$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
fi
"$python" -m venv "$folder"
