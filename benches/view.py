"""Measures `shardmill view` on 1,000,000 samples behind an S3 server on the loopback device that answers after 30 ms.

    python benches/view.py --bin target/release/shardmill --server target/release/remote_speed [--samples 1000000]

Prints the time from the start of the program to the first page of samples, the median of 50 jumps to random samples (a page of
48 previews, and one whole sample), and the most memory of the server. Needs pyarrow.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import tempfile
import time
import urllib.request

import pyarrow as pa
import pyarrow.parquet as pq


def make_table(path: pathlib.Path, samples: int) -> None:
    draw = random.Random(1)
    words = [draw.randbytes(3).hex() for _ in range(2000)]
    with pq.ParquetWriter(path, pa.schema([("id", pa.int64()), ("text", pa.string()), ("label", pa.int32())])) as out:
        for start in range(0, samples, 100_000):
            ids = list(range(start, min(start + 100_000, samples)))
            texts = [" ".join(draw.choices(words, k=40)) for _ in ids]
            out.write_table(pa.table([ids, texts, [number % 1000 for number in ids]], schema=out.schema))


class Page:
    """A `shardmill view` process and requests to it."""

    def __init__(self, program: str, location: str, env: dict[str, str]) -> None:
        words = [program, "view", location, "--json"]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=env)
        address = json.loads(self.process.stdout.readline())["url"]
        self.base, self.token = re.fullmatch(r"(http://[^/]+)/\?token=(\w+)", address).groups()

    def get(self, path: str) -> dict:
        request = urllib.request.Request(f"{self.base}/api/{path}", headers={"Authorization": f"Bearer {self.token}"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            found = json.load(answer)
        if "error" in found:
            raise SystemExit(found["error"])
        return found

    def samples(self, number: int, what: str) -> None:
        errors = [sample["error"] for sample in self.get(f"samples?from={number}&{what}")["samples"] if "error" in sample]
        if errors:
            raise SystemExit(errors[0])

    def most_memory(self) -> int:
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) // 1024

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()


def measure(program: str, location: str, samples: int, env: dict[str, str]) -> str:
    start = time.perf_counter()
    page = Page(program, location, env)
    try:
        page.get("dataset")
        page.samples(0, "count=48")
        first = time.perf_counter() - start
        draw = random.Random(2)
        jumps: dict[str, list[float]] = {"count=48": [], "count=1&full=true": []}
        for _ in range(50):
            for what, times in jumps.items():
                number = draw.randrange(samples - 48)
                start = time.perf_counter()
                page.samples(number, what)
                times.append(time.perf_counter() - start)
        grid, one = (statistics.median(times) for times in jumps.values())
        return (
            f"first page {first:.2f} s, jump to 48 samples {1000 * grid:.0f} ms, to one sample {1000 * one:.0f} ms, "
            f"memory {page.most_memory()} MiB"
        )
    finally:
        page.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--server", required=True)
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--latency-ms", type=int, default=30)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        table = pathlib.Path(work, "table.parquet")
        make_table(table, args.samples)
        shapes = {
            "mds": ["--compression", "none"],
            "mds-zstd-16MiB": ["--size-limit", "16MiB"],
            "webdataset": ["--to", "webdataset"],
        }
        data = pathlib.Path(work, "data")
        for shape, options in shapes.items():
            words = [args.bin, "convert", str(table), str(data / shape), *options, "--quiet"]
            subprocess.run(words, check=True)
        words = [args.server, "serve", str(data), str(args.latency_ms), "100000000"]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            env = {
                **os.environ, "AWS_ENDPOINT_URL": server.stdout.readline().strip(), "AWS_ACCESS_KEY_ID": "test",
                "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1",
            }
            for shape in shapes:
                for location in (str(data / shape), f"s3://bucket/{shape}"):
                    print(f"{location.removeprefix(work + '/')}: {measure(args.bin, location, args.samples, env)}")
            server.stdin.close()


if __name__ == "__main__":
    main()
