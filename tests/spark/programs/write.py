"""A driver that writes a dataset, with a task that sleeps or a driver that is killed.

    python write.py PLACE sleep|kill-append|kill-overwrite NOTES
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import SparkSession

from shardmill.spark import ShardmillDataSource, _ArrowWriter

PLACE, WHAT, NOTES = sys.argv[1], sys.argv[2], Path(sys.argv[3])


class KilledWriter(_ArrowWriter):
    """The driver is gone before the commit."""

    def commit(self, messages):
        pid = os.getppid()
        while Path(f"/proc/{pid}/comm").read_text().strip() != "java":
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        (self.notes / "killed").write_text(str(len(messages)))
        os.kill(pid, signal.SIGKILL)
        time.sleep(60)


class KilledSource(ShardmillDataSource):
    """As the data source, without its commit."""

    notes = NOTES

    def writer(self, schema, overwrite):
        writer = super().writer(schema, overwrite)
        killed = KilledWriter(writer.staging, writer.layout)
        killed.notes = self.notes
        return killed


def sleepy(notes):
    def run(batches):
        for batch in batches:
            if 0 not in batch.column("id").to_pylist():
                yield batch
                continue
            note = notes / f"attempt-{TaskContext.get().taskAttemptId()}"
            is_first = not list(notes.glob("attempt-*"))
            note.write_text("")
            # Some of it is written before the task falls asleep.
            yield batch.slice(0, 20)
            if is_first:
                time.sleep(120)
            yield batch.slice(20)

    return run


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def cluster():
    """A master and two workers. Spark speculates only on another host than that of the first attempt."""
    import pyspark

    tool = Path(pyspark.__file__).parent / "bin" / "spark-class"
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    commands = [[f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]]
    for host in ("127.0.0.1", "127.0.0.2"):
        sizes = ["--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", str(NOTES / f"work-{host}")]
        commands.append([f"{deploy}.worker.Worker", "--host", host, *sizes, master])
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_LOCAL_IP"}
    running = [subprocess.Popen([str(tool), *command], env=environment) for command in commands]
    try:
        yield master
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait()


def write(builder, source, data_of):
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    spark.dataSource.register(source)
    data = data_of(spark.range(0, 100, 1, 3).selectExpr("id", "cast(id as string) as text"))
    mode = "append" if WHAT == "sleep" else WHAT.partition("-")[2]
    data.write.format("shardmill").option("size_limit", 300).mode(mode).save(PLACE)
    spark.stop()


def main():
    builder = SparkSession.builder
    if WHAT != "sleep":
        write(builder.master("local[2]"), KilledSource, lambda data: data)
        return
    settings = {
        "spark.cores.max": "2",
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.minTaskRuntime": "500ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.3",
    }
    with cluster() as master:
        write(
            builder.master(master).config(map=settings),
            ShardmillDataSource,
            lambda data: data.mapInArrow(sleepy(NOTES), data.schema),
        )


if __name__ == "__main__":
    main()
