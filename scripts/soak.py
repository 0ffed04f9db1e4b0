"""Kill conversions at random moments, continue them, and compare the result with an undisturbed one.

    python soak.py --bin PROGRAM --work DIR [--rounds N] [--seed S]

Each round starts a conversion with random settings in an empty directory, stops it up to four times at random moments
(SIGKILL, sometimes SIGTERM or SIGINT), and lets the last run finish. What must hold:

* where an interrupted run left an index.json, the dataset is complete; one that was asked to stop says so with
  status 130 or 143;
* the last run ends with 0, and every file is byte for byte that of the undisturbed conversion;
* no work folder and no temporary file stays behind, and `verify --deep` finds nothing wrong.

The first failure ends the soak with status 1 and prints the seed that repeats it. Standard library only.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import sysconfig
import time

SETTINGS = [
    ["--size-limit", "256KiB"],
    ["--size-limit", "1MiB", "--compression", "none", "--hashes", "sha256,xxh64"],
    ["--samples-per-shard", "200", "--compression", "gz:6", "--hashes", "none"],
    ["--size-limit", "512KiB", "--split", "train=0.8,val=0.2"],
    ["--size-limit", "512KiB", "--compression", "zstd:9"],
]


def make_table(path: pathlib.Path) -> int:
    """A JSON-lines table of this Python's own sources: path, number and text of every piece of 40 lines."""
    root = pathlib.Path(sysconfig.get_path("stdlib"))
    rows = 0
    with path.open("w", encoding="utf-8") as table:
        for source in sorted(root.rglob("*.py")):
            if "site-packages" in source.parts:
                continue
            try:
                lines = source.read_text(encoding="utf-8").splitlines(keepends=True)
            except (OSError, UnicodeDecodeError):
                continue
            for first in range(0, len(lines), 40):
                row = {"path": str(source.relative_to(root)), "line": first + 1, "text": "".join(lines[first : first + 40])}
                table.write(json.dumps(row) + "\n")
                rows += 1
    return rows


def digest(directory: pathlib.Path) -> dict[str, str]:
    """Every file below the directory and what is in it; the side file may name the run, so only its presence counts."""
    found = {}
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            name = path.relative_to(directory).as_posix()
            found[name] = "" if path.name == "index.provenance" else hashlib.sha256(path.read_bytes()).hexdigest()
    return found


class Soak:
    def __init__(self, program: str, work: pathlib.Path, seed: int) -> None:
        self.program, self.work, self.draw = program, work, random.Random(seed)
        self.kills = self.finished_early = 0
        self.table = work / "table.jsonl"
        self.golden: dict[int, tuple[dict[str, str], float]] = {}

    def command(self, dest: pathlib.Path, setting: int, jobs: int) -> list[str]:
        base = [self.program, "--progress", "none", "convert", str(self.table), str(dest), "--jobs", str(jobs)]
        return base + SETTINGS[setting]

    def undisturbed(self, setting: int) -> tuple[dict[str, str], float]:
        if setting not in self.golden:
            dest = self.work / f"golden-{setting}"
            start = time.monotonic()
            done = subprocess.run(self.command(dest, setting, 2), capture_output=True, text=True)
            if done.returncode != 0:
                raise AssertionError(f"the undisturbed conversion ended with {done.returncode}: {done.stderr.strip()}")
            self.golden[setting] = digest(dest), time.monotonic() - start
        return self.golden[setting]

    def round(self, number: int) -> None:
        setting = self.draw.randrange(len(SETTINGS))
        expected, seconds = self.undisturbed(setting)
        dest = self.work / "round"
        shutil.rmtree(dest, ignore_errors=True)
        for _ in range(self.draw.randint(1, 4)):
            how = self.draw.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
            delay = self.draw.uniform(0, seconds * 1.1)
            running = subprocess.Popen(
                self.command(dest, setting, self.draw.randint(1, 3)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
            try:
                running.wait(delay)
                self.finished_early += 1
            except subprocess.TimeoutExpired:
                running.send_signal(how)
            _, said = running.communicate(timeout=60)
            # A process that has not reached its own handler yet dies of the signal itself.
            expected_status = {0, -how} | ({128 + how} if how != signal.SIGKILL else set())
            assert running.returncode in expected_status, f"status {running.returncode} after {how.name}: {said.decode()}"
            if running.returncode == 0:
                break
            self.kills += 1
            # The index is the last file: where it is, everything else is. (A split has one index each.)
            if (dest / "index.json").exists():
                got = digest(dest)
                missing = sorted(name for name in expected if expected[name] != got.get(name))
                assert not missing, f"an index after {how.name}, but not the same files: {missing[:10]}"
        last = subprocess.run(self.command(dest, setting, self.draw.randint(1, 3)), capture_output=True, text=True)
        assert last.returncode == 0, f"the last run ended with {last.returncode}: {last.stderr.strip()}"
        got = digest(dest)
        differing = sorted(name for name in expected.keys() | got.keys() if expected.get(name) != got.get(name))
        assert not differing, f"files differ from the undisturbed conversion: {differing[:10]}"
        if number % 10 == 0:
            for index in dest.rglob("index.json"):
                verify = subprocess.run([self.program, "verify", "--deep", str(index.parent)], capture_output=True, text=True)
                assert verify.returncode == 0, f"verify: {verify.stdout} {verify.stderr}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(2**32)

    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    soak = Soak(options.bin, options.work, seed)
    rows = make_table(soak.table)
    print(f"soak: seed {seed}, {options.rounds} rounds, {rows:,} rows, {soak.table.stat().st_size / 1e6:.1f} MB", flush=True)
    start = time.monotonic()
    for number in range(options.rounds):
        try:
            soak.round(number)
        except (AssertionError, subprocess.TimeoutExpired) as problem:
            print(f"soak: round {number} failed: {problem}\nsoak: repeat with SOAK_SEED={seed}", file=sys.stderr)
            return 1
    print(
        f"soak: {options.rounds} conversions, stopped {soak.kills} times, all byte for byte as undisturbed "
        f"({soak.finished_early} finished before their signal), {time.monotonic() - start:.0f} s"
    )
    shutil.rmtree(options.work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
