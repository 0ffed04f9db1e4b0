"""Data frames of Parquet become MDS: shardmill beside mosaicml-streaming and beside what Spark takes for itself.

    PYTHONPATH=python .cache/venv-bench-spark/bin/python benches/spark_convert.py --inputs .cache/bench-inputs --json out.json

One session, `local[2]`, its settings as they come. All are given the same data frame and the same arguments, by turns, after a
round that does not count. Times are those of whole calls, without the start of Spark:

    floor: job          a job in Python that does nothing, which every way of writing from Python contains
    floor: read         Spark reads the files and drops the rows
    floor: mapInArrow   Spark reads the files and hands batches to Python, which drops them
    mosaicml-streaming  its `dataframe_to_mds`
    batches             ours
    data source         `frame.write.format("shardmill")`

and, for ours, the share of the time of the tasks in which they waited for the writer. Beside the time stands the processor time of
the driver, Spark and its tasks together, which other work on the machine changes little.
"""

import argparse
import json
import logging
import os
import shutil
import statistics
import sys
import tempfile
import time
import uuid
from pathlib import Path

os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

from pyspark.sql import SparkSession  # noqa: E402

from shardmill import spark as source  # noqa: E402
from shardmill.base.converters import dataframe_to_mds  # noqa: E402

THEIRS = "mosaicml-streaming"


class Timed(source._ArrowWriter):
    """Notes the time of a task, and how much of it was not spent waiting for Spark."""

    def write(self, iterator):
        waited = 0.0

        def batches():
            nonlocal waited
            inner = iter(iterator)
            while True:
                start = time.perf_counter()
                batch = next(inner, None)
                waited += time.perf_counter() - start
                if batch is None:
                    return
                yield batch

        start = time.perf_counter()
        message = super().write(batches())
        seconds = time.perf_counter() - start
        Path(self.notes, uuid.uuid4().hex).write_text(json.dumps([seconds, seconds - waited]))
        return message


class TimedSource(source.ShardmillDataSource):
    """The data source, with notes."""

    @classmethod
    def name(cls):
        return "shardmill-timed"

    def writer(self, schema, overwrite):
        notes = self.options["storage.notes"]
        writer = super().writer(schema, overwrite)
        writer.__class__ = Timed
        writer.notes = notes
        return writer

    def _storage(self):
        return None


class Shares(logging.Handler):
    """What `dataframe_to_mds` logs of its tasks."""

    def emit(self, record):
        if "in tasks" in record.msg:
            self.share = record.args[2] / 100


def dropped(batches):
    import pyarrow as pa

    rows = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_pydict({"rows": [rows]})


class Bench:
    def __init__(self, spark):
        from streaming.base.converters import dataframe_to_mds as theirs

        self.spark = spark
        self.theirs = theirs
        self.shares = Shares(logging.INFO)
        logger = logging.getLogger("shardmill.base.converters.dataframe_to_mds")
        logger.setLevel(logging.INFO)
        logger.propagate = False
        logger.addHandler(self.shares)

    def ways(self, frame, compression):
        """What is timed, by name: a function of a folder, which answers the share of the writer."""
        arguments = {"compression": compression, "hashes": ["sha256"] if compression else None}

        def job(folder):
            self.spark.range(0, 2, 1, 2).mapInArrow(dropped, "rows long").collect()

        def read(folder):
            frame.write.format("noop").mode("overwrite").save()

        def arrow(folder):
            frame.mapInArrow(dropped, "rows long").collect()

        def mosaic(folder):
            self.theirs(frame, merge_index=True, mds_kwargs={"out": f"{folder}/out", **arguments})

        def ours(folder):
            dataframe_to_mds(frame, merge_index=True, mds_kwargs={"out": f"{folder}/out", **arguments})
            return self.shares.share

        def data_source(folder):
            os.mkdir(f"{folder}/notes")
            options = {"compression": compression, "hashes": "sha256"} if compression else {}
            writer = frame.write.format("shardmill-timed").option("storage.notes", f"{folder}/notes")
            writer.options(**options).mode("append").save(f"{folder}/out")
            notes = [json.loads(path.read_text()) for path in Path(folder, "notes").iterdir()]
            return sum(writing for _, writing in notes) / sum(seconds for seconds, _ in notes)

        return {
            "floor: job": job,
            "floor: read": read,
            "floor: mapInArrow": arrow,
            THEIRS: mosaic,
            "batches": ours,
            "data source": data_source,
        }


def processor_seconds():
    """What this process and all that come from it have taken."""
    fields = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields[int(path.parent.name)] = path.read_text().rpartition(")")[2].split()
        except OSError:
            # It has ended.
            continue
    ours = {os.getpid()}
    while more := {pid for pid, each in fields.items() if int(each[1]) in ours} - ours:
        ours |= more
    ticks = sum(sum(map(int, fields[pid][11:15])) for pid in ours if pid in fields)
    return ticks / os.sysconf("SC_CLK_TCK")


def timed(way):
    with tempfile.TemporaryDirectory() as folder:
        before = processor_seconds()
        start = time.perf_counter()
        share = way(folder)
        seconds = time.perf_counter() - start, processor_seconds() - before
        index = Path(folder, "out", "index.json")
        shards = json.loads(index.read_text())["shards"] if index.exists() else None
        samples = shards and sum(shard["samples"] for shard in shards)
        return seconds, share, samples


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=Path, required=True)
    parser.add_argument("--names", nargs="+", default=["tokens", "text"])
    parser.add_argument("--compressions", nargs="+", default=["none", "zstd:3"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(TimedSource)
    logging.getLogger("streaming").setLevel(logging.ERROR)
    bench = Bench(spark)
    results = []
    for name in options.names:
        frame = spark.read.parquet(str(options.inputs / f"{name}.parquet"))
        for compression in (None if each == "none" else each for each in options.compressions):
            ways = bench.ways(frame, compression)
            seconds = {way: [] for way in ways}
            processors = {way: [] for way in ways}
            shares = {way: [] for way in ways}
            counts = set()
            for round_number in range(options.rounds + 1):
                for way, run in ways.items():
                    (took, processor), share, samples = timed(run)
                    counts |= {samples} - {None}
                    if round_number:
                        seconds[way].append(took)
                        processors[way].append(processor)
                        shares[way] += [] if share is None else [share]
            assert len(counts) == 1, counts
            medians = {way: statistics.median(each) for way, each in seconds.items()}
            results.append(
                {
                    "input": name,
                    "compression": compression,
                    "seconds": seconds,
                    "processor_seconds": processors,
                    "shares": shares,
                    "samples": counts.pop(),
                }
            )
            print(f"{name}, {compression or 'plain'}, {options.rounds} rounds, medians")
            for way, median in medians.items():
                ratio = f"{medians[THEIRS] / median:5.1f} times"
                share = f"  writer {statistics.median(shares[way]):4.0%}" if shares[way] else ""
                low, high = min(seconds[way]), max(seconds[way])
                processor = statistics.median(processors[way])
                print(f"  {way:20}{median:6.2f} s  ({low:.2f} to {high:.2f})  {ratio}  processor {processor:5.2f} s{share}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    spark.stop()
    shutil.rmtree("spark-warehouse", ignore_errors=True)


if __name__ == "__main__":
    main()
