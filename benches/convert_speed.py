"""How long does a conversion from Parquet to MDS take, beside the other writers and beside the floor?

    python convert_speed.py --bin shardmill --floor floor --inputs DIR --mosaic VENV --neprr VENV [--rounds 5] [--json F]

All contenders run in turn within each round, on the same input (in the page cache), to the same disk, which is idle at
each start; medians of the rounds are shown. Wall times compare within one run; CPU seconds (user + system, all threads
and children) also compare between runs.

* `shardmill` is the whole process, from start to exit: durable (fsync) and verified, every core.
* `mosaicml-streaming` and `neprr-streaming` are timed inside Python, imports left out: see `peer_writer.py`.
* `floor` is the unavoidable work with the same decoder, hash and compressor and nothing else: see `src/floor.rs`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pathlib
import shutil
import statistics
import sys
import tempfile

import measure

INPUTS = ["tokens", "text", "jpeg"]
SETTINGS = [("none", "none"), ("zstd:3", "sha256")]
HERE = pathlib.Path(__file__).resolve().parent


def raw_digests(dataset: pathlib.Path) -> list[str]:
    """The SHA-256 of every raw shard: from the index where it is there, else of the file."""
    index = json.loads((dataset / "index.json").read_text())
    return [
        shard["raw_data"]["hashes"].get("sha256")
        or hashlib.sha256((dataset / shard["raw_data"]["basename"]).read_bytes()).hexdigest()
        for shard in index["shards"]
    ]


class Bench:
    def __init__(self, options: argparse.Namespace, work: pathlib.Path) -> None:
        self.options, self.work = options, work
        self.log = work / "log"
        threads = str(os.cpu_count())
        compressed = {"none": "none", "zstd:3": "zstd3"}
        self.contenders = {}
        if options.floor:
            self.contenders["floor"] = lambda i, o, c, h: measure.run(
                [str(options.floor), i, o, threads, compressed[c], "sync"], self.log
            )
        self.contenders["shardmill"] = lambda i, o, c, h: measure.run(
            [str(options.bin), "--progress", "none", "convert", i, o, "--compression", c, "--hashes", h], self.log
        )
        for name, short, venv in (
            ("mosaicml-streaming", "mosaic", options.mosaic),
            ("neprr-streaming", "neprr", options.neprr),
        ):
            if venv:
                self.contenders[name] = self.peer(short, venv / "bin" / "python")

    def peer(self, short: str, python: pathlib.Path):
        def run(source: str, out: str, compression: str, hashes: str) -> measure.Cost:
            script = str(HERE / "peer_writer.py")
            measure.run([str(python), script, short, source, out, compression, hashes], self.log)
            said = json.loads(self.log.read_text().splitlines()[-1])
            return measure.Cost(said["wall"], said["cpu"], 0)

        return run

    def case(self, name: str, compression: str, hashes: str) -> dict:
        source = self.options.inputs / f"{name}.parquet"
        source.read_bytes()
        costs: dict[str, list[measure.Cost]] = {contender: [] for contender in self.contenders}
        digests: dict[str, list[str]] = {}
        order = list(self.contenders)
        for turn in range(self.options.rounds):
            # Each round starts with another contender, so that no one always follows the same neighbour.
            for contender in order[turn % len(order) :] + order[: turn % len(order)]:
                out = measure.fresh(self.work / "out")
                costs[contender].append(self.contenders[contender](str(source), str(out), compression, hashes))
                if turn == 0 and contender != "floor":
                    digests[contender] = raw_digests(out)
        same = None
        if "mosaicml-streaming" in digests:
            same = digests["shardmill"] == digests["mosaicml-streaming"]
        return {
            "input": name,
            "compression": compression,
            "hashes": hashes,
            "same_raw_bytes_as_mosaicml_streaming": same,
            "seconds": {
                contender: {
                    "wall_median": statistics.median(cost.wall for cost in found),
                    "cpu_median": statistics.median(cost.cpu for cost in found),
                    "wall": [round(cost.wall, 4) for cost in found],
                    "cpu": [round(cost.cpu, 4) for cost in found],
                }
                for contender, found in costs.items()
            },
        }


def show(case: dict) -> None:
    seconds = case["seconds"]
    ours = seconds["shardmill"]
    same = {True: "same bytes as mosaicml-streaming", False: "OTHER BYTES than mosaicml-streaming", None: ""}
    print(f"\n{case['input']}, {case['compression']}, hashes {case['hashes']}  {same[case['same_raw_bytes_as_mosaicml_streaming']]}")
    print(f"  {'':20} {'wall s':>8} {'CPU s':>8} {'wall / ours':>12} {'CPU / ours':>11}")
    for name, cost in seconds.items():
        wall, cpu = cost["wall_median"], cost["cpu_median"]
        print(
            f"  {name:20} {wall:8.2f} {cpu:8.2f} {wall / ours['wall_median']:12.2f} {cpu / ours['cpu_median']:11.2f}",
            flush=True,
        )


def case_arguments(inputs: list[str]) -> argparse.ArgumentParser:
    """The arguments of every benchmark that writes `inputs` beside the other packages."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--inputs", type=pathlib.Path, required=True, help="what make_inputs.py made")
    parser.add_argument("--mosaic", type=pathlib.Path, help="environment with mosaicml-streaming and pyarrow")
    parser.add_argument("--neprr", type=pathlib.Path, help="environment with neprr-streaming and pyarrow")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=inputs, action="append")
    parser.add_argument("--work", type=pathlib.Path, help="where outputs go; default: beside the inputs")
    parser.add_argument("--json", type=pathlib.Path, help="write the results here")
    return parser


def run_cases(bench_of, options: argparse.Namespace, inputs: list[str], show) -> int:
    """Runs and shows every input with every setting. The exit status is 1 if the bytes of a case differ from mosaicml-streaming's."""
    work = pathlib.Path(tempfile.mkdtemp(prefix="bench-", dir=options.work or options.inputs))
    cases = []
    try:
        bench = bench_of(options, work)
        print(f"{options.rounds} rounds of {', '.join(bench.contenders)} on {os.cpu_count()} CPUs, medians")
        for name in options.only or inputs:
            for compression, hashes in SETTINGS:
                cases.append(bench.case(name, compression, hashes))
                show(cases[-1])
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        facts = {"machine": measure.machine(), "rounds": options.rounds, "cases": cases}
        options.json.write_text(json.dumps(facts, indent=2) + "\n")
    return 0 if all(case["same_raw_bytes_as_mosaicml_streaming"] is not False for case in cases) else 1


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, parents=[case_arguments(INPUTS)]
    )
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="the shardmill program")
    parser.add_argument("--floor", type=pathlib.Path, help="the floor program")
    return run_cases(Bench, parser.parse_args(), INPUTS, show)


if __name__ == "__main__":
    sys.exit(main())
