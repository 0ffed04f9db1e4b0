"""Data frames that are scans of Parquet files: the same bytes as by Spark, and everything else left to it."""

from __future__ import annotations

import logging
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F
from test_dataframe_to_mds import read, tree

from shardmill.base.converters import _scan, dataframe_to_mds

LOGGER = "shardmill.base.converters.dataframe_to_mds"


def table(start, rows):
    """Every type that is read without Spark."""
    numbers = range(start, start + rows)
    return pa.table(
        {
            "flag": pa.array([number % 3 == 0 for number in numbers]),
            "byte": pa.array([number % 100 for number in numbers], pa.int8()),
            "short": pa.array(numbers, pa.int16()),
            "int": pa.array([-number for number in numbers], pa.int32()),
            "long": pa.array([number << 33 for number in numbers], pa.int64()),
            "float": pa.array([number / 4 for number in numbers], pa.float32()),
            "double": pa.array([number / 3 for number in numbers], pa.float64()),
            "decimal": pa.array([Decimal(number) / 8 for number in numbers], pa.decimal128(12, 3)),
            "text": pa.array([f"ä{number}" * (number % 4) for number in numbers]),
            "word": pa.array([str(number % 5) for number in numbers]).dictionary_encode(),
            "binary": pa.array([bytes([number % 256]) * (number % 5) for number in numbers], pa.large_binary()),
            "ints": pa.array([[number, -number] for number in numbers], pa.list_(pa.int32(), 2)),
            "doubles": pa.array([[number / 2] * (1 + number % 3) for number in numbers], pa.list_(pa.float64())),
            "words": pa.array([["a", str(number)] for number in numbers], pa.list_(pa.string())),
        }
    )


@pytest.fixture(autouse=True)
def any_width(monkeypatch):
    """Rows here are short."""
    monkeypatch.setattr(_scan, "_LEAST_ROW_BYTES", 0)


@pytest.fixture
def files(tmp_path):
    """A folder with two files of several row groups each."""
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(table(0, 1000), folder / "a.parquet", row_group_size=70)
    pq.write_table(table(1000, 300), folder / "b.parquet", row_group_size=300)
    return folder


@pytest.fixture
def set_in(spark):
    """Changes settings of the session for a test."""
    before = {}

    def change(name, value):
        before.setdefault(name, spark.conf.get(name, None))
        spark.conf.set(name, value)

    yield change
    for name, value in before.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)


def is_read(data):
    return _scan.rows_of(data, data.columns) is not None


def convert(data, place, caplog, **arguments):
    """Writes a data frame; answers what Spark had to do after all, or `None`."""
    caplog.clear()
    with caplog.at_level(logging.INFO, LOGGER):
        dataframe_to_mds(data, mds_kwargs={"out": str(place), "hashes": ["sha256"], "size_limit": 9000, **arguments})
    left = [record.getMessage() for record in caplog.records if "left to Spark" in record.getMessage()]
    assert len(left) <= 1
    return left[0] if left else None


def both(data, tmp_path, set_in, caplog, **arguments):
    """The files that the tasks make of a data frame, which have to be those that they make of what Spark reads."""
    assert is_read(data)
    left = convert(data, tmp_path / "read", caplog, **arguments)
    set_in(_scan.SETTING, "false")
    assert not is_read(data)
    assert convert(data, tmp_path / "told", caplog, **arguments) is None
    assert tree(tmp_path / "read") == tree(tmp_path / "told")
    assert len(tree(tmp_path / "read")) > 2
    return left


@pytest.mark.parametrize("bytes_of_partition", ["9000", "40000", "128m"])
def test_direct_scan_writes_same_bytes_as_spark(spark, tmp_path, files, set_in, caplog, bytes_of_partition):
    set_in("spark.sql.files.maxPartitionBytes", bytes_of_partition)
    set_in("spark.sql.files.openCostInBytes", "0")
    data = spark.read.parquet(str(files))
    partitions = data.selectExpr("spark_partition_id() as p").distinct().count()
    assert partitions > 3 or bytes_of_partition == "128m"
    assert both(data, tmp_path, set_in, caplog, compression=None) is None
    assert sorted(int(sample["short"]) for sample in read(tmp_path / "read")) == list(range(1300))
    # A partition that has no row group's middle has no rows, and no folder.
    folders = [path for path in (tmp_path / "read").iterdir() if path.is_dir()]
    assert 1 <= len(folders) <= partitions


def test_plain_parquet_reads_are_scanned_directly(spark, files):
    one = str(files / "a.parquet")
    for path in (one, str(files), f"{files}/", f"file:{files}", f"file://{one}"):
        assert is_read(spark.read.parquet(path)), path
    data = spark.read.parquet(one)
    assert is_read(spark.read.format("parquet").load(one))
    assert is_read(spark.read.parquet(one, str(files / "b.parquet")))
    assert is_read(data.select("text", "int")), "some columns, in another order"
    assert is_read(data.alias("x"))


def test_transformed_data_frames_are_not_scanned_directly(spark, files):
    data = spark.read.parquet(str(files / "a.parquet")).select("int", "long", "short")
    columns = ("int", "long", "short")
    assert is_read(data)
    for other in (
        data.filter("int < -3"),
        data.limit(3),
        data.sample(0.5, seed=1),
        data.distinct(),
        data.orderBy("int"),
        data.repartition(2),
        data.coalesce(1),
        data.union(data),
        data.withColumn("int", F.expr("int + 1")),
        data.withColumnRenamed("int", "integer"),
        data.selectExpr("int as long", "long as int", "short"),
        data.selectExpr("long as int", "int as long", "short"),
        data.selectExpr("cast(int as short) as int", "long", "short"),
        data.join(data.select("int"), "int"),
        spark.range(4).selectExpr("id as int", "id as long", "id as short"),
        spark.createDataFrame(data.limit(3).collect(), data.schema),
        spark.read.option("pathGlobFilter", "a*").parquet(str(files)).select(*columns),
    ):
        assert not is_read(other), other.columns


def test_swapped_column_names_are_not_scanned_directly(spark, tmp_path, files, caplog):
    """Spark compares plans without names: these two are the same to it."""
    data = spark.read.parquet(str(files)).select("int", "long", "short")
    other = data.selectExpr("int as short", "long as int", "short as long")
    assert not is_read(other)
    convert(other, tmp_path / "out", caplog)
    samples = [{name: int(value) for name, value in sample.items()} for sample in read(tmp_path / "out")]
    assert [sample["long"] for sample in sorted(samples, key=lambda sample: sample["long"])] == list(range(1300))
    assert all(sample["int"] == sample["long"] << 33 and sample["short"] == -sample["long"] for sample in samples)


def test_cached_data_frame_is_not_scanned_directly(spark, files):
    data = spark.read.parquet(str(files))
    before = data.select("int")
    assert is_read(before)
    data.cache()
    try:
        assert not is_read(data)
        assert not is_read(spark.read.parquet(str(files))), "the same plan"
        assert not is_read(data.select("int")), "taken from it"
        assert not is_read(before), "made before"
    finally:
        data.unpersist(blocking=True)
    assert is_read(data)


def test_setting_dependent_types_are_not_scanned_directly(spark, tmp_path, files):
    spark.read.parquet(str(files)).selectExpr("int", "date '2024-02-29' as day", "current_timestamp() as at").write.parquet(
        str(tmp_path / "days")
    )
    data = spark.read.parquet(str(tmp_path / "days"))
    assert not is_read(data)
    assert _scan.rows_of(data, ["int"]) is not None, "where they are not asked for"


def test_partition_folder_columns_are_converted(spark, tmp_path, files, caplog):
    spark.read.parquet(str(files)).selectExpr("int", "byte % 3 as third").write.partitionBy("third").parquet(
        str(tmp_path / "parted")
    )
    data = spark.read.parquet(str(tmp_path / "parted"))
    convert(data, tmp_path / "out", caplog)
    samples = read(tmp_path / "out")
    assert len(samples) == 1300
    assert {int(sample["third"]) for sample in samples} == {0, 1, 2}


def test_file_with_missing_column_is_left_to_spark(spark, tmp_path, files, caplog):
    pq.write_table(table(0, 10).drop_columns(["text"]), files / "c.parquet")
    data = spark.read.schema(spark.read.parquet(str(files / "a.parquet")).schema).parquet(str(files))
    assert is_read(data), "the files were not read"
    # Spark fills it with nulls, which the writer refuses.
    with pytest.raises(Exception, match="text"):
        convert(data, tmp_path / "out", caplog)
    left = convert(data.select("int"), tmp_path / "one", caplog)
    assert left is None
    assert len(read(tmp_path / "one")) == 1310


def test_file_with_other_column_type_is_left_to_spark(spark, tmp_path, set_in, caplog):
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(pa.table({"number": pa.array(range(100), pa.int64())}), folder / "a.parquet")
    pq.write_table(pa.table({"number": pa.array(range(100), pa.uint32())}), folder / "b.parquet")
    data = spark.read.schema("number long").parquet(str(folder))
    left = both(data, tmp_path, set_in, caplog)
    assert "column number is uint32, not int64" in left
    assert sorted(int(sample["number"]) for sample in read(tmp_path / "read")) == sorted([*range(100), *range(100)])
    # The ordinary way has left nothing of the first.
    assert {path.name for path in (tmp_path / "read").iterdir() if path.name.startswith(".")} == set()


def test_column_names_in_other_case_are_left_to_spark(spark, tmp_path, set_in, caplog):
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(pa.table({"INT": pa.array(range(100), pa.int32())}), folder / "a.parquet")
    pq.write_table(pa.table({"int": pa.array(range(100), pa.int32())}), folder / "b.parquet")
    data = spark.read.schema("INT int").parquet(str(folder))
    left = both(data, tmp_path, set_in, caplog)
    assert "has not just one column INT" in left
    assert not is_read(spark.read.schema("Int int").parquet(str(folder))), "the first file says so"


def test_short_rows_are_not_scanned_directly(spark, files, monkeypatch):
    data = spark.read.parquet(str(files)).select("int", "long")
    assert is_read(data)
    for least, is_wide in ((11, True), (20, False)):
        monkeypatch.setattr(_scan, "_LEAST_ROW_BYTES", least)
        assert is_read(data) == is_wide


def test_parquet_files_without_rows_are_an_error(spark, tmp_path, files):
    for path in files.iterdir():
        path.unlink()
    pq.write_table(table(0, 0), files / "a.parquet")
    data = spark.read.parquet(str(files))
    with pytest.raises(ValueError, match="None or Empty"):
        dataframe_to_mds(data, mds_kwargs={"out": str(tmp_path / "out")})
    assert not list((tmp_path / "out").iterdir())


def test_uri_escaped_paths_are_left_to_spark(spark, tmp_path, set_in, caplog):
    folder = tmp_path / "a b%20c"
    folder.mkdir()
    pq.write_table(table(0, 20), folder / "ä.parquet")
    data = spark.read.parquet(str(folder))
    assert not is_read(data)
    assert convert(data, tmp_path / "out", caplog) is None
    assert len(read(tmp_path / "out")) == 20


def test_null_in_direct_scan_is_an_error(spark, tmp_path, files, caplog):
    pq.write_table(pa.table({"int": pa.array([1, None, 3], pa.int32())}), files / "a.parquet")
    data = spark.read.parquet(str(files / "a.parquet"))
    assert is_read(data)
    with pytest.raises(Exception, match="int"):
        convert(data, tmp_path / "out", caplog)
    assert not list((tmp_path / "out").glob("[!.]*"))


def test_file_damaged_after_planning_is_an_error(spark, tmp_path, files, caplog):
    """What Spark would stumble over is not ignored."""
    path = files / "b.parquet"
    data = spark.read.parquet(str(path))
    content = bytearray(path.read_bytes())
    at = pq.ParquetFile(path).metadata.row_group(0).column(8).data_page_offset
    content[at : at + 40] = b"\xff" * 40
    path.write_bytes(content)
    with pytest.raises(Exception):  # noqa: B017
        convert(data, tmp_path / "out", caplog)
    assert not list((tmp_path / "out").glob("[!.]*"))


def test_rows_are_grouped_into_consecutive_runs():
    def batch(*rows):
        return pa.RecordBatch.from_pydict({"file": [file for file, _ in rows], "row": [row for _, row in rows]})

    found = _scan._runs([batch(("a", 5), ("a", 6)), batch(("a", 7), ("a", 9), ("b", 10), ("b", 11)), batch(("b", 12), ("a", 0))])
    assert found == [("a", [(5, 8), (9, 10)]), ("b", [(10, 13)]), ("a", [(0, 1)])]


def test_partial_row_groups_are_rejected(files):
    wanted = pa.schema([("int", pa.int32())])
    uri = f"file:{files}/a.parquet"
    assert _scan._piece(uri, [(70, 210), (0, 70)], wanted).row_groups == [1, 2, 0]
    for spans in ([(0, 69)], [(1, 70)], [(0, 71)], [(980, 1001)]):
        with pytest.raises(_scan.UnfitError, match="whole row groups"):
            _scan._piece(uri, spans, wanted)
    with pytest.raises(_scan.UnfitError, match="no file"):
        _scan._piece("s3a://bucket/a.parquet", [(0, 70)], wanted)
    with pytest.raises(_scan.UnfitError, match="not just one column"):
        _scan._piece(uri, [(0, 70)], pa.schema([("Int", pa.int32())]))
