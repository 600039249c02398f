#!/bin/sh
# Fills the environment ENVIRONMENT with Ray, beside the packages of MAIN.
# usage: install.sh MAIN ENVIRONMENT [pip arguments]
set -eu
main=$1 environment=$2
shift 2
"$main/bin/python" -m venv --clear "$environment"
"$environment/bin/python" -m pip install --quiet --disable-pip-version-check --no-input "$@" \
    -r "$(dirname "$0")/requirements.txt"

# Its own packages come first; then those of the main environment, and Pagewire's sources.
packages=$("$main/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
own=$("$environment/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
{ echo "$packages"; cat "$packages"/*pagewire*.pth; } >"$own/main.pth"
