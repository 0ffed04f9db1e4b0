"""A tree of pairs to tar shards, and tar shards to MDS and back: how fast, beside those who do less?

    python webdataset.py --bin shardmill --work DIR [--python PYTHON] [--pairs 10000] [--rounds 5] [--json F]

Makes a tree of JPEG + JSON pairs in DIR (about 140 MB for 10,000), which is kept for the next time. All contenders run in turn
within each round, on files in the page cache, to the same disk, which is idle at each start; medians of the rounds are shown.

* `shardmill` is the whole process, from start to exit: sha256, index and tables of offsets, durable (fsync), all cores.
* `webdataset` is `ShardWriter(…, mtime=0)` of the PYTHON that has it, imports left out; no hashes, no index, no fsync.
* `tar` is GNU `tar cf` of the tree, one file; no hashes, no index, no fsync. `tar+sync` is the same with `sync` of that file.
* `cp` copies the dataset with `cp -r`; no hashes, no fsync. `cp+sync` is the same with `sync -f` behind it.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys

import measure

PEER = """
import sys, time, pathlib
from webdataset.writer import ShardWriter
tree, out = map(pathlib.Path, sys.argv[1:])
out.mkdir()
start = time.perf_counter()
with ShardWriter(str(out / "shard-%06d.tar"), maxsize=64 << 20, encoder=False, mtime=0, verbose=0) as shards:
    for jpg in sorted(tree.rglob("*.jpg")):
        key = jpg.relative_to(tree).with_suffix("").as_posix()
        shards.write({"__key__": key, "jpg": jpg.read_bytes(), "json": jpg.with_suffix(".json").read_bytes()})
print(time.perf_counter() - start)
"""


def make_tree(tree: pathlib.Path, pairs: int) -> None:
    if tree.is_dir():
        return
    rng = random.Random(11)
    part = tree.with_name("part")
    for number in range(pairs):
        folder = part / f"{number % 50:02}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:06}.jpg").write_bytes(b"\xff\xd8\xff\xe0" + rng.randbytes(rng.randrange(4_000, 24_000)))
        (folder / f"{number:06}.json").write_text(json.dumps({"number": number, "caption": f"picture {number} " * 8}))
    part.rename(tree)


class Bench:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.work = options, options.work
        self.log = self.work / "log"
        self.out = self.work / "out"
        self.found: dict[tuple[str, str], list[float]] = {}

    def add(self, task: str, who: str, seconds: float) -> None:
        self.found.setdefault((task, who), []).append(seconds)

    def convert(self, task: str, source: pathlib.Path, *more: str) -> None:
        measure.fresh(self.out)
        command = [str(self.options.bin), "--progress", "none", "convert", str(source), str(self.out), *more]
        self.add(task, "shardmill", measure.run(command, self.log).wall)

    def run(self, task: str, who: str, command: list[str]) -> None:
        measure.fresh(self.out)
        self.add(task, who, measure.run(command, self.log).wall)

    def tree(self, tree: pathlib.Path) -> None:
        task = "tree to tar"
        self.convert(task, tree, "--to", "webdataset")
        self.run(task, "tar", ["/bin/tar", "cf", str(self.out), "-C", str(tree), "."])
        self.out.unlink()
        self.run(task, "tar+sync", ["/bin/sh", "-c", f"tar cf {self.out} -C {tree} . && sync {self.out}"])
        self.out.unlink()
        if self.options.python:
            measure.fresh(self.out)
            command = [str(self.options.python), "-c", PEER, str(tree), str(self.out)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            self.add(task, "webdataset", float(done.stdout))

    def between(self, tars: pathlib.Path, shards: pathlib.Path) -> None:
        for compression in ("none", "zstd:3"):
            self.convert(f"tar to MDS, {compression}", tars, "--compression", compression)
        self.convert("MDS to tar", shards, "--to", "webdataset")
        self.convert("MDS to tar, no hashes", shards, "--to", "webdataset", "--hashes", "none")
        self.convert("tar to tar, zstd:3", tars, "--to", "webdataset", "--compression", "zstd:3")
        for task, source in (("tar to MDS, none", tars), ("MDS to tar", shards)):
            self.run(task, "cp", ["/bin/cp", "-r", str(source), str(self.out)])
            self.run(task, "cp+sync", ["/bin/sh", "-c", f"cp -r {source} {self.out} && sync -f {self.out}"])

    def show(self) -> dict:
        rows = {}
        for (task, who), times in self.found.items():
            rows.setdefault(task, {})[who] = statistics.median(times)
        for task, costs in rows.items():
            line = ", ".join(f"{who} {seconds:.3f} s" for who, seconds in costs.items())
            print(f"{task}: {line}")
        return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--python", type=pathlib.Path)
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    options.work = options.work.resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    tree, tars, shards = (options.work / name for name in (f"tree-{options.pairs}", "tars", "shards"))
    make_tree(tree, options.pairs)
    for source, dest, more in ((tree, tars, ["--to", "webdataset"]), (tars, shards, ["--compression", "none"])):
        measure.fresh(dest)
        subprocess.run([options.bin, "--quiet", "convert", source, dest, *more], check=True)
    bench = Bench(options)
    print(f"{measure.machine()}, {options.pairs} pairs, {options.rounds} rounds", file=sys.stderr)
    for _ in range(options.rounds):
        bench.tree(tree)
        bench.between(tars, shards)
    rows = bench.show()
    measure.fresh(bench.out)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"machine": measure.machine(), "pairs": options.pairs, "seconds": rows}, indent=1))


if __name__ == "__main__":
    main()
