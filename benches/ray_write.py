"""`MDSDatasink` in Ray Data, beside what Ray takes to read the same files.

    PYTHONPATH=python .cache/venv-ray/bin/python benches/ray_write.py --inputs .cache/bench-inputs

Two processors are given to Ray. What is printed is the time of whole calls, the start of Ray excluded, after a round that does not
count.
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_DATA_DISABLE_PROGRESS_BARS", "1")

import ray  # noqa: E402

from shardmill.ray import MDSDatasink  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=Path, required=True)
    parser.add_argument("--names", nargs="+", default=["tokens", "text"])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    ray.data.DataContext.get_current().enable_progress_bars = False
    for name in options.names:
        path = str(options.inputs / f"{name}.parquet")

        def read(folder, path=path):
            for _ in ray.data.read_parquet(path).iter_internal_ref_bundles():
                pass

        def write(folder, path=path, **arguments):
            sink = MDSDatasink(f"{folder}/out", **arguments)
            ray.data.read_parquet(path).write_datasink(sink)
            assert sink.committed.samples > 0

        ways = {
            "read": read,
            "read and write": write,
            "with zstd:3, sha256": lambda folder: write(folder, compression="zstd:3", hashes=["sha256"]),
        }
        seconds = {way: [] for way in ways}
        for round_number in range(options.rounds + 1):
            for way, run in ways.items():
                with tempfile.TemporaryDirectory() as folder:
                    start = time.perf_counter()
                    run(folder)
                    if round_number:
                        seconds[way].append(time.perf_counter() - start)
        for way, each in seconds.items():
            print(f"{name:7} {way:20} {statistics.median(each):6.2f} s  ({min(each):.2f} to {max(each):.2f})", flush=True)
    ray.shutdown()


if __name__ == "__main__":
    main()
