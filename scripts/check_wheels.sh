#!/usr/bin/env bash
# Install the wheels as a user would: into an empty environment, with NumPy and nothing else, for every Python that is here.
#
#   scripts/check_wheels.sh WHEELS WORK
set -euo pipefail

wheels=$1 work=$2
root=$(cd "$(dirname "$0")/.." && pwd)
found=0
for minor in 9 10 11 12 13 14; do
    for python in "$(command -v "python3.$minor" || true)" "$HOME"/.pyenv/versions/3.$minor.*/bin/python; do
        # A name on the PATH may be a shim for a version that is not there.
        [ -n "$python" ] && "$python" -c 'import sys; assert sys.version_info[1] == int(sys.argv[1])' "$minor" 2>/dev/null || continue
        rm -rf "$work"
        "$python" -m venv "$work"
        "$work/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: "$wheels"/shardmill*.whl
        "$work/bin/python" -X dev "$root/scripts/check_wheels.py" "$work/bin/shardmill"
        found=$((found + 1))
        break
    done
done
rm -rf "$work"
[ "$found" -gt 0 ] || { echo "check_wheels.sh: no Python to try them with" >&2; exit 1; }
