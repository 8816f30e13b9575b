#!/usr/bin/env bash
# Install what the lab needs: system packages (root or sudo, only for these) and .venv. Does nothing the second time.
# `setup.sh vagrant` and `setup.sh browser` install that section of packages.txt instead; where one cannot, it says so loudly,
# and that is no failure.
set -euo pipefail
cd "$(dirname "$0")/.."

section=${1:-}
missing=()
while read -r package; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done < <(awk -v wanted="$section" '/^# \[/ { part = $2; gsub(/[][]/, "", part) } !/^#/ && part == wanted' ci/packages.txt)

if [ -n "$section" ]; then
    [ ${#missing[@]} = 0 ] && exit
    echo "setup: installing packages for $section: ${missing[*]}"
    sudo=()
    [ "$(id -u)" = 0 ] || sudo=(sudo -n)
    install=(env DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -q -y --no-install-recommends "${missing[@]}")
    "${sudo[@]}" "${install[@]}" >/dev/null 2>&1 || { "${sudo[@]}" apt-get update -q && "${sudo[@]}" "${install[@]}"; } >/dev/null 2>&1 ||
        echo "setup: NOT RUN: what needs $section, as its packages cannot be installed here: ${missing[*]}" >&2
    exit 0
fi

if [ ${#missing[@]} -gt 0 ]; then
    echo "setup: installing packages: ${missing[*]}"
    sudo=()
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || { echo "setup: run as root once: apt-get install ${missing[*]}" >&2; exit 3; }
        sudo=(sudo)
    fi
    # the lists may be fresh enough already; asking for new ones is only worth it when they are not
    install=(env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}")
    "${sudo[@]}" "${install[@]}" >/dev/null 2>&1 || { "${sudo[@]}" apt-get update -q && "${sudo[@]}" "${install[@]}"; } >&2
fi

# the distribution's Python, so that every user of the machine can run the environment
python=/usr/bin/python3
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "setup: Python 3.11 or newer is needed" >&2; exit 3; }

stamp=$(cat ci/requirements.txt pyproject.toml | sha256sum | cut -c1-16)
if [ "$(cat .venv/stamp 2>/dev/null)" != "$stamp" ]; then
    echo "setup: making .venv with the packages of ci/requirements.txt"
    [ -x .venv/bin/python ] || "$python" -m venv .venv
    .venv/bin/pip install -q --disable-pip-version-check -r ci/requirements.txt
    .venv/bin/pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
    echo "$stamp" > .venv/stamp
fi
