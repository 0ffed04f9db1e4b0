#!/usr/bin/env bash
# Build the wheel: the Python package, its extension module and the `shardmill` program.
#
#   scripts/wheel.sh VENV OUT [TARGET]
#
# VENV is set up from requirements-wheel.txt. TARGET is a target of Rust for Linux, without it this machine's. Old wheels
# for TARGET in OUT are removed. With FREE_THREADED=INTERPRETER, such as python3.14t, a second wheel is built: a free-threaded
# Python cannot load the module of the other versions.
#
# The wheel runs on every Linux with glibc 2.28. Rust code depends on the C library only when it is linked, so for this
# machine's target only the program and the extension module are compiled again: zig links them against the symbols of glibc
# 2.28. For another target everything is compiled, with zig as the C compiler.
set -euo pipefail

venv=$(realpath "$1") out=$2
root=$(cd "$(dirname "$0")/.." && pwd)
cargo=${CARGO:-cargo}
host=$("$cargo" -vV | sed -n 's/^host: //p')
target=${3:-$host}
arch=${target%%-*}
glibc=2.28
tag=manylinux_${glibc/./_}
builds=${CARGO_TARGET_DIR:-$root/target}
# cargo-zigbuild and maturin look for zig in the `python3` of the PATH.
export PATH="$venv/bin:$PATH"

mkdir -p "$out" "$builds"
out=$(realpath "$out")
rm -f "$out"/shardmill-*"_$arch.whl"
rm -rf "$root/python/shardmill.data"
cd "$root"
if [ "$target" = "$host" ]; then
    linker=$(realpath "$builds")/zig-linker
    printf '#!/bin/sh\nexec cargo-zigbuild zig cc -- -target %s-linux-gnu.%s "$@"\n' "$arch" "$glibc" >"$linker"
    chmod +x "$linker"
    "$cargo" rustc --quiet --release --locked --package shardmill --bin shardmill -- -C linker="$linker"
    install -D -m 755 "$builds/release/shardmill" python/shardmill.data/scripts/shardmill
    build=(-- -C linker="$linker")
else
    cargo-zigbuild zigbuild --quiet --release --locked --package shardmill --target "$target.$glibc"
    install -D -m 755 "$builds/$target/release/shardmill" python/shardmill.data/scripts/shardmill
    build=(--zig --target "$target")
fi
scripts/notices.py python/THIRD-PARTY-NOTICES.txt --target "$target"
for python in "" ${FREE_THREADED:+"--interpreter=$FREE_THREADED"}; do
    maturin build --quiet --release --locked --manifest-path python/Cargo.toml --compatibility "$tag" --out "$out" $python "${build[@]}"
done
rm -rf python/shardmill.data
ls -l "$out"/shardmill-*"_$arch.whl" | awk '{printf "%s %.1f MB\n", $NF, $5 / 1e6}' | sed "s|$out/||"
