"""Tar shards read as dicts of bytes, in order, in one process: shardmill beside webdataset.

    python webdataset_read.py TARS [--rounds 5] [--json F]

TARS is a folder of tar shards with an `index.json`, such as `benches/webdataset.py` leaves in its work folder. It is run by the
Python that has both packages (`.venv`). Each contender is a process of its own in each round; it reads everything once, which
does not count, and then once more, which does. Wall time and processor time of all threads, a sample; medians of the rounds.

* `shardmill` reads by the index; `shardmill, no index` reads a copy of the tar files alone, whose headers it has scanned.
* `webdataset` is `WebDataset(tars, shardshuffle=False)`.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

import measure

CHILD = """
import sys, time
who, folder = sys.argv[1:]
if who == "webdataset":
    import glob
    import webdataset
    samples = webdataset.WebDataset(sorted(glob.glob(folder + "/*.tar")), shardshuffle=False)
else:
    from shardmill import StreamingDataset
    samples = StreamingDataset(local=folder, shuffle=False, batch_size=64)
for _ in range(2):
    count = size = 0
    wall, cpu = time.perf_counter(), time.process_time()
    for sample in samples:
        count += 1
        size += sum(len(value) for name, value in sample.items() if not name.startswith("__"))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
print(count, size, wall, cpu)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tars", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    found: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as alone:
        for tar in options.tars.glob("*.tar"):
            shutil.copy(tar, alone)
        contenders = [("shardmill", options.tars), ("shardmill, no index", alone), ("webdataset", options.tars)]
        totals = set()
        for _ in range(options.rounds):
            for who, folder in contenders:
                command = [sys.executable, "-c", CHILD, who.split(",")[0], str(folder)]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                count, size, wall, cpu = done.stdout.split()
                totals.add((count, size))
                found.setdefault(who, []).append((float(wall) / int(count) * 1e6, float(cpu) / int(count) * 1e6))
    if len(totals) != 1:
        sys.exit(f"the contenders did not read the same: {sorted(totals)}")
    ((count, size),) = totals
    rows = {who: [statistics.median(times) for times in zip(*both)] for who, both in found.items()}
    print(f"{count} samples, {int(size) / 1e6:.0f} MB, {options.rounds} rounds, microseconds a sample")
    base = rows["webdataset"]
    for who, (wall, cpu) in rows.items():
        print(f"{who:22} wall {wall:7.2f} ({base[0] / wall:5.1f} times), processor {cpu:7.2f} ({base[1] / cpu:5.1f} times)")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"machine": measure.machine(), "samples": int(count), "microseconds": rows}, indent=1))


if __name__ == "__main__":
    main()
