"""Kill readers that share a cache, at random moments, and see what they leave.

    python scripts/soak_cache.py --bin target/release/shardmill --rounds 50 [--seed N] [--server BIN]

Every round starts a few ranks that read one dataset through one cache folder with a limit, kills some of them with
SIGKILL at random moments, and starts all of them again in the same folder, without any cleaning up. Checked:

* the second run of every rank ends with status 0 and gives the samples, byte for byte, in the order of a run that reads
  the data where it lies;
* the files in the cache folder are never more than the limit, while the ranks run and after they have died; those of the
  user that lie there are untouched, and no temporary file is among them;
* nothing named in /dev/shm has appeared.

With --server (the program `remote_speed` of `benches/`) the data is fetched from an S3-like server on the loopback
device, without it from another folder. Prints a line with the seed of each failure; the exit status is 1 if there was one.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

SAMPLES = 6000


def make_table(path: pathlib.Path, draw: random.Random) -> None:
    """JSON lines with samples of very different lengths."""
    with path.open("w") as out:
        for number in range(SAMPLES):
            text = "".join(draw.choices("abcdefgh ", k=draw.randrange(0, 600)))
            out.write(json.dumps({"id": number, "text": text}) + "\n")


def files_below(folder: pathlib.Path) -> dict[str, tuple[int, int]]:
    """Paths of files with their inodes and sizes."""
    found = {}
    for root, _, files in os.walk(folder):
        for name in files:
            path = os.path.join(root, name)
            try:
                status = os.lstat(path)
            except FileNotFoundError:
                continue
            found[path] = status.st_ino, status.st_size
    return found


def bytes_below(folder: pathlib.Path) -> int:
    """Bytes that existed at one moment between two listings: files in both count.

    A file system gives the inode of a removed file to the next one. So a file is the same if its name is, or its size
    (it was renamed).
    """
    found = files_below(folder)
    later = files_below(folder)
    sizes = {inode: size for inode, size in later.values()}
    same = {
        inode: size
        for name, (inode, size) in found.items()
        if sizes.get(inode) == size or (name in later and later[name][0] == inode)
    }
    return sum(same.values())


class Watch(threading.Thread):
    """The most bytes that were in a folder at one time."""

    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__(daemon=True)
        self.folder, self.most, self.stopped = folder, 0, threading.Event()

    def run(self) -> None:
        while not self.stopped.wait(0.002):
            self.most = max(self.most, bytes_below(self.folder))

    def finish(self) -> int:
        self.stopped.set()
        self.join()
        return max(self.most, bytes_below(self.folder))


class Campaign:
    def __init__(self, args: argparse.Namespace, work: pathlib.Path) -> None:
        self.bin, self.work = args.bin, work
        self.env = {**os.environ}
        self.server = None
        self.sets: dict[str, pathlib.Path] = {}
        draw = random.Random(1)
        make_table(work / "table.jsonl", draw)
        for compression in ("none", "zstd:3"):
            name = compression.replace(":", "")
            path = work / "data" / name
            self.run("convert", work / "table.jsonl", path, "--compression", compression, "--size-limit", "32KiB")
            self.sets[name] = path
        if args.server:
            self.server = subprocess.Popen(
                [args.server, "serve", str(work / "data"), "2", "50000000"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )
            self.env |= {
                "AWS_ENDPOINT_URL": self.server.stdout.readline().strip(),
                "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1",
            }
        self.golden: dict[tuple, list[str]] = {}

    def run(self, *words: object) -> dict:
        done = subprocess.run(
            [self.bin, *map(str, words), "--json", "--progress", "none"], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise SystemExit(f"{words} ended with {done.returncode}: {done.stderr}")
        return json.loads(done.stdout)

    def options(self, ranks: int, rank: int, block: int, seed: int) -> list[str]:
        return [
            "--ranks-per-node", str(ranks), "--rank", str(rank), "--batch-size", "16", "--shuffle",
            "--shuffle-block-size", str(block), "--shuffle-seed", str(seed), "--epochs", "2", "--digest",
        ]

    def expected(self, name: str, ranks: int, rank: int, block: int, seed: int) -> list[str]:
        key = (name, ranks, rank, block, seed)
        if key not in self.golden:
            report = self.run("bench", self.sets[name], *self.options(ranks, rank, block, seed))
            self.golden[key] = [epoch["digest"] for epoch in report["epochs"]]
        return self.golden[key]

    def start(self, name: str, cache: pathlib.Path, limit: int, words: list[str]) -> subprocess.Popen:
        remote = f"s3://bucket/{name}" if self.server else str(self.sets[name])
        return subprocess.Popen(
            [self.bin, "bench", remote, "--local", str(cache), "--cache-limit", str(limit), "--json", *words],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.env,
        )

    def round(self, seed: int) -> list[str]:
        draw = random.Random(seed)
        name = draw.choice(sorted(self.sets))
        ranks = draw.choice([1, 2, 2, 3])
        block = draw.choice([200, 800])
        shuffle_seed = draw.choice([1, 2])
        data = bytes_below(self.sets[name])
        index = json.loads((self.sets[name] / "index.json").read_text())
        raw = sum(shard["raw_data"]["bytes"] for shard in index["shards"])
        # Room for a few shards at least, whatever the index takes.
        limit = (self.sets[name] / "index.json").stat().st_size + int(raw * draw.choice([0.25, 0.4, 0.7]))
        problems = []
        with tempfile.TemporaryDirectory(dir=self.work) as folder:
            cache = pathlib.Path(folder) / "cache"
            cache.mkdir()
            own = cache / "notes.txt"
            own.write_text("of the user")
            own_digest = hashlib.sha256(own.read_bytes()).hexdigest()
            limit += own.stat().st_size
            shared = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
            watch = Watch(cache)
            watch.start()
            words = [self.options(ranks, rank, block, shuffle_seed) for rank in range(ranks)]
            slow = ["--step-time", "1ms"]
            running = [self.start(name, cache, limit, words[rank] + slow) for rank in range(ranks)]
            for victim in draw.sample(running, draw.randint(1, ranks)):
                time.sleep(draw.uniform(0, 0.25))
                victim.send_signal(signal.SIGKILL)
            for process in running:
                _, errors = process.communicate(timeout=120)
                if process.returncode not in (0, -signal.SIGKILL):
                    problems.append(f"a rank that was not killed ended with {process.returncode}: {errors.strip()}")
            again = [self.start(name, cache, limit, words[rank]) for rank in range(ranks)]
            for rank, process in enumerate(again):
                output, errors = process.communicate(timeout=120)
                if process.returncode != 0:
                    problems.append(f"rank {rank} ended with {process.returncode}: {errors.strip()}")
                    continue
                digests = [epoch["digest"] for epoch in json.loads(output)["epochs"]]
                if digests != self.expected(name, ranks, rank, block, shuffle_seed):
                    problems.append(f"rank {rank} read other samples")
            most = watch.finish()
            if most > limit:
                problems.append(f"{most} bytes in the cache, the limit is {limit} (dataset: {data})")
            # Only files of the dataset lie beside that of the user.
            if temps := [name for name in os.listdir(cache) if name.startswith("tmp-")]:
                problems.append(f"left in the cache: {temps}")
            if hashlib.sha256(own.read_bytes()).hexdigest() != own_digest:
                problems.append("a file of the user was changed")
            if os.path.isdir("/dev/shm") and (new := set(os.listdir("/dev/shm")) - shared):
                problems.append(f"new in /dev/shm: {sorted(new)}")
        return problems

    def close(self) -> None:
        if self.server:
            self.server.kill()
            self.server.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--server")
    parser.add_argument("--work", type=pathlib.Path)
    args = parser.parse_args()
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(1 << 32)
    work = pathlib.Path(tempfile.mkdtemp(dir=args.work)) if args.work else pathlib.Path(tempfile.mkdtemp())
    start, failed = time.monotonic(), 0
    campaign = Campaign(args, work)
    try:
        for number in range(args.rounds):
            problems = campaign.round(seed + number)
            for problem in problems:
                print(f"FAILED: --rounds 1 --seed {seed + number}: {problem}")
            failed += bool(problems)
    finally:
        campaign.close()
        shutil.rmtree(work, ignore_errors=True)
    print(
        f"soak_cache: {args.rounds} rounds from seed {seed}, {failed} failed, {time.monotonic() - start:.0f} s, "
        f"data from {'a server' if args.server else 'a folder'}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
