"""How fast does a Python program read a dataset in training, beside the other packages?

    python python_read.py --data DIR --ours VENV --mosaic VENV --neprr VENV [--litdata VENV] [--hf VENV] [--inputs DIR]
                          [--rounds 5] [--workers 0,2] [--only NAME] [--json F] [--markdown F]

DIR is what `read.sh` made; datasets of compressed text are made there once with `--bin`. Everything lies in the page
cache. All contenders read the same dataset with the same arguments: batches of 64, `py1e` with a block larger than the
dataset, so that every batch takes samples from all shards. They take turns within each round; medians of the rounds are
shown, of whole epochs with import and opening left out. See `peer_reader.py` for what runs in each environment.

CPU microseconds a sample (user + system, all threads and worker processes) also compare between runs; samples a second
only within one. Before anything is timed each contender reads an epoch that is looked at value by value: the table shows
whether all brought the same samples, in the same order, and ours the types of mosaicml-streaming. Status 1 where samples
or types differ, or with `--strict` where a target is missed.

mosaicml-streaming keeps names in /dev/shm that programs at the same time trip over: where some run, give this one its
own (`unshare -m`, then mount a `tmpfs` there).

* `litdata` and `hf` (Hugging Face datasets, map style) are for reference: other formats, orders and types.
* `memmap` is a floor: one file of rows of one size, copied by NumPy into a new array for each batch.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
from typing import Any, NamedTuple, Optional

import measure

HERE = pathlib.Path(__file__).resolve().parent
BATCH_SIZE = 64
SEED = 9176
# More than any of the datasets has samples.
BLOCK = 1 << 18
SIZES = {"few": "64MiB", "many": "512KiB"}
NAMES = {
    "shardmill": "shardmill",
    "neprr": "neprr-streaming",
    "mosaic": "mosaicml-streaming",
    "litdata": "LitData",
    "hf": "HF datasets",
    "memmap": "memmap floor",
}
# The packages that read MDS, with the same arguments: theirs have to be the same samples.
COMPARED = ("shardmill", "neprr", "mosaic")


class Case(NamedTuple):
    """What is read, and how."""

    name: str
    input: str
    shape: str
    shards: str
    compression: str
    #: CPU a sample of the others is to be at least so many times ours, without workers.
    neprr: float
    mosaic: float
    #: Most CPU microseconds a sample of ours, without workers.
    most_cpu: Optional[float] = None
    #: Whether each round reads the first epoch of a new copy.
    cold: bool = False


CASES = [
    Case("tokens", "tokens", "columns", "few", "none", 6, 30, 2.5),
    Case("text, dicts", "text", "dicts", "few", "none", 4, 20, 2.5),
    Case("text, columns", "text", "columns", "few", "none", 4, 20),
    Case("JPEG bytes, dicts", "jpeg", "dicts", "few", "none", 3, 15),
    Case("text zstd:3, dicts", "text", "dicts", "few", "zstd:3", 4, 20),
    Case("text zstd:3, dicts, first epoch", "text", "dicts", "few", "zstd:3", 1, 1, cold=True),
    Case("tokens", "tokens", "columns", "many", "none", 20, 20, 2.5),
    Case("text, dicts", "text", "dicts", "many", "none", 20, 20, 2.5),
    Case("text, columns", "text", "columns", "many", "none", 20, 20),
    Case("JPEG bytes, dicts", "jpeg", "dicts", "many", "none", 20, 20),
    Case("text zstd:3, dicts", "text", "dicts", "many", "zstd:3", 20, 20),
]


class Contender:
    """A process with one of the packages, which executes commands."""

    def __init__(self, name: str, venv: pathlib.Path, log: pathlib.Path) -> None:
        self.name, self.log = name, log
        environment = dict(os.environ)
        if name != "shardmill":
            # Ours may be on the path by this variable; the others are in their environments.
            environment.pop("PYTHONPATH", None)
        with log.open("wb") as errors:
            self.process = subprocess.Popen(
                [str(venv / "bin" / "python"), "-W", "ignore", "-X", "faulthandler", str(HERE / "peer_reader.py"), name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment,
            )

    def ask(self, **order: Any) -> dict[str, Any]:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} has ended with {self.process.wait()}: {self.log.read_text()[-2000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Bench:
    def __init__(self, options: argparse.Namespace, work: pathlib.Path) -> None:
        self.options, self.work = options, work
        venvs = {
            "shardmill": options.ours,
            "neprr": options.neprr,
            "mosaic": options.mosaic,
            "litdata": options.litdata,
            "hf": options.hf,
            "memmap": options.ours if options.inputs else None,
        }
        self.venvs: dict[str, pathlib.Path] = {name: venv for name, venv in venvs.items() if venv}

    def source(self, case: Case) -> pathlib.Path:
        """The dataset of a case; one of compressed shards is made where it is missing."""
        name = f"{case.input}-{SIZES[case.shards]}"
        if case.compression == "none":
            return pathlib.Path(self.options.data / name)
        made = pathlib.Path(self.options.data / f"{name}-{case.compression.replace(':', '')}")
        if not (made / "index.json").exists():
            if not (self.options.bin and self.options.inputs):
                sys.exit(f"{made} is missing: --bin and --inputs would make it")
            command = [str(self.options.bin), "--quiet", "convert", str(self.options.inputs / f"{case.input}.parquet")]
            command += [str(made), "--compression", case.compression, "--size-limit", SIZES[case.shards]]
            subprocess.run(command, check=True)
        return made

    def place(self, name: str, case: Case) -> pathlib.Path:
        """Where a contender reads: a folder of its own, because some leave files there, and two readers of one folder
        take each other for ranks of one run."""
        if name in COMPARED:
            source = self.source(case)
            place = self.work / name / source.name
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(source, place, copy_function=os.link if case.compression == "none" else shutil.copy2)
        else:
            place = self.work / name / case.input
            if not place.exists():
                place.parent.mkdir(exist_ok=True)
                source = self.options.inputs / f"{case.input}.parquet"
                python = self.venvs[name] / "bin" / "python"
                words = [str(python), str(HERE / "peer_reader.py"), name, str(source), str(place)]
                with (self.work / "log").open("wb") as log:
                    subprocess.run(words, check=True, stdout=log, stderr=log)
        for file in place.rglob("*"):
            if file.is_file():
                file.read_bytes()
        return place

    def takes_part(self, name: str, case: Case, workers: int) -> bool:
        if name in COMPARED:
            return True
        if not self.options.inputs or case.shards != "few" or case.compression != "none":
            return False
        return name != "memmap" or (case.input == "tokens" and not workers)

    def case(self, case: Case, workers: int) -> dict[str, Any]:
        places = {name: self.place(name, case) for name in self.venvs if self.takes_part(name, case, workers)}
        running: dict[str, Contender] = {}
        rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in places}
        try:
            opened, digests = {}, {}
            for name, place in places.items():
                running[name] = Contender(name, self.venvs[name], self.work / f"{name}.log")
                opened[name] = running[name].ask(**self.opening(place, case, workers))
                digests[name] = running[name].ask(do="digest")
            order = list(places)
            for turn in range(self.options.rounds):
                # Each round starts with another contender, so that no one always follows the same neighbour.
                for name in order[turn % len(order) :] + order[: turn % len(order)]:
                    if case.cold and name in COMPARED:
                        running[name].ask(**self.opening(self.place(name, case), case, workers))
                    seconds = 0 if case.cold else self.options.seconds
                    rounds[name].append(running[name].ask(do="epochs", seconds=seconds))
        finally:
            for contender in running.values():
                contender.end()
        readers = {}
        for name, found in rounds.items():
            samples = digests[name]["samples"]
            readers[name] = {"opened": opened[name], "digest": digests[name], **summary(found, samples), "rounds": found}
        return judged(case, workers, readers)

    def opening(self, place: pathlib.Path, case: Case, workers: int) -> dict[str, Any]:
        return {
            "do": "open",
            "path": str(place),
            "case": case.shape,
            "workers": workers,
            "batch_size": BATCH_SIZE,
            "seed": SEED,
            "block": BLOCK,
        }


def summary(rounds: list[dict[str, Any]], samples: int) -> dict[str, float]:
    """Medians over the rounds, a sample; the first batch in seconds."""

    def median(key: str) -> float:
        return float(statistics.median(found[key] / (samples * found["epochs"]) for found in rounds))

    return {
        "samples_per_second": 1 / median("wall"),
        "cpu_microseconds": 1e6 * median("cpu"),
        "switches": median("waits"),
        "forced_switches": median("forced"),
        "first_batch_seconds": statistics.median(found["first_batch"] for found in rounds),
        "peak_bytes": max(found["peak_bytes"] for found in rounds),
    }


def judged(case: Case, workers: int, readers: dict[str, Any]) -> dict[str, Any]:
    """The figures with what they are held against."""
    ours = readers["shardmill"]
    said = [readers[name]["digest"] for name in COMPARED if name in readers]
    targets = []
    for peer, wanted in (("neprr", case.neprr), ("mosaic", case.mosaic)):
        if peer not in readers:
            continue
        faster = ours["samples_per_second"] / readers[peer]["samples_per_second"]
        if workers or case.cold:
            targets.append({"what": f"speed / {NAMES[peer]}", "is": faster, "at_least": 1.0})
        else:
            cpu = readers[peer]["cpu_microseconds"] / ours["cpu_microseconds"]
            targets.append({"what": f"CPU of {NAMES[peer]} / ours", "is": cpu, "at_least": wanted})
            targets.append({"what": f"speed / {NAMES[peer]}", "is": faster, "at_least": wanted})
    if case.most_cpu and not workers:
        targets.append({"what": "CPU µs a sample", "is": ours["cpu_microseconds"], "at_most": case.most_cpu})
    for target in targets:
        target["met"] = target["is"] >= target["at_least"] if "at_least" in target else target["is"] <= target["at_most"]
    return {
        "case": case.name,
        "shards": case.shards,
        "workers": workers,
        "same_samples": len({(found["every"], found["samples"]) for found in said}) == 1,
        "same_order": len({found["order"] for found in said}) == 1,
        # Those of mosaicml-streaming; neprr-streaming has Python numbers in the place of NumPy's.
        "same_types": ours["digest"]["types"] == readers.get("mosaic", ours)["digest"]["types"],
        "readers": readers,
        "targets": targets,
    }


def title(result: dict[str, Any]) -> str:
    shards = {"few": "shards of 64 MiB", "many": "shards of 512 KiB"}[result["shards"]]
    return f"{result['case']}, {shards}, {result['workers']} workers"


def markdown(result: dict[str, Any]) -> str:
    ours = result["readers"]["shardmill"]
    lines = [f"\n### {title(result)}\n"]
    same = [f"{'same' if result[f'same_{what}'] else 'OTHER'} {what}" for what in ("samples", "order", "types")]
    lines.append(f"{', '.join(same)}\n")
    heads = ["samples/s", "CPU µs", "switches", "forced", "threads", "first batch, ms", "peak MiB"]
    heads += ["CPU / ours", "speed of ours"]
    lines.append(f"| | {' | '.join(heads)} |")
    lines.append(f"|---|{'---:|' * len(heads)}")
    for name, found in result["readers"].items():
        cells = [
            NAMES[name],
            f"{found['samples_per_second']:,.0f}",
            f"{found['cpu_microseconds']:.2f}",
            f"{found['switches']:.3f}",
            f"{found['forced_switches']:.3f}",
            str(found["digest"]["threads"]),
            f"{1e3 * found['first_batch_seconds']:.1f}",
            f"{found['peak_bytes'] / 2**20:,.0f}",
            f"{found['cpu_microseconds'] / ours['cpu_microseconds']:.1f}",
            f"{ours['samples_per_second'] / found['samples_per_second']:.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines.append("")
    for target in result["targets"]:
        bound = f"at least {target['at_least']:g}" if "at_least" in target else f"at most {target['at_most']:g}"
        lines.append(f"* {target['what']}: {target['is']:.2f}, {bound}: {'met' if target['met'] else '**missed**'}")
    return "\n".join(lines)


def save(options: argparse.Namespace, results: list[dict[str, Any]]) -> None:
    """Writes what was found so far: a long run may end early."""
    facts = {"machine": measure.machine(), "rounds": options.rounds, "cases": results}
    for path, text in (
        (options.json, json.dumps(facts, indent=2)),
        (options.markdown, "\n".join(markdown(result) for result in results)),
    ):
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="the folder with the datasets of read.sh")
    parser.add_argument("--ours", type=pathlib.Path, required=True, help="environment with shardmill and torch")
    parser.add_argument("--mosaic", type=pathlib.Path, help="environment with mosaicml-streaming")
    parser.add_argument("--neprr", type=pathlib.Path, help="environment with neprr-streaming and torch")
    parser.add_argument("--litdata", type=pathlib.Path, help="environment with litdata and pyarrow")
    parser.add_argument("--hf", type=pathlib.Path, help="environment with datasets and torch")
    parser.add_argument("--inputs", type=pathlib.Path, help="what make_inputs.py made; needed for the ones of other formats")
    parser.add_argument("--bin", type=pathlib.Path, help="the shardmill program, to make compressed datasets")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3, help="whole epochs for at least so long in each round")
    parser.add_argument("--workers", default="0,2", help="numbers of worker processes, with commas")
    parser.add_argument("--only", action="append", help="cases whose name begins so; repeatable")
    parser.add_argument("--shards", choices=list(SIZES), help="only few shards, or only many")
    parser.add_argument("--work", type=pathlib.Path, help="where copies go; default: beside the datasets")
    parser.add_argument("--json", type=pathlib.Path, help="write the results here")
    parser.add_argument("--markdown", type=pathlib.Path, help="write the tables here")
    parser.add_argument("--strict", action="store_true", help="status 1 where a target is missed")
    options = parser.parse_args()

    work = pathlib.Path(tempfile.mkdtemp(prefix="python-read-", dir=options.work or options.data))
    results = []
    try:
        bench = Bench(options, work)
        print(f"{options.rounds} rounds of {', '.join(bench.venvs)} on {os.cpu_count()} CPUs, medians")
        for workers in map(int, options.workers.split(",")):
            for case in CASES:
                if options.only and not case.name.startswith(tuple(options.only)):
                    continue
                if options.shards and case.shards != options.shards:
                    continue
                if case.cold and workers:
                    continue
                results.append(bench.case(case, workers))
                print(markdown(results[-1]), flush=True)
                save(options, results)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    missed = [title(result) for result in results if not all(target["met"] for target in result["targets"])]
    print(f"\n{len(results) - len(missed)} of {len(results)} cases meet their targets")
    same = all(result["same_samples"] and result["same_types"] for result in results)
    return 0 if same and not (options.strict and missed) else 1


if __name__ == "__main__":
    sys.exit(main())
