#!/bin/sh
# Fills the environment ENVIRONMENT with the stores of other projects, beside the packages of MAIN.
# usage: install.sh MAIN ENVIRONMENT [pip arguments]
set -eu
main=$1 environment=$2
shift 2
here=$(dirname "$0")
"$main/bin/python" -m venv --clear "$environment"
pip() { "$environment/bin/python" -m pip install --quiet --disable-pip-version-check --no-input "$@"; }
pip "$@" -r "$here/requirements.txt"
pip "$@" --no-deps -r "$here/requirements-no-deps.txt"

# Its own packages come first; then those of the main environment, and Pagewire's sources.
packages=$("$main/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
own=$("$environment/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
{ echo "$packages"; cat "$packages"/*pagewire*.pth; } >"$own/main.pth"

# Mooncake's library needs the system's libibverbs, also where there is no such network.
if ! ldconfig -p | grep -q 'libibverbs\.so\.1'; then
    libraries=$(cd "$environment" && pwd)/libraries
    mkdir -p "$libraries/packages"
    chmod 777 "$libraries/packages"
    (cd "$libraries/packages" && apt-get download -qq libibverbs1 libnl-3-200 libnl-route-3-200 2>/dev/null) ||
        { echo "no libibverbs1: apt-get update, and apt-get install libibverbs1" >&2; exit 1; }
    for package in "$libraries/packages"/*.deb; do dpkg -x "$package" "$libraries"; done
fi
