#!/usr/bin/env bash
# Show what shardmill does, on real data that is already on this machine. Nothing is downloaded.
#
#   scripts/demo.sh PROGRAM WORK_DIR
set -euo pipefail

shardmill=$1 work=$2
rm -rf "$work"
mkdir -p "$work"
work=$(cd "$work" && pwd)

step() { printf '\n== %s\n' "$*"; }
# The command as a reader would type it, then what it prints.
run() { printf '$ %s\n' "$(echo shardmill "$@" | sed "s|$work/||g; s|$tree|\$TREE|g")"; "$shardmill" --progress none "$@"; }
size() { du -sh --apparent-size "$1" 2>/dev/null | cut -f1 || du -sh "$1" | cut -f1; }
fail() { printf 'demo: %s\n' "$*" >&2; exit 1; }

# The table: the character database that comes with Python. The tree: the sources of the crates that cargo unpacked to
# build this program; where they are somewhere else (vendored, say), the standard library of Python.
python=$(command -v python3 || command -v python) || fail "no Python 3 on the PATH"
tree=$(find "${CARGO_HOME:-$HOME/.cargo}/registry/src" -mindepth 1 -maxdepth 1 -type d 2>/dev/null | sort | head -n 1)
[ -n "$tree" ] || tree=$("$python" -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
files=$(find "$tree" -type f | wc -l)

step "A table: the Unicode character database of this machine's Python"
"$python" "$(dirname "$0")/demo_table.py" "$work/unicode.csv"
run convert "$work/unicode.csv" "$work/unicode" --null-as numeric=-1 --split train=0.9,val=0.1 --split-key name
run inspect "$work/unicode/train" | head -n 18
run cat "$work/unicode/val" 0..2

step "A tree of files: $files files ($(size "$tree")) in $tree"
run convert "$tree" "$work/sources" --from tree --group file | head -n 5
run inspect --shards "$work/sources" | head -n 4
run verify "$work/sources"

step "The same command again: everything is there, nothing is done"
run convert "$tree" "$work/sources" --from tree --group file

step "The same conversion, killed in the middle (kill -9) and run again"
"$shardmill" --progress none convert "$tree" "$work/killed" --from tree --group file --jobs 1 >"$work/killed.log" 2>&1 &
pid=$!
# Wait until the first shard is there, so that there is something to continue.
while kill -0 "$pid" 2>/dev/null && [ -z "$(find "$work/killed" -name 'shard.*' 2>/dev/null | head -n 1)" ]; do sleep 0.02; done
kill -9 "$pid" 2>/dev/null || true
wait "$pid" 2>/dev/null || true
[ ! -e "$work/killed/index.json" ] || fail "the conversion was over before it could be killed"
echo "killed: $(find "$work/killed" -name 'shard.*' | wc -l) shards there, no index.json, so no reader takes it for a dataset"
run convert "$tree" "$work/killed" --from tree --group file | head -n 2
diff -r -x index.provenance "$work/sources" "$work/killed"
echo "byte for byte what the undisturbed conversion wrote"

step "Reading it as a training job would: two epochs, shuffled, through a cache of 300 MB"
run bench "$work/sources" --local "$work/cache" --cache-limit 300MB --shuffle --shuffle-block-size 5000 --batch-size 64 --epochs 2

step "Which samples every rank is given: the same order on any number of machines"
run order "$work/unicode/val" --shuffle --nodes 2 --ranks-per-node 2 --batch-size 4 --batches 0..2

step "What two machines with four GPUs each would fetch and wait for"
run plan "$work/sources" --nodes 2 --ranks-per-node 4 --batch-size 64 --shuffle --cache-limit 300MB --step-time 100ms --bandwidth 1GB/s

step "The datasets stay in $work; MosaicML Streaming reads them as its own"
