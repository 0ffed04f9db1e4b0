#!/usr/bin/env bash
# Runs each fuzz target for some seconds, or only the one named: fuzz.sh PROGRAM WORK SECONDS [TARGET]
# A failing input is left in WORK and named; the first failure ends the run.
set -euo pipefail
program=$1 work=$2 seconds=$3 only=${4:-}

rm -rf "$work/seeds"
mkdir -p "$work/seeds"
FUZZ_SEEDS=$work/seeds "$program"
for seeds in "$work"/seeds/${only:-*}; do
    target=$(basename "$seeds")
    mkdir -p "$work/corpus/$target"
    FUZZ=$target "$program" -max_total_time="$seconds" -max_len=65536 -rss_limit_mb=2048 -timeout=10 -print_final_stats=1 \
        -artifact_prefix="$work/$target-" "$work/corpus/$target" "$seeds" 2>"$work/$target.log" \
        || { tail -n 30 "$work/$target.log"; exit 1; }
    awk -v target="$target" '/cov:/ { cov = $0 } /number_of_executed_units/ { runs = $2 }
        END { match(cov, /cov: [0-9]+/); printf "%-18s %10d runs, %s edges\n", target, runs, substr(cov, RSTART + 5, RLENGTH - 5) }' \
        "$work/$target.log"
done
