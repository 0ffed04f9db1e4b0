"""How do transforms scale over threads?

    python threads.py [--rounds 5] [--json FILE]

Reads an epoch through a `get_item` that computes in Python, and through one that hashes, which releases the interpreter lock:
without workers, and with `worker_type='threads'` on two threads. On an ordinary interpreter, only the second can be faster. Run it
with a free-threaded one, too.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import pathlib
import statistics
import sys
import sysconfig
import tempfile
import time
from typing import Any

import measure

SAMPLES, BATCH, THREADS = 4_096, 16, 2


def make(folder: pathlib.Path) -> None:
    from shardmill import MDSWriter

    with MDSWriter(out=str(folder), columns={"number": "int", "data": "bytes"}) as out:
        for number in range(SAMPLES):
            out.write({"number": number, "data": bytes(16_384)})


def epoch(data: pathlib.Path, way: str, threads: int) -> float:
    """Samples in a second."""
    from shardmill import StreamingDataLoader, StreamingDataset

    class Transformed(StreamingDataset[Any]):
        def get_item(self, sample_id: int, retry: int = 7) -> Any:
            sample = super().get_item(sample_id, retry)
            if way == "python":
                return sum(number * number & 255 for number in range(8_000))
            return hashlib.pbkdf2_hmac("sha256", sample["data"], b"salt", 300)

    dataset = Transformed(local=str(data), batch_size=BATCH)
    loader = StreamingDataLoader(dataset, BATCH, num_workers=threads, worker_type="threads", collate_fn=list)
    start = time.perf_counter()
    assert sum(len(batch) for batch in loader) == SAMPLES
    return SAMPLES / (time.perf_counter() - start)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=pathlib.Path, help="write the results here")
    options = parser.parse_args()
    report: dict[str, Any] = {"machine": measure.machine(), "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED"))}
    with tempfile.TemporaryDirectory(prefix="threads-") as work:
        data = pathlib.Path(work) / "data"
        make(data)
        for way in ("python", "hash"):
            rounds = [(epoch(data, way, 0), epoch(data, way, THREADS)) for _ in range(options.rounds)]
            one, many = (statistics.median(values) for values in zip(*rounds))
            report[way] = {"one": one, "threads": many, "ratio": many / one}
            print(f"{way:7} {one:9,.0f} samples/s alone, {many:9,.0f} on {THREADS} threads: {many / one:.2f}x")
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
