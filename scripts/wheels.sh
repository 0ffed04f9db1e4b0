#!/usr/bin/env bash
# Build the two wheels: the Python package and the command line.
#
#   scripts/wheels.sh VENV PROGRAM OUT
#
# VENV has maturin, build and hatchling; PROGRAM is the command line that cargo has built. Old wheels in OUT go.
set -euo pipefail

venv=$1 program=$2 out=$3
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$out"
rm -f "$out"/shardmill*.whl
"$venv/bin/maturin" build --quiet --release --locked --manifest-path "$root/python/Cargo.toml" --out "$out"
install -D -m 755 "$program" "$root/cli/wheel/bin/shardmill"
strip --strip-debug "$root/cli/wheel/bin/shardmill"
"$venv/bin/python" -m build --wheel --no-isolation --outdir "$out" "$root/cli/wheel" >/dev/null
ls -l "$out"/*.whl | awk '{printf "%s %.1f MB\n", $NF, $5 / 1e6}' | sed "s|$out/||"
