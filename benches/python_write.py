"""How fast is the Python package when it writes samples one at a time, beside the other packages?

    python python_write.py --inputs DIR --shardmill VENV [--mosaic VENV] [--neprr VENV] [--rounds 5] [--json F]

Each environment has its package, NumPy and PyArrow; mosaicml-streaming and neprr-streaming are both imported as
`streaming`, so they need one each. All contenders run in turn within each round, as processes of their own, on the same
samples, to the same disk, which is idle at each start; medians of the rounds are shown. What is timed: see
`dict_writer.py`. Wall times compare within one run; CPU per sample also compares between runs. Ours are durable (fsync),
the others leave their files to the page cache.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import sys

import measure
from convert_speed import case_arguments, raw_digests, run_cases

INPUTS = ["tokens", "text"]
HERE = pathlib.Path(__file__).resolve().parent


class Bench:
    def __init__(self, options: argparse.Namespace, work: pathlib.Path) -> None:
        self.options, self.work = options, work
        self.log = work / "log"
        venvs = {
            "shardmill": ("shardmill", options.shardmill),
            "mosaicml-streaming": ("streaming", options.mosaic),
            "neprr-streaming": ("streaming", options.neprr),
        }
        self.contenders = {name: both for name, both in venvs.items() if both[1]}

    def run(self, contender: str, source: pathlib.Path, compression: str, hashes: str) -> dict:
        package, venv = self.contenders[contender]
        out = measure.fresh(self.work / "out")
        script = str(HERE / "dict_writer.py")
        command = [str(venv / "bin" / "python"), script, package, str(source), str(out), compression, hashes]
        measure.run(command, self.log)
        said = json.loads(self.log.read_text().splitlines()[-1])
        return {**said, "digests": raw_digests(out)}

    def case(self, name: str, compression: str, hashes: str) -> dict:
        source = self.options.inputs / f"{name}.parquet"
        runs: dict[str, list[dict]] = {contender: [] for contender in self.contenders}
        order = list(self.contenders)
        for turn in range(self.options.rounds):
            # Each round starts with another contender, so that no one always follows the same neighbour.
            for contender in order[turn % len(order) :] + order[: turn % len(order)]:
                runs[contender].append(self.run(contender, source, compression, hashes))
        ours, theirs = (runs.get(who, [{}])[0].get("digests") for who in ("shardmill", "mosaicml-streaming"))
        return {
            "input": name,
            "compression": compression,
            "hashes": hashes,
            "same_raw_bytes_as_mosaicml_streaming": ours == theirs if theirs else None,
            "contenders": {
                contender: {
                    "wall_median": statistics.median(run["wall"] for run in found),
                    "cpu_us_per_sample_median": statistics.median(1e6 * run["cpu"] / run["samples"] for run in found),
                    "wall": [round(run["wall"], 4) for run in found],
                    "cpu": [round(run["cpu"], 4) for run in found],
                }
                for contender, found in runs.items()
            },
        }


def show(case: dict) -> None:
    ours = case["contenders"]["shardmill"]
    same = {True: "same bytes as mosaicml-streaming", False: "OTHER BYTES than mosaicml-streaming", None: ""}
    print(f"\n{case['input']}, {case['compression']}, hashes {case['hashes']}  {same[case['same_raw_bytes_as_mosaicml_streaming']]}")
    print(f"  {'':20} {'wall s':>8} {'CPU µs':>8} {'wall / ours':>12} {'CPU / ours':>11}")
    for name, cost in case["contenders"].items():
        wall, cpu = cost["wall_median"], cost["cpu_us_per_sample_median"]
        ratios = wall / ours["wall_median"], cpu / ours["cpu_us_per_sample_median"]
        print(f"  {name:20} {wall:8.3f} {cpu:8.2f} {ratios[0]:12.2f} {ratios[1]:11.2f}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, parents=[case_arguments(INPUTS)]
    )
    parser.add_argument("--shardmill", type=pathlib.Path, required=True, help="environment with shardmill and pyarrow")
    return run_cases(Bench, parser.parse_args(), INPUTS, show)


if __name__ == "__main__":
    sys.exit(main())
