"""What does the Python package cost before and beside the reading: importing it, and the memory of a rank?

    python python_import.py [--data DATASET]... [--epochs 20] [--json F]

Run it with the interpreter of an environment that has shardmill and torch.

* Importing takes at most 0.15 s (median of nine, `-X importtime`) and loads none of torch, numpy, pyarrow, transformers.
* `StreamingDataset` takes at most 0.04 s of processor time once torch is imported (median of fifteen).
* A rank that reads a dataset again and again needs no more memory with each epoch: less than 5 % more after the last one
  than after the second, and at most 1.2 times the memory that the cache may hold plus 150 MB more than the same process
  with torch imported and no dataset. Pages of shards that are mapped in place count apart: the system takes them back
  when it needs them.

Status 1 where one of these does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
from typing import Any

import measure

MOST_SECONDS = 0.15
MOST_BESIDE_TORCH = 0.04
UNWANTED = ("torch", "numpy", "pyarrow", "transformers")
MOST_GROWTH = 1.05
#: What the cache holds in memory at most, by default.
CACHE_BYTES = 256 << 20
MOST_BYTES = 1.2 * CACHE_BYTES + 150e6


def importing() -> dict[str, Any]:
    """Seconds that the import takes, start of the interpreter left out, and what it loads."""
    found = []
    for _ in range(9):
        words = [sys.executable, "-X", "importtime", "-c", "import shardmill"]
        said = subprocess.run(words, check=True, capture_output=True, text=True).stderr
        # `import time:  self [us] | cumulative | package`, ours with the modules that it imports.
        line = re.search(r"\|\s*(\d+) \| shardmill$", said, re.MULTILINE)
        if line is None:
            sys.exit(f"no time of shardmill in:\n{said}")
        found.append(int(line[1]) / 1e6)
    check = f"import sys, shardmill; print(*[name for name in {UNWANTED!r} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", check], check=True, capture_output=True, text=True).stdout.split()
    return {"seconds": statistics.median(found), "loaded": loaded}


def beside_torch() -> float:
    """Seconds of the processor that `StreamingDataset` takes once torch is imported."""
    program = (
        "import time, torch, torch.utils.data; begun = time.process_time(); import shardmill; "
        "shardmill.StreamingDataset; print(time.process_time() - begun)"
    )
    words = [sys.executable, "-c", program]
    found = [subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout for _ in range(15)]
    return statistics.median(map(float, found))


def resident() -> dict[str, int]:
    """Resident bytes of this process: all, and those of no file."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    values = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
    sizes = {name: 1024 * int(values[name][0]) for name in ("VmRSS", "RssAnon", "RssShmem")}
    return {"all": sizes["VmRSS"], "own": sizes["RssAnon"] + sizes["RssShmem"]}


def read_epochs(data: str, epochs: int) -> None:
    """Runs in a process of its own: reads epochs, prints the memory after each, `before` first."""
    import torch.utils.data

    from shardmill import StreamingDataLoader, StreamingDataset

    # What the loader makes use of counts as torch's.
    torch.utils.data.default_collate([{"a": torch.zeros(2)}])
    found = [resident()]
    dataset = StreamingDataset(local=data, shuffle=True, batch_size=64)
    loader = StreamingDataLoader(dataset, batch_size=64)
    for _ in range(epochs):
        for _ in loader:
            pass
        found.append(resident())
    print(json.dumps(found))


def memory(data: pathlib.Path, epochs: int) -> dict[str, Any]:
    words = [sys.executable, __file__, "--read", str(data), "--epochs", str(epochs)]
    said = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
    before, *after = json.loads(said.splitlines()[-1])
    second, last = after[min(1, len(after) - 1)], after[-1]
    return {
        "data": data.name,
        "epochs": epochs,
        "before": before,
        "after": after,
        "growth": last["own"] / second["own"],
        "growth_with_mapped": last["all"] / second["all"],
        "more_bytes": max(found["own"] for found in after) - before["own"],
        "more_bytes_with_mapped": max(found["all"] for found in after) - before["all"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, action="append", default=[], help="a dataset; repeatable")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--json", type=pathlib.Path, help="write the results here")
    parser.add_argument("--read", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        read_epochs(options.read, options.epochs)
        return 0
    if not os.path.exists("/proc/self/status") and options.data:
        sys.exit("the memory of a process is read from /proc, which is not here")

    imported = importing()
    good = imported["seconds"] <= MOST_SECONDS and not imported["loaded"]
    loaded = ", ".join(imported["loaded"]) or "none of them"
    print(f"import: {1e3 * imported['seconds']:.1f} ms (at most {1e3 * MOST_SECONDS:.0f}), loaded: {loaded}")
    dataset = beside_torch()
    good &= dataset <= MOST_BESIDE_TORCH
    print(f"StreamingDataset beside torch: {1e3 * dataset:.1f} ms (at most {1e3 * MOST_BESIDE_TORCH:.0f})")
    runs = [memory(data, options.epochs) for data in options.data]
    for run in runs:
        good &= max(run["growth"], run["growth_with_mapped"]) < MOST_GROWTH and run["more_bytes"] <= MOST_BYTES
        print(
            f"{run['data']}, {run['epochs']} epochs: {run['growth']:.3f} times as after two, "
            f"{run['growth_with_mapped']:.3f} with mapped shards (less than {MOST_GROWTH:g}); "
            f"{run['more_bytes'] / 2**20:.0f} MiB more than without a dataset (at most {MOST_BYTES / 2**20:.0f}), "
            f"{run['more_bytes_with_mapped'] / 2**20:.0f} with mapped shards"
        )
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        facts = {"machine": measure.machine(), "import": imported, "beside_torch": dataset, "memory": runs}
        options.json.write_text(json.dumps(facts, indent=2) + "\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
