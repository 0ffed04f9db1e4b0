"""`dataframe_to_mds` in a real Spark: values, types, failures of tasks, and what is left of them."""

from __future__ import annotations

import decimal
import io
import json
import os
import subprocess
from collections import Counter
from datetime import date, datetime
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

from shardmill import LocalDataset
from shardmill.base.converters import dataframe_to_mds, infer_dataframe_schema, is_json_compatible

SCHEMA = StructType(
    [
        StructField("byte", ByteType()),
        StructField("short", ShortType()),
        StructField("int", IntegerType()),
        StructField("long", LongType()),
        StructField("float", FloatType()),
        StructField("double", DoubleType()),
        StructField("decimal", DecimalType(12, 3)),
        StructField("text", StringType()),
        StructField("binary", BinaryType()),
        StructField("flag", BooleanType()),
        StructField("day", DateType()),
        StructField("at", TimestampNTZType()),
        StructField("ints", ArrayType(IntegerType())),
        StructField("doubles", ArrayType(DoubleType(), containsNull=False)),
        StructField("words", ArrayType(StringType())),
        StructField("struct", StructType([StructField("a", LongType()), StructField("b", StringType())])),
        StructField("map", MapType(StringType(), IntegerType())),
    ]
)
ENCODINGS = {
    "byte": "uint8",
    "short": "uint16",
    "int": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "decimal": "str_decimal",
    "text": "str",
    "binary": "bytes",
    "flag": "uint8",
    "day": "str",
    "at": "str",
    "ints": "ndarray:int32",
    "doubles": "ndarray:float64",
    "words": "json",
    "struct": "json",
    "map": "json",
}


def row(number):
    return (
        number % 100,
        number,
        -number,
        number << 33,
        number / 4,
        number / 3,
        decimal.Decimal(number) / 8,
        f"ä{number}" * (number % 4),
        bytes([number % 256]) * (number % 5),
        number % 2 == 0,
        date(2024, 2, 1 + number % 28),
        datetime(2024, 2, 29, 1, 2, 3, number),
        [number, -number],
        [number / 2] * (1 + number % 3),
        ["a", str(number)],
        (number, "b"),
        {"k": number},
    )


def wanted(number):
    """What a row is as a sample, as text."""
    values = dict(zip(SCHEMA.names, row(number)))
    values["decimal"] = str(values["decimal"].quantize(decimal.Decimal("0.001")))
    values["flag"] = int(values["flag"])
    values["day"] = values["day"].isoformat()
    values["at"] = values["at"].isoformat()
    values["struct"] = {"a": number, "b": "b"}
    return shown(values)


def shown(sample):
    def plain(value):
        if isinstance(value, np.ndarray):
            return value.tolist()
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, bytes):
            return value.hex()
        if isinstance(value, decimal.Decimal):
            return str(value)
        if isinstance(value, str) and value.startswith("2024-02-29T01:02:03"):
            return datetime.fromisoformat(value).isoformat()
        return value

    return json.dumps({name: plain(value) for name, value in sample.items()}, sort_keys=True)


def frame(spark, rows=50, partitions=3):
    return spark.createDataFrame([row(number) for number in range(rows)], SCHEMA).repartition(partitions, "int")


def read(out):
    dataset = LocalDataset(str(out))
    return [dataset[place] for place in range(len(dataset))]


def tree(out):
    """The files of a dataset, by name."""
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}


def numbers_of(samples):
    return Counter(int(sample["long"]) for sample in samples)


def test_every_spark_type_is_converted(spark, tmp_path):
    data = frame(spark)
    assert infer_dataframe_schema(data) == ENCODINGS
    arguments = {"out": str(tmp_path / "out")}
    assert dataframe_to_mds(data, mds_kwargs=arguments) == (str(tmp_path / "out"), "")
    assert arguments == {"out": str(tmp_path / "out")}, "the caller's own"
    assert Counter(map(shown, read(tmp_path / "out"))) == Counter(wanted(number) for number in range(50))
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"00000", "00001", "00002", "index.json"}
    shards = json.loads((tmp_path / "out" / "index.json").read_text())["shards"]
    folders = [shard["zip_data"]["basename"].split("/")[0] for shard in shards]
    assert folders == sorted(folders), "by partition"


def test_equal_partitions_write_equal_bytes(spark, tmp_path):
    data = frame(spark, rows=200).coalesce(2).sortWithinPartitions("int")
    arguments = {"size_limit": 5000, "hashes": ["sha256"]}
    for name in ("a", "b"):
        dataframe_to_mds(data, mds_kwargs={"out": str(tmp_path / name), **arguments})
    assert tree(tmp_path / "a") == tree(tmp_path / "b")
    assert len(tree(tmp_path / "a")) > 8


def test_streaming_reads_dataframe_to_mds_output(spark, tmp_path, mosaic):
    dataframe_to_mds(frame(spark).select("long", "text", "ints"), mds_kwargs={"out": str(tmp_path / "out")})
    program = (
        "import sys, json\n"
        "from streaming import StreamingDataset\n"
        "data = StreamingDataset(local=sys.argv[1], batch_size=1)\n"
        "print(json.dumps(sorted([int(s['long']) >> 33, s['text'], s['ints'].tolist()] for s in data)))\n"
    )
    done = subprocess.run(
        [mosaic, "-c", program, str(tmp_path / "out")], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == [[number, f"ä{number}" * (number % 4), [number, -number]] for number in range(50)]


def test_without_merge_index_partitions_are_datasets(spark, tmp_path):
    dataframe_to_mds(frame(spark), merge_index=False, mds_kwargs={"out": str(tmp_path / "out")})
    assert not (tmp_path / "out" / "index.json").exists()
    parts = sorted((tmp_path / "out").iterdir())
    assert [part.name for part in parts] == ["00000", "00001", "00002"]
    assert sum((numbers_of(read(part)) for part in parts), Counter()) == numbers_of(
        {"long": number << 33} for number in range(50)
    )


def test_empty_partitions_are_skipped(spark, tmp_path):
    data = frame(spark, rows=40, partitions=8).filter("int = -7")
    dataframe_to_mds(data, mds_kwargs={"out": str(tmp_path / "out")})
    assert [int(sample["long"]) >> 33 for sample in read(tmp_path / "out")] == [7]


def test_output_is_uploaded_and_kept_by_keep_local(spark, tmp_path):
    out = (str(tmp_path / "local"), str(tmp_path / "remote"))
    assert dataframe_to_mds(frame(spark), mds_kwargs={"out": out, "keep_local": False}) == out
    assert not (tmp_path / "local").exists()
    assert len(read(tmp_path / "remote")) == 50
    # Without a word the local files stay, as with streaming; a list is as good as a tuple.
    for number, words in enumerate(({}, {"keep_local": True})):
        again = [str(tmp_path / f"kept{number}"), str(tmp_path / f"other{number}")]
        assert dataframe_to_mds(frame(spark), mds_kwargs={"out": again, **words}) == tuple(again)
        assert len(read(tmp_path / f"kept{number}")) == len(read(tmp_path / f"other{number}")) == 50


def test_times_are_equal_in_row_and_batch_encoding(spark, tmp_path):
    times = [
        "0001-01-01 00:00:00", "1890-03-01 12:00:00", "1960-05-05 01:02:03.12",
        "2024-02-29 01:02:03.000004", "2024-07-29 01:02:03", "9999-12-30 23:59:59.999999",
    ]
    rows = spark.createDataFrame([(n, time) for n, time in enumerate(times)], "n int, t string").selectExpr(
        "n", "cast(t as timestamp_ntz) as naive", "cast(t as timestamp) as zoned", "cast(t as date) as day", "binary(t) as blob"
    )
    zone = spark.conf.get("spark.sql.session.timeZone")
    plain = {"n": "int32", "naive": "str", "zoned": "str", "day": "str"}
    try:
        for name in ("UTC", "Europe/Berlin", "Europe/London"):
            spark.conf.set("spark.sql.session.timeZone", name)
            place = tmp_path / name.replace("/", "")
            dataframe_to_mds(rows, mds_kwargs={"out": str(place / "a"), "columns": {**plain, "blob": "bytes"}})
            native = [{key: sample[key] for key in plain} for sample in read(place / "a")]
            assert len(native) == len(times)
            dataframe_to_mds(
                rows.selectExpr("*", "string(n) as text"),
                mds_kwargs={"out": str(place / "b"), "columns": {**plain, "text": "json"}},
            )
            assert [{key: sample[key] for key in plain} for sample in read(place / "b")] == native
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def test_dots_and_backticks_in_column_names_are_supported(spark, tmp_path):
    rows = spark.range(0, 10, 1, 2).selectExpr("id as `a.b`", "string(id) as `c``d`", "binary(string(id)) as `e f`")
    for name, columns in (
        ("a", None),
        ("b", {"a.b": "int64", "c`d": "json", "e f": "bytes"}),
    ):
        dataframe_to_mds(rows, mds_kwargs={"out": str(tmp_path / name), "columns": columns})
        assert sorted((int(each["a.b"]), each["c`d"], each["e f"]) for each in read(tmp_path / name)) == [
            (number, str(number), str(number).encode()) for number in range(10)
        ]


def test_user_columns_set_encodings(spark, tmp_path):
    columns = {"text": "json", "binary": "bytes", "ints": "ndarray:int32:2", "map": "json", "long": "int64"}
    dataframe_to_mds(frame(spark), mds_kwargs={"out": str(tmp_path / "out"), "columns": columns, "compression": None})
    samples = sorted(read(tmp_path / "out"), key=lambda sample: sample["long"])
    assert len(samples) == 50
    for number, sample in enumerate(samples):
        assert sample.keys() == columns.keys()
        assert sample["text"] == f"ä{number}" * (number % 4), "a text in JSON"
        assert sample["map"] == {"k": number}
        assert sample["ints"].tolist() == [number, -number]


def test_error_lists_all_unsuitable_columns(spark, tmp_path):
    data = frame(spark).selectExpr("*", "make_dt_interval(1) as pause", "array(binary) as blobs")
    with pytest.raises(ValueError, match=r"`pause`.* is not supported by dataframe_to_mds.*`blobs`"):
        dataframe_to_mds(data, mds_kwargs={"out": str(tmp_path / "out")})
    columns = {"nowhere": "int", "int": "strr", "long": "int32", "text": "jpeg", "blobs": "json", "short": "uint16"}
    with pytest.raises(ValueError) as caught:
        dataframe_to_mds(data, mds_kwargs={"out": str(tmp_path / "out"), "columns": columns})
    for words in (
        "nowhere is not a column of input dataframe",
        "strr is not supported by dataframe_to_mds",
        "Mismatched types: column name `long`",
        "Non-binary col text cannot encode as jpeg",
        "blobs can not be encoded by MDS JSON",
    ):
        assert words in str(caught.value)
    assert "uint16" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_invalid_arguments_are_errors(spark, tmp_path):
    data = frame(spark)
    with pytest.raises(ValueError, match="None or Empty"):
        dataframe_to_mds(data.filter("int > 0"), mds_kwargs={"out": str(tmp_path / "out")})
    with pytest.raises(ValueError, match="`out`"):
        dataframe_to_mds(data)
    with pytest.raises(ValueError, match="udf_iterable"):
        dataframe_to_mds(data, mds_kwargs={"out": str(tmp_path / "out")}, udf_iterable=list)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("user data")
    with pytest.raises(FileExistsError):
        dataframe_to_mds(data, mds_kwargs={"out": str(tmp_path / "full")})
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["file"]


def doubled(frame, suffix):
    """A function of a user: two samples of each row."""
    for record in frame.to_dict("records"):
        for half in ("a", "b"):
            yield {"text": f"{record['int']}{half}{suffix}"}


def test_empty_columns_argument_is_an_error(spark, tmp_path):
    with pytest.raises(ValueError, match="`columns` names no column"):
        dataframe_to_mds(frame(spark, 3, 1), mds_kwargs={"out": str(tmp_path / "out"), "columns": {}})
    assert not (tmp_path / "out").exists()


def test_udf_iterable_generates_samples(spark, tmp_path):
    dataframe_to_mds(
        frame(spark).select("int"),
        mds_kwargs={"out": str(tmp_path / "out"), "columns": {"text": "str"}},
        udf_iterable=doubled,
        udf_kwargs={"suffix": "!"},
    )
    assert sorted(sample["text"] for sample in read(tmp_path / "out")) == sorted(
        f"{-number}{half}!" for number in range(50) for half in ("a", "b")
    )


def failing(frame, folder, times):
    """Fails in the middle of its first partition, the given number of times."""
    for place, record in enumerate(frame.to_dict("records")):
        if place == 3:
            tries = len(os.listdir(folder))
            if tries < times:
                Path(folder, str(tries)).write_text("")
                raise RuntimeError("a task that fails")
        yield {"long": record["int"]}


def test_task_is_retried_after_one_failure(request, spark, tmp_path):
    if request.config.getoption("--connect"):
        pytest.skip("the server of Spark Connect tries a task once")
    (tmp_path / "tries").mkdir()
    dataframe_to_mds(
        frame(spark).select("int"),
        mds_kwargs={"out": str(tmp_path / "out"), "columns": {"long": "int"}},
        udf_iterable=failing,
        udf_kwargs={"folder": str(tmp_path / "tries"), "times": 1},
    )
    assert len(list((tmp_path / "tries").iterdir())) == 1, "nothing failed"
    assert numbers_of(read(tmp_path / "out")) == Counter(-number for number in range(50))
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"00000", "00001", "00002", "index.json"}


def test_permanent_task_failure_leaves_no_dataset(spark, tmp_path):
    (tmp_path / "tries").mkdir()
    with pytest.raises(Exception, match="a task that fails"):
        dataframe_to_mds(
            frame(spark).select("int"),
            mds_kwargs={"out": str(tmp_path / "out"), "columns": {"long": "int"}},
            udf_iterable=failing,
            udf_kwargs={"folder": str(tmp_path / "tries"), "times": 1000},
        )
    # Attempts that went on for a moment may have left something, which does not count.
    assert all(path.name.startswith(".attempt-") for path in (tmp_path / "out").iterdir())
    # The place can be used again.
    dataframe_to_mds(frame(spark), mds_kwargs={"out": str(tmp_path / "out")})
    assert len(read(tmp_path / "out")) == 50


def test_null_value_is_an_error(spark, tmp_path):
    data = frame(spark).withColumn("hole", F.expr("if(int = -9, null, int)"))
    with pytest.raises(Exception, match="hole"):
        dataframe_to_mds(data, mds_kwargs={"out": str(tmp_path / "out")})
    assert not list((tmp_path / "out").glob("[!.]*"))


def test_binary_column_is_stored_as_png(spark, tmp_path):
    from PIL import Image

    data = io.BytesIO()
    Image.new("RGB", (4, 3), (1, 2, 3)).save(data, "PNG")
    rows = spark.createDataFrame([(bytearray(data.getvalue()),)], StructType([StructField("image", BinaryType())]))
    dataframe_to_mds(rows, mds_kwargs={"out": str(tmp_path / "out"), "columns": {"image": "png"}})
    (sample,) = read(tmp_path / "out")
    assert sample["image"].size == (4, 3)


def test_json_compatible_types_are_recognized():
    assert is_json_compatible(SCHEMA["struct"].dataType)
    assert is_json_compatible(ArrayType(MapType(StringType(), DoubleType())))
    assert not is_json_compatible(MapType(IntegerType(), StringType()))
    assert not is_json_compatible(StructType([StructField("a", BinaryType())]))
    assert not is_json_compatible(ArrayType(DateType()))
    assert not is_json_compatible(DayTimeIntervalType())
