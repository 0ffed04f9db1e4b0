"""The data source `shardmill` in a real Spark: modes, values, failures of tasks and of the driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("pyspark.sql.datasource", reason="PySpark before 4 has no data sources in Python")

# The store of the tests of the package.
sys.path.append(str(Path(__file__).parents[2] / "python" / "tests"))

from support.bucket import Bucket
from support.sweep import names, swept
from test_dataframe_to_mds import read, tree

from shardmill import parts
from shardmill.spark import ShardmillDataSource

#: A program that is a driver; its arguments are the place, what happens in it, and a folder for notes.
PROGRAM = Path(__file__).parent / "programs" / "write.py"


@pytest.fixture(scope="module", autouse=True)
def registered(spark):
    spark.dataSource.register(ShardmillDataSource)


def frame(spark, rows=100, partitions=3):
    return (
        spark.range(0, rows, 1, partitions)
        .selectExpr("id", "cast(id as string) as text", "array(id, -id) as pair", "cast(cast(id as string) as binary) as blob")
    )


def write(data, place, mode="append", **options):
    options = {"size_limit": "500", "hashes": "sha256,xxh64", **options}
    data.write.format("shardmill").options(**options).mode(mode).save(str(place))


def ids(place):
    return [int(sample["id"]) for sample in read(place)]


def listed(place):
    """The files that the index names, and itself."""
    shards = json.loads((place / "index.json").read_text())["shards"]
    return {"index.json"} | {(shard["zip_data"] or shard["raw_data"])["basename"] for shard in shards}


def test_written_data_frame_round_trips(spark, tmp_path):
    write(frame(spark), tmp_path / "out")
    assert ids(tmp_path / "out") == list(range(100)), "by partition, in its order"
    assert set(tree(tmp_path / "out")) == listed(tmp_path / "out")
    data = spark.read.format("shardmill").option("batch_size", 7).load(str(tmp_path / "out"))
    assert data.schema.simpleString() == "struct<blob:binary,id:bigint,pair:array<bigint>,text:string>"
    found = Counter((row.id, row.text, tuple(row.pair), bytes(row.blob)) for row in data.collect())
    assert found == Counter((n, str(n), (n, -n), str(n).encode()) for n in range(100))
    # A shard is a partition.
    assert data.selectExpr("spark_partition_id() as p").distinct().count() == len(listed(tmp_path / "out")) - 1
    # Columns that are not selected.
    assert data.selectExpr("sum(id) as s").collect()[0].s == sum(range(100))


def test_equal_partitions_write_equal_bytes(spark, tmp_path):
    for name in ("a", "b"):
        write(frame(spark), tmp_path / name, compression="zstd:1")
    assert tree(tmp_path / "a") == tree(tmp_path / "b")
    # And those that one process makes of them.
    import pyarrow as pa

    staging = parts.begin(str(tmp_path / "c"))
    schema = pa.schema([("id", pa.int64()), ("text", pa.string()), ("pair", pa.list_(pa.int64())), ("blob", pa.binary())])
    bounds = [(0, 33), (33, 66), (66, 100)]
    manifests = [
        parts.write_part(
            [pa.table([list(rows), [str(n) for n in rows], [[n, -n] for n in rows], [str(n).encode() for n in rows]], schema=schema)],
            staging,
            number,
            compression="zstd:1",
            hashes=["sha256", "xxh64"],
            size_limit=500,
        )
        for number, rows in enumerate(range(*bound) for bound in bounds)
    ]
    parts.commit(manifests, staging)
    assert tree(tmp_path / "a") == tree(tmp_path / "c")


def test_streaming_reads_data_source_output(spark, tmp_path, mosaic):
    write(frame(spark).select("id", "text"), tmp_path / "out", compression="zstd")
    program = (
        "import sys, json\n"
        "from streaming import StreamingDataset\n"
        "data = StreamingDataset(local=sys.argv[1], batch_size=1, shuffle=False, validate_hash='sha256')\n"
        "print(json.dumps([[int(s['id']), s['text']] for s in data]))\n"
    )
    done = subprocess.run(
        [mosaic, "-c", program, str(tmp_path / "out")], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert json.loads(done.stdout.splitlines()[-1]) == [[n, str(n)] for n in range(100)]


def test_exists_option_selects_append_error_or_ignore(spark, tmp_path):
    place = tmp_path / "out"
    write(frame(spark, 40), place)
    first = tree(place)
    write(frame(spark, 30), place)
    assert ids(place) == [*range(40), *range(30)]
    assert first.items() - tree(place).items() == {("index.json", first["index.json"])}, "nothing else was changed"
    with pytest.raises(Exception, match="there is a dataset already"):
        write(frame(spark), place, exists="error")
    before = tree(place)
    write(frame(spark), place, exists="ignore")
    assert tree(place) == before
    write(frame(spark, 10), tmp_path / "other", exists="ignore")
    assert ids(tmp_path / "other") == list(range(10))
    # Should a version of Spark take them, the options are not needed any more.
    for mode in ("error", "ignore"):
        with pytest.raises(Exception, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
            write(frame(spark), place, mode)
    write(frame(spark, 20), place, "overwrite")
    assert ids(place) == list(range(20))
    # Readers of the old dataset still find its shards, until they are collected.
    assert first.keys() < tree(place).keys()
    assert {entry.reason for entry in parts.gc(str(place), older_than=None)} == {"unlisted"}
    parts.gc(str(place), older_than=None, delete=True)
    assert set(tree(place)) == listed(place)
    assert ids(place) == list(range(20))
    # No rows are a dataset as well.
    write(frame(spark).filter("id < 0"), place, "overwrite")
    assert ids(place) == []


def test_data_source_writes_and_reads_webdataset(spark, tmp_path):
    data = frame(spark).select("text", "id", "blob")
    write(data, tmp_path / "out", to="webdataset", key="text", columns="id,blob", size_limit="20kb")
    names = set(tree(tmp_path / "out"))
    assert {"index.json", "shard-00000-000000.tar", "shard-00002-000001.tar.idx"} < names
    rows = spark.read.format("shardmill").load(str(tmp_path / "out")).collect()
    assert Counter((row["__key__"], bytes(row.blob)) for row in rows) == Counter((str(n), str(n).encode()) for n in range(100))
    # Keys that are numbers differ from part to part.
    write(frame(spark, 10).select("text"), tmp_path / "numbered", to="webdataset", shard_pattern="x-%03d.tar")
    rows = spark.read.format("shardmill").load(str(tmp_path / "numbered")).collect()
    assert len({row["__key__"] for row in rows}) == 10
    assert sorted(row.text for row in rows) == sorted(map(str, range(10)))


def test_invalid_columns_and_options_are_errors(spark, tmp_path):
    write(frame(spark), tmp_path / "out", columns='{"text": "bytes", "id": null}')
    assert read(tmp_path / "out")[7] == {"id": 7, "text": b"7"}
    for options, words in (
        ({"compresion": "zstd"}, "there is no option compresion"),
        ({"compression": "lzma"}, "lzma"),
        ({"to": "parquet"}, "neither mds nor webdataset"),
        ({"columns": "id,nowhere"}, "there is no column `nowhere`"),
        ({"exists": "replace"}, "none of append, error and ignore"),
    ):
        with pytest.raises(Exception, match=words):
            write(frame(spark), tmp_path / "other", **options)
        assert not tree(tmp_path / "other") if (tmp_path / "other").exists() else True
    with pytest.raises(Exception, match="index-missing"):
        # Spark Connect looks when it has to.
        spark.read.format("shardmill").load(str(tmp_path / "nowhere")).collect()


def test_null_value_is_an_error(spark, tmp_path):
    data = frame(spark).selectExpr("if(id = 70, null, id) as id")
    with pytest.raises(Exception, match="row 4 is null"):
        write(data, tmp_path / "out")
    assert not list((tmp_path / "out").rglob("*.mds"))
    assert not (tmp_path / "out" / "index.json").exists()


def failing(folder, times):
    """Fails in the middle of a partition, the given number of times."""

    def run(batches):
        for batch in batches:
            if 50 in batch.column("id").to_pylist():
                tries = len(os.listdir(folder))
                if tries < times:
                    yield batch.slice(0, 12)
                    Path(folder, str(tries)).write_text("")
                    raise RuntimeError("a task that fails")
            yield batch

    return run


def shaky(spark, folder, times):
    folder.mkdir()
    data = frame(spark)
    return data.mapInArrow(failing(str(folder), times), data.schema)


def test_task_is_retried_after_one_failure(request, spark, tmp_path):
    if request.config.getoption("--connect"):
        pytest.skip("the server of Spark Connect tries a task once")
    write(shaky(spark, tmp_path / "tries", 1), tmp_path / "out")
    assert len(list((tmp_path / "tries").iterdir())) == 1, "nothing failed"
    assert ids(tmp_path / "out") == list(range(100))
    assert set(tree(tmp_path / "out")) == listed(tmp_path / "out")
    write(frame(spark), tmp_path / "calm")
    assert tree(tmp_path / "out") == tree(tmp_path / "calm")


def test_permanent_task_failure_leaves_no_dataset(spark, tmp_path):
    with pytest.raises(Exception, match="a task that fails"):
        write(shaky(spark, tmp_path / "tries", 1000), tmp_path / "out")
    assert not (tmp_path / "out" / "index.json").exists()
    assert swept(str(tmp_path / "out"), lambda: names(tmp_path / "out"), set()) == set()
    write(frame(spark), tmp_path / "out")
    assert ids(tmp_path / "out") == list(range(100))


def test_data_source_writes_and_reads_s3(request, spark, tmp_path):
    bucket = Bucket()
    try:
        place = "s3://bucket/sets/tokens"
        storage = {f"storage.{name}": value for name, value in bucket.environment.items()}
        index = "sets/tokens/index.json"
        for count, mode in ((1, "append"), (2, "append")):
            write(frame(spark), place, mode, **storage)
            names = [shard["raw_data"]["basename"] for shard in json.loads(bucket.objects[index])["shards"]]
            assert set(bucket.objects) == {index, *(f"sets/tokens/{name}" for name in names)}
            rows = spark.read.format("shardmill").options(**storage).load(place).collect()
            assert Counter(row.id for row in rows) == Counter({number: count for number in range(100)})
        # The attempts of a job that fails are taken away, and the dataset stays as it is.
        before = dict(bucket.objects)
        with pytest.raises(Exception, match="a task that fails"):
            write(shaky(spark, tmp_path / "tries", 1000), place, "overwrite", **storage)
        left = swept(place, lambda: dict(bucket.objects), before, storage_options=bucket.environment)
        assert left.keys() == before.keys()
        assert left == before
        if not request.config.getoption("--connect"):
            write(shaky(spark, tmp_path / "once", 1), place, "overwrite", **storage)
            assert len(list((tmp_path / "once").iterdir())) == 1, "nothing failed"
            rows = spark.read.format("shardmill").options(**storage).load(place).collect()
            assert Counter(row.id for row in rows) == Counter(range(100))
    finally:
        bucket.close()


def run(place, what, notes):
    """A driver of its own; answers its status."""
    notes.mkdir(exist_ok=True)
    command = [sys.executable, str(PROGRAM), str(place), what, str(notes)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=notes, check=False)
    (notes / "log.txt").write_text(done.stdout + done.stderr)
    return done.returncode


def test_speculative_attempt_is_committed_once(request, tmp_path):
    if request.config.getoption("--connect"):
        pytest.skip("a program of its own")
    assert run(tmp_path / "out", "sleep", tmp_path / "notes") == 0, (tmp_path / "notes" / "log.txt").read_text()[-3000:]
    attempts = [path.name for path in (tmp_path / "notes").glob("attempt-*")]
    assert len(attempts) == 2, "there was no second attempt"
    assert ids(tmp_path / "out") == list(range(100))
    wanted = listed(tmp_path / "out")
    assert swept(str(tmp_path / "out"), lambda: names(tmp_path / "out"), wanted) == wanted
    assert ids(tmp_path / "out") == list(range(100))


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_driver_that_is_killed_before_the_commit(request, spark, tmp_path, mode):
    if request.config.getoption("--connect"):
        pytest.skip("a program of its own")
    place = tmp_path / "out"
    # The columns of the program.
    write(frame(spark, 10).select("id", "text"), place)
    before = tree(place)
    status = run(place, f"kill-{mode}", tmp_path / "notes")
    assert status != 0
    assert (tmp_path / "notes" / "killed").exists(), (tmp_path / "notes" / "log.txt").read_text()[-3000:]
    assert ids(place) == list(range(10)), "the dataset is what it was"
    left = parts.gc(str(place), older_than=None)
    assert {entry.reason for entry in left} == {"attempt"} and len(left) == 3
    # A new run neither minds nor takes what is left.
    write(frame(spark).select("id", "text"), place, mode)
    wanted = [*range(10), *range(100)] if mode == "append" else list(range(100))
    assert ids(place) == wanted
    parts.gc(str(place), older_than=None, delete=True)
    assert set(tree(place)) == listed(place)
    assert ids(place) == wanted
    if mode == "append":
        assert before.keys() < tree(place).keys()


def read_with(spark, place, schema, **options):
    return spark.read.format("shardmill").schema(schema).options(**options).load(str(place))


def test_user_schema_selects_and_casts_columns(spark, tmp_path):
    write(frame(spark, 10, 1), tmp_path / "out")
    found = read_with(spark, tmp_path / "out", "ID int, Text string")
    assert found.columns == ["ID", "Text"]
    assert sorted(map(tuple, found.collect())) == [(n, str(n)) for n in range(10)]
    assert found.count() == 10
    assert sorted(row.id for row in read_with(spark, tmp_path / "out", "id string").collect()) == sorted(map(str, range(10)))
    write(spark.range(1).selectExpr("5000000000 as id"), tmp_path / "large")
    with pytest.raises(Exception, match="column id: int64 cannot be read as int32"):
        read_with(spark, tmp_path / "large", "id int").collect()
    with pytest.raises(Exception, match="there is no column `nope`, only blob, id, pair, text"):
        read_with(spark, tmp_path / "out", "nope int").collect()


def test_read_and_write_options_are_checked_separately(spark, tmp_path):
    write(frame(spark, 10, 1), tmp_path / "out")
    for options, words in (
        ({"columns": "id"}, "there is no option columns"),
        ({"columsn": "id"}, "there is no option columsn"),
        ({"batch_size": "x"}, "`batch_size` must be a positive integer .*'x'"),
        ({"batch_size": "-3"}, "`batch_size` must be a positive integer .*'-3'"),
    ):
        with pytest.raises(Exception, match=words):
            spark.read.format("shardmill").options(**options).load(str(tmp_path / "out")).collect()
    for options, words in (
        ({"batch_size": "3"}, "there is no option batch_size"),
        ({"columns": "{bad"}, "columns: no JSON"),
        ({"columns": '{"id": 3}'}, "something else than names of encodings"),
        ({"samples_per_shard": "x"}, "`samples_per_shard` must be a positive integer .*'x'"),
        ({"samples_per_shard": "0"}, "`samples_per_shard` must be a positive integer .*'0'"),
    ):
        with pytest.raises(Exception, match=words):
            write(frame(spark, 10, 1), tmp_path / "other", **options)
    write(frame(spark, 10, 1), tmp_path / "same", compression="none", size_limit="1KiB", samples_per_shard="0.005k")
    shards = json.loads((tmp_path / "same" / "index.json").read_text())["shards"]
    assert [shard["samples"] for shard in shards] == [5, 5]


def test_append_with_other_columns_fails_before_tasks(spark, tmp_path):
    write(frame(spark, 10, 1).select("id"), tmp_path / "out")
    before = tree(tmp_path / "out")
    data = spark.range(10).selectExpr("cast(if(id = 0, raise_error('a task'), id) as int) as id")
    with pytest.raises(Exception, match=r"the dataset has id .int64., the job writes id .int32."):
        write(data, tmp_path / "out")
    assert tree(tmp_path / "out") == before


def test_damaged_data_is_an_error(spark, tmp_path):
    write(spark.range(3).selectExpr("unhex('ff') as txt"), tmp_path / "tar", to="webdataset")
    with pytest.raises(Exception, match="column txt: sample .* has something else than text in UTF-8"):
        spark.read.format("shardmill").load(str(tmp_path / "tar")).collect()
    write(frame(spark, 3, 1), tmp_path / "out")
    (tmp_path / "out" / "index.json").write_text("{")
    with pytest.raises(Exception, match="out.*index") as caught:
        spark.read.format("shardmill").load(str(tmp_path / "out")).collect()
    assert "/shardmill-" not in str(caught.value)
