#!/usr/bin/env bash
# Check the wheels, then install them as a user would: into empty environments, with NumPy and nothing else, without Rust and
# without torch, for every Python of this machine. Prints how long each step takes.
#
#   scripts/check_wheel.sh VENV WHEELS WORK
#
# VENV is the one that built the wheels. MINORS are the versions of Python 3 to try, all by default. FREE_THREADED is the
# interpreter that the second wheel was built for, if there is one.
set -euo pipefail

venv=$1 work=$3
root=$(cd "$(dirname "$0")/.." && pwd)
wheel=$(realpath "$2"/shardmill-*-abi3-*"_$(uname -m).whl")
"$venv/bin/python" "$root/scripts/check_wheel.py" "$wheel"

try() {
    rm -rf "$work"
    mkdir -p "$work"
    "$1" "$root/scripts/check_install.py" "${@:2}"
}

found=0
for minor in ${MINORS:-9 10 11 12 13 14}; do
    for python in "$(command -v "python3.$minor" || true)" "$HOME"/.pyenv/versions/3.$minor.*/bin/python; do
        # A name on the PATH may be a shim for a version that is not installed.
        [ -n "$python" ] && "$python" -c 'import sys; assert sys.version_info[1] == int(sys.argv[1])' "$minor" 2>/dev/null || continue
        try "$python" "$wheel" "$work" $([ "$found" -gt 0 ] || echo --every-scheme)
        found=$((found + 1))
        break
    done
done
if [ -n "${FREE_THREADED:-}" ]; then
    wheel=$(realpath "$2"/shardmill-*-cp3*t-*"_$(uname -m).whl")
    "$venv/bin/python" "$root/scripts/check_wheel.py" "$wheel"
    try "$FREE_THREADED" "$wheel" "$work"
fi
rm -rf "$work"
[ "$found" -gt 0 ] || { echo "check_wheel.sh: no Python to try the wheel with" >&2; exit 1; }
