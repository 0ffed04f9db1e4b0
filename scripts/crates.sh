#!/usr/bin/env bash
# Package every crate that is published, as `cargo publish` would, and check that each has its README and its licence.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo=${CARGO:-cargo}
builds=${CARGO_TARGET_DIR:-target}
private=$("$cargo" metadata --locked --no-deps --format-version 1 |
    python3 -c 'import json, sys; print(*(p["name"] for p in json.load(sys.stdin)["packages"] if p["publish"] == []))')
rm -rf "$builds/package"
# What is tested is this tree, committed or not; building each package once more would take as long as the whole build.
if ! shown=$("$cargo" package --locked --workspace --no-verify --allow-dirty $(printf -- "--exclude %s " $private) 2>&1); then
    echo "$shown" >&2
    exit 1
fi
number=0
for file in "$builds"/package/*.crate; do
    listed=$(tar -tzf "$file")
    for name in LICENSE README.md src/; do
        grep -q "^[^/]*/$name" <<<"$listed" || { echo "crates.sh: $file has no $name" >&2; exit 1; }
    done
    number=$((number + 1))
done
[ "$number" -gt 0 ] || { echo "crates.sh: no crate was packaged" >&2; exit 1; }
echo "$number crates are ready to publish"
