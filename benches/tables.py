"""Measures a shuffled stream over Parquet files beside Hugging Face datasets, LitData and sequential scans.

    python benches/tables.py --server target/release/remote_speed [--rows 1000000] [--rounds 3] [--latency-ms 30]

The files are local, and in an S3 server on the loopback device that answers after `--latency-ms`. Every contender is a process of
its own in each round and reads batches of 256 rows of all columns. Prints the median of the rows in a second, after the first
batch's time.

* `table` is `StreamingDataset(format='parquet')` without workers; `table, epoch 2` its second epoch.
* `table, nulls` has nulls in a tenth of the texts and labels, which batches hold as masks. `table, where` reads the tenth of the
  rows that meet a condition, which is evaluated before the first batch.
* `mds, epoch 2` is a dataset of MDS shards with the same samples in each shard, in its second epoch.
* `start` opens the same table twice: without anything on the disk, and with the footers but without rows. Prints the seconds to
  the first batch, and the requests of the first start.
* `datasets` is `load_dataset('parquet', streaming=True).shuffle(buffer_size=10_000)`, over HTTP if it is remote.
* `litdata` is `StreamingDataset(item_loader=ParquetLoader(), shuffle=True)` with its loader, over S3 if it is remote.
* `parquet-rs` and `pyarrow` scan the local files on one thread, in stored order, without making samples.

Needs torch, pyarrow, datasets, litdata and arro3-io, and boto3 for remote litdata.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

CHILD = """
import glob, json, sys, time
who, place, work, files = sys.argv[1:5]
files = int(files)
BATCH = 256

def open_table():
    more = {'table, nulls': {'nulls': 'mask'}, 'table, where': {'where': 'label < 100'}}.get(who, {})
    data = StreamingDataset(
        remote=place, local=work + '/cache', format='parquet', shuffle=True, batch_size=BATCH, shuffle_seed=3, **more
    )
    return StreamingDataLoader(data, batch_size=BATCH)

def open_mds():
    data = StreamingDataset(remote=place, local=work + '/cache', shuffle=True, batch_size=BATCH, shuffle_seed=3)
    return StreamingDataLoader(data, batch_size=BATCH)

def open_datasets():
    names = [f'{place}/part-{number:05}.parquet' for number in range(files)]
    data = datasets.load_dataset('parquet', data_files=names, split='train', streaming=True, cache_dir=work + '/hf')
    return data.shuffle(seed=3, buffer_size=10_000).with_format('torch').iter(BATCH)

def open_litdata():
    options = {'endpoint_url': os.environ['AWS_ENDPOINT_URL']} if place.startswith('s3:') else {}
    data = litdata.StreamingDataset(
        place, item_loader=ParquetLoader(), shuffle=True, seed=3, cache_dir=work + '/lit', storage_options=options,
        index_path=work + '/index',
    )
    return litdata.StreamingDataLoader(data, batch_size=BATCH)

def measure_start():
    import glob, os
    found = []
    for _ in range(2):
        begin = time.perf_counter()
        loader = open_table()
        next(iter(loader))
        found.append(time.perf_counter() - begin)
        requests = loader.dataset.stats()['requests']
        found.append(requests)
        del loader
        for path in glob.glob(work + '/cache/row-group*'):
            os.remove(path)
    return found

def rows_of(batch):
    return len(batch['id'])

start = time.perf_counter()
if who in ('parquet-rs', 'pyarrow'):
    count = 0
    for path in sorted(glob.glob(place + '/*.parquet')):
        if who == 'pyarrow':
            import pyarrow.parquet as pq
            batches = pq.ParquetFile(path).iter_batches(use_threads=False)
        else:
            import arro3.io
            batches = arro3.io.read_parquet(path)
        count += sum(batch.num_rows for batch in batches)
    print(json.dumps([count, 0, time.perf_counter() - start]))
    sys.exit()
import os, torch
if who == 'datasets':
    import datasets
elif who != 'litdata':
    from shardmill import StreamingDataLoader, StreamingDataset
else:
    import litdata
    from litdata.streaming.item_loader import ParquetLoader
    from litdata.streaming.writer import index_parquet_dataset
    local = os.environ['LOCAL_TABLE']
    os.makedirs(work + '/index', exist_ok=True)
    index_parquet_dataset(local, work + '/index', num_workers=1)
if who == 'start':
    print(json.dumps(measure_start()))
    sys.exit()
start = time.perf_counter()
loader = globals()['open_' + who.split(',')[0]]()
epochs = 2 if who.endswith('epoch 2') else 1
for epoch in range(epochs):
    count, first, start = 0, None, start if epoch == 0 else time.perf_counter()
    for batch in loader:
        count += rows_of(batch)
        if first is None:
            first = time.perf_counter() - start
print(json.dumps([count, first, time.perf_counter() - start]))
"""


def make(folder: pathlib.Path, rows: int, files: int, groups: int, nulls: float = 0) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    draw = np.random.default_rng(1)
    words = np.array([draw.bytes(3).hex() for _ in range(2000)], dtype=object)
    folder.mkdir()
    each = rows // files
    for number in range(files):
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(draw.standard_normal(each * 16, dtype="f4")), 16)
        is_null = draw.random(each) < nulls
        table = pa.table({
            "id": np.arange(number * each, (number + 1) * each),
            "label": pa.array(draw.integers(0, 1000, each, dtype="i4"), mask=is_null),
            "text": pa.array([" ".join(draw.choice(words, 24)) for _ in range(each)], mask=is_null),
            "vector": vectors,
        })
        pq.write_table(table, folder / f"part-{number:05}.parquet", row_group_size=-(-each // groups), compression="zstd")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=16)
    parser.add_argument("--groups", type=int, default=4, help="row groups in each file")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--latency-ms", type=int, default=30)
    parser.add_argument("--only", nargs="*", help="names of contenders")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        data = pathlib.Path(work, "data")
        data.mkdir()
        table = data / "table"
        # In a process of its own, so that this one stays small.
        pid = os.fork()
        if pid == 0:
            make(table, args.rows, args.files, args.groups)
            if "table, nulls" in (args.only or ["table, nulls"]):
                make(data / "nulls", args.rows, args.files, args.groups, nulls=0.1)
            os._exit(0)
        if os.waitpid(pid, 0)[1]:
            sys.exit("the table was not written")
        wanted = args.only or ["mds, epoch 2"]
        per_shard = -(-(args.rows // args.files) // args.groups)
        convert = [sys.executable, "-m", "shardmill", "convert", str(table), str(data / "mds"), "--quiet"]
        if "mds, epoch 2" in wanted:
            subprocess.run([*convert, "--samples-per-shard", str(per_shard), "--size-limit", "2GiB"], check=True)
        words = [args.server, "serve", str(data), str(args.latency_ms), "1000000000"]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            endpoint = server.stdout.readline().strip()
            env = {
                **os.environ, "AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
                "AWS_REGION": "us-east-1", "LOCAL_TABLE": str(table), "HF_DATASETS_OFFLINE": "0",
            }
            runs = [
                ("table", str(table)), ("table, nulls", str(data / "nulls")), ("table, where", str(table)),
                ("table, epoch 2", str(table)), ("mds, epoch 2", str(data / "mds")),
                ("datasets", str(table)), ("litdata", str(table)), ("parquet-rs", str(table)), ("pyarrow", str(table)),
                ("table", "s3://bucket/table"), ("table, nulls", "s3://bucket/nulls"), ("table, where", "s3://bucket/table"),
                ("start", "s3://bucket/table"), ("datasets", f"{endpoint}/bucket/table"), ("litdata", "s3://bucket/table"),
            ]
            runs = [run for run in runs if not args.only or run[0] in args.only]
            found: dict[tuple[str, str], list[tuple[float, float]]] = {run: [] for run in runs}
            for _ in range(args.rounds):
                for who, place in runs:
                    with tempfile.TemporaryDirectory() as own:
                        command = [sys.executable, "-W", "ignore", "-c", CHILD, who, place, own, str(args.files)]
                        done = subprocess.run(command, env=env, text=True, capture_output=True)
                    if done.returncode:
                        print(f"{who} {place}: failed\n{done.stderr[-1500:]}")
                        continue
                    result = json.loads(done.stdout.splitlines()[-1])
                    if who == "start":
                        cold, requests, warm, more = result
                        print(f"start: cold {cold:.2f} s, {requests} requests; with footers {warm:.2f} s, {more} requests")
                        continue
                    rows, first, seconds = result
                    if rows < args.rows and who != "table, where":
                        print(f"{who} {place}: returned {rows} of {args.rows} rows")
                    found[who, place].append((rows / seconds, first))
            for (who, place), rounds in found.items():
                if rounds:
                    speed, first = (statistics.median(values) for values in zip(*rounds))
                    where = "local" if place.startswith("/") else "S3"
                    print(f"{who}, {where}: {speed:,.0f} rows/s, first batch after {first:.2f} s")
            server.stdin.close()


if __name__ == "__main__":
    main()
