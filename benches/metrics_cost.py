"""What do exported metrics cost?

    python metrics_cost.py [--rounds 7] [--json FILE]

Reads epochs of a local dataset, in pairs: one without exports, one with a textfile every 100 batches, an endpoint that is
scraped every second, and `explain()` every 100 batches. Then the same with a trace. Each step of training sleeps, because the
share of a loader that runs as fast as it can says nothing about a run. Reports CPU seconds of the process (user and system, all
threads), medians over the rounds, and the additional CPU as a share of one core over the duration.

Other load on the machine changes the CPU time of an epoch by more than exports cost. Therefore it also reports the CPU time of one
call of each, from 500 calls in a row, and the share that the calls of these epochs add up to.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import resource
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from typing import Any, Iterator

import measure

SAMPLES, BATCH, STEP = 32_768, 16, 0.005


def make(folder: pathlib.Path) -> None:
    import numpy as np

    from shardmill import MDSWriter

    row = np.arange(2048, dtype=np.int32)
    with MDSWriter(out=str(folder), columns={"tokens": "ndarray:int32:2048"}, size_limit=1 << 22) as out:
        for _ in range(SAMPLES):
            out.write({"tokens": row})


@contextlib.contextmanager
def exported(loader: Any, work: pathlib.Path, traced: bool) -> Iterator[None]:
    """Everything that exports, and a client in another thread, whose CPU counts, too."""
    from shardmill import metrics

    metrics.write_textfile(loader, work / "metrics.prom", labels={"rank": 0})
    loader.on_stats(lambda stats, batch: loader.explain(), 100)
    server = metrics.serve(loader, port=0)
    done = threading.Event()

    def scrape() -> None:
        while not done.wait(1):
            urllib.request.urlopen(server.address).read()

    client = threading.Thread(target=scrape)
    client.start()
    try:
        with metrics.trace(loader, work / "trace.json") if traced else contextlib.nullcontext():
            yield
    finally:
        done.set()
        client.join()
        server.close()


def epoch(data: pathlib.Path, work: pathlib.Path, way: str) -> tuple[float, float]:
    """CPU seconds and seconds of an epoch."""
    from shardmill import StreamingDataLoader, StreamingDataset

    loader = StreamingDataLoader(StreamingDataset(local=str(data), batch_size=BATCH, shuffle=True), batch_size=BATCH)
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    with exported(loader, work, way == "traced") if way != "plain" else contextlib.nullcontext():
        for _ in loader:
            time.sleep(STEP)
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, time.perf_counter() - start


def calls(data: pathlib.Path, work: pathlib.Path) -> dict[str, float]:
    """CPU seconds of one call of each export. A scrape includes its client."""
    from shardmill import StreamingDataLoader, StreamingDataset, metrics

    loader = StreamingDataLoader(StreamingDataset(local=str(data), batch_size=BATCH, shuffle=True), batch_size=BATCH)
    metrics.write_textfile(loader, work / "metrics.prom", every=1, labels={"rank": 0})
    batches = iter(loader)

    def cost(call: Any, number: int = 500) -> float:
        call()
        before = time.process_time()
        for _ in range(number):
            call()
        return (time.process_time() - before) / number

    with_textfile = cost(lambda: next(batches))
    alone = iter(StreamingDataLoader(StreamingDataset(local=str(data), batch_size=BATCH, shuffle=True), batch_size=BATCH))
    without = cost(lambda: next(alone))
    server = metrics.serve(loader, port=0)
    try:
        scrape = cost(lambda: urllib.request.urlopen(server.address).read())
    finally:
        server.close()
    return {"textfile": with_textfile - without, "scrape": scrape, "explain": cost(loader.explain)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=pathlib.Path, help="write the results here")
    options = parser.parse_args()
    ways = ("plain", "metrics", "traced")
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory(prefix="metrics-cost-") as name:
        work = pathlib.Path(name)
        make(work / "data")
        once = calls(work / "data", work)
        epoch(work / "data", work, "plain")
        for number in range(options.rounds):
            # In turns, so that other load on the machine is shared.
            for way in ways[number % 3 :] + ways[: number % 3]:
                found[way].append(epoch(work / "data", work, way))
    report: dict[str, Any] = {"machine": measure.machine(), "rounds": options.rounds}
    for way in ways:
        cpu, wall = (statistics.median(values) for values in zip(*found[way]))
        more = statistics.median(a[0] - b[0] for a, b in zip(found[way], found["plain"])) / wall
        report[way] = {"cpu_seconds": cpu, "seconds": wall, "more_cpu_of_a_core": more}
        print(f"{way:8} CPU {cpu:6.3f} s of {wall:6.2f} s   more: {more:7.2%} of a core")
    # The textfile and `explain()` every 100 batches, a scrape every second.
    seconds = report["plain"]["seconds"]
    share = (once["textfile"] + once["explain"]) * (SAMPLES // BATCH // 100) / seconds + once["scrape"]
    report["calls"] = {**once, "share_of_a_core": share}
    print(", ".join(f"{name} {cost * 1e3:.3f} ms" for name, cost in once.items()) + f": {share:.2%} of a core")
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
