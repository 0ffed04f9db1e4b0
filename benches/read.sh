#!/usr/bin/env bash
# How fast datasets are read in training: from the page cache, from a store, and how a run starts.
#
#   benches/read.sh RELEASE_DIR INPUTS WORK
#
# RELEASE_DIR holds `shardmill`, `read_speed` and `remote_speed`; INPUTS is what make_inputs.py made; datasets are made
# in WORK once. Needs python3 and 1.2 GB.
set -euo pipefail

bin=$1 inputs=$2 work=$3
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$work"
for name in tokens text jpeg; do
    for size in 64MiB 4MiB 512KiB; do
        [ -f "$work/$name-$size/index.json" ] ||
            "$bin/shardmill" convert "$inputs/$name.parquet" "$work/$name-$size" --compression none --size-limit $size --quiet
    done
done
[ -f "$work/many/index.json" ] || python3 "$here/make_many.py" "$work/many"

for name in tokens text jpeg; do
    for size in 64MiB 512KiB; do
        for threads in 0 1; do
            printf '\n%s, shards of %s, %s threads\n' $name $size $threads
            "$bin/read_speed" "$work/$name-$size" --threads $threads --epochs 11
        done
    done
done

printf '\n100,000,000 samples in 20,000 shards: open, order, first batch\n'
for algo in py1e shardmill; do
    for round in 1 2 3; do
        python3 - "$bin/shardmill" "$work/many" $algo $round <<'E2'
import json, resource, subprocess, sys
program, data, algo, number = sys.argv[1:]
words = [program, "bench", data, "--shuffle", "--shuffle-algo", algo, "--num-canonical-nodes", "64", "--batch-size", "64",
         "--max-batches", "1", "--epoch", number, "--json"]
done = subprocess.run(words, check=True, capture_output=True, text=True)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
report = json.loads(done.stdout)
epoch = report["epochs"][0]
print(f"{algo:10} opened in {report['open_seconds']:.2f} s, order and first batch {epoch['seconds']:.2f} s; largest resident size {peak:.0f} MiB")
E2
    done
done

printf '\nfrom a store\n'
"$bin/remote_speed" "$work/tokens-4MiB" "$work/tokens-64MiB"
