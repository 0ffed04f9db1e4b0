"""Does the memory that a conversion needs depend on the size of its input?

    python memory.py --bin shardmill --inputs DIR [--sizes 0.25,1,4] [--json FILE]

Converts one Parquet file of 0.25, 1 and 4 GB of raw text (the rows of text.parquet again and again) with the defaults
on two threads, and shows the largest resident size of each run. Ends with status 1 when the largest is more than 10 %
above the smallest, or above 512 MiB.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import measure

MOST_BYTES = 512 << 20
MOST_RATIO = 1.10
# Runs in a process of its own: the one that measures must stay small.
MAKE = """
import json, sys
import pyarrow.parquet as pq
source, out, wanted = sys.argv[1], sys.argv[2], float(sys.argv[3])
file = pq.ParquetFile(source)
raw = 0
with pq.ParquetWriter(out, file.schema_arrow) as writer:
    while raw < wanted:
        for group in range(file.num_row_groups):
            table = file.read_row_group(group)
            writer.write_table(table)
            raw += table.nbytes
            if raw >= wanted:
                break
print(raw)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--inputs", type=pathlib.Path, required=True, help="what make_inputs.py made")
    parser.add_argument("--sizes", default="0.25,1,4", help="in GB of raw data")
    parser.add_argument("--jobs", default="2")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()

    work = pathlib.Path(tempfile.mkdtemp(prefix="memory-", dir=options.inputs))
    found = []
    print(f"{'raw input':>12} {'wall s':>8} {'CPU s':>8} {'peak MiB':>9}")
    try:
        for size in options.sizes.split(","):
            source = work / "input.parquet"
            making = [sys.executable, "-c", MAKE, str(options.inputs / "text.parquet"), str(source), str(float(size) * 1e9)]
            raw = int(subprocess.run(making, check=True, capture_output=True, text=True).stdout)
            out = measure.fresh(work / "out")
            command = [str(options.bin), "--progress", "none", "convert", str(source), str(out), "--jobs", options.jobs]
            cost = measure.run(command, work / "log")
            found.append({"raw_bytes": raw, "wall": cost.wall, "cpu": cost.cpu, "peak_bytes": cost.peak_bytes})
            print(f"{raw / 1e9:9.2f} GB {cost.wall:8.2f} {cost.cpu:8.2f} {cost.peak_bytes / 2**20:9.0f}", flush=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    peaks = [run["peak_bytes"] for run in found]
    ratio = max(peaks) / min(peaks)
    good = ratio <= MOST_RATIO and max(peaks) <= MOST_BYTES
    print(f"largest peak / smallest: {ratio:.2f} (at most {MOST_RATIO}); largest: {max(peaks) >> 20} MiB (at most {MOST_BYTES >> 20})")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"machine": measure.machine(), "runs": found, "ratio": ratio}, indent=2) + "\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
