"""What does it take to bring a dataset up to date, beside converting its Delta table anew?

    python increments.py --bin shardmill --work DIR [--files 20] [--rows 100000] [--rounds 3]

Makes a table of FILES files of ROWS rows with the package `deltalake`, converts it, and then lets the table change step by
step: a file is appended, a row of a file is deleted (the file is written again), rows are updated, everything is
compacted. After each step the dataset is brought up to date with `--incremental`, and the table converted anew beside
it. Shows seconds, their ratio, what was added and what is gone; the contents of both must be the same. Needs `deltalake`
and `pyarrow`.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import time


def rows(first: int, count: int):
    import pyarrow as pa

    ids = range(first, first + count)
    return pa.table({
        "id": pa.array(ids, pa.int64()),
        "weight": pa.array([(n * 7919 % 1000) / 8 for n in ids], pa.float64()),
        "text": [f"sample {n} " + "lorem ipsum dolor sit amet " * (n % 5) for n in ids],
    })


def convert(binary: str, table: pathlib.Path, dest: pathlib.Path, *more: str) -> tuple[float, dict]:
    start = time.perf_counter()
    done = subprocess.run(
        [binary, "convert", str(table), str(dest), "--json", "--progress", "none", *more],
        check=True, capture_output=True, text=True,
    )
    return time.perf_counter() - start, json.loads(done.stdout)


def content(dest: pathlib.Path) -> str:
    return json.loads((dest / "index.provenance").read_text())["content"]


def run(binary: str, work: pathlib.Path, files: int, count: int) -> dict[str, tuple[float, float, dict]]:
    from deltalake import DeltaTable, write_deltalake

    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    table, dest, anew = work / "table", work / "shards", work / "anew"
    for number in range(files):
        write_deltalake(str(table), rows(number * count, count), mode="append")
    steps = {
        "one more file": lambda: write_deltalake(str(table), rows(files * count, count), mode="append"),
        "one row of one file deleted": lambda: DeltaTable(str(table)).delete(f"id = {count // 2}"),
        "a hundredth of all rows updated": lambda: DeltaTable(str(table)).update(
            updates={"weight": "weight + 1"}, predicate="id % 100 = 7"
        ),
        "everything compacted": lambda: DeltaTable(str(table)).optimize.compact(),
        "nothing": lambda: None,
    }
    taken = {}
    for name, change in {"the first run": lambda: None, **steps}.items():
        change()
        seconds, report = convert(binary, table, dest, "--incremental")
        shutil.rmtree(anew, ignore_errors=True)
        whole, _ = convert(binary, table, anew)
        # A run that finds nothing leaves the content that was there.
        assert content(dest) == content(anew), name
        taken[name] = (seconds, whole, report["increment"])
    shutil.rmtree(work)
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--files", type=int, default=20)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    rounds = [run(args.bin, args.work, args.files, args.rows) for _ in range(args.rounds)]
    print(f"{args.files} files of {args.rows} rows, medians of {args.rounds} rounds")
    for name in rounds[0]:
        seconds = statistics.median(taken[name][0] for taken in rounds)
        ratio = statistics.median(taken[name][0] / taken[name][1] for taken in rounds)
        increment = rounds[0][name][2]
        print(
            f"{name:32} {seconds:6.2f} s, {ratio:5.2f} of a conversion anew;"
            f" added {increment['added_samples']}, gone {increment['tombstones']}"
        )


if __name__ == "__main__":
    main()
