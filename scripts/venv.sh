#!/usr/bin/env bash
# Set up a Python environment and keep it until its requirement files change.
#
#   scripts/venv.sh DIR REQUIREMENTS [OVERRIDES]
#
# Needs Python 3.9+ with `venv`; packages come from PyPI. `uv` does the work: the one on the PATH, or a copy of its own.
# Where the requirements want a newer Python than this machine's, uv fetches one. Prints one line when it did something.
set -euo pipefail

dir=$1 requirements=$2 overrides=${3:-}
key=$(cat "$0" "$requirements" ${overrides:+"$overrides"} | cksum | tr ' ' -)
stamp=$dir/.requirements-$key
[ -f "$stamp" ] && exit 0

start=$SECONDS
echo "setting up $dir from $requirements ..."
if command -v uv >/dev/null 2>&1; then
    uv=uv
else
    tool=$(cd "$(dirname "$0")/.." && pwd)/.cache/uv-tool
    if ! [ -x "$tool/bin/uv" ]; then
        python=$(command -v python3 || command -v python) || { echo "venv.sh: no Python 3 on the PATH" >&2; exit 1; }
        "$python" -m venv "$tool" || { echo "venv.sh: python3 needs its venv module (Debian: apt install python3-venv)" >&2; exit 1; }
        "$tool/bin/pip" install --quiet --disable-pip-version-check 'uv>=0.9,<1'
    fi
    uv=$tool/bin/uv
fi
rm -rf "$dir"
"$uv" venv --quiet --python '>=3.10,<3.14' "$dir"
"$uv" pip install --quiet --python "$dir/bin/python" --requirements "$requirements" ${overrides:+--override "$overrides"}
touch "$stamp"
echo "$dir is ready after $((SECONDS - start)) s"
