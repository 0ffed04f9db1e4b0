"""Measures the time to the first batch of a view: 100,000,000 samples, of which 1 % are selected at random.

    python benches/views.py [SAMPLES]

The shards are links to one file. Needs the Python package and the program.
"""

import json
import os
import random
import sys
import tempfile
import time

from shardmill import MDSWriter, StreamingDataset, select

PER_SHARD = 5_000


def make(folder, samples):
    """Writes a dataset of equal shards, which are one file."""
    with MDSWriter(out=f"{folder}/one", columns={"n": "uint8"}, size_limit=None) as out:
        for number in range(PER_SHARD):
            out.write({"n": number % 251})
    with open(f"{folder}/one/index.json") as file:
        shard = json.load(file)["shards"][0]
    shards = []
    for number in range(samples // PER_SHARD):
        name = f"shard.{number:05}.mds"
        os.link(f"{folder}/one/shard.00000.mds", f"{folder}/{name}")
        shards.append({**shard, "raw_data": {**shard["raw_data"], "basename": name}})
    with open(f"{folder}/index.json", "w") as file:
        json.dump({"version": 2, "shards": shards}, file)


def first_batch(folder, **options):
    start = time.perf_counter()
    dataset = StreamingDataset(local=folder, batch_size=256, **options)
    next(iter(dataset.batches()))
    return time.perf_counter() - start


def main():
    samples = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000_000
    with tempfile.TemporaryDirectory() as folder:
        make(folder, samples)
        chosen = random.Random(1).sample(range(samples), samples // 100)
        view = select(folder, samples=chosen)
        path = f"{folder}/v.view"
        view.save(path)
        print(f"view: {os.path.getsize(path):,} bytes, {len(view):,} of {samples:,} samples")
        for algo in ("none", "py1e", "py1s", "py1br", "shardmill"):
            shuffle = {"shuffle": algo != "none", "shuffle_algo": algo if algo != "none" else "py1e"}
            times = sorted(first_batch(folder, view=path, **shuffle) for _ in range(5))
            print(f"{algo}: first batch after {times[2]:.3f} s (fastest {times[0]:.3f} s, slowest {times[4]:.3f} s)")


if __name__ == "__main__":
    main()
