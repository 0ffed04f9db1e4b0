"""`convert --to parquet`: pyarrow and datasets read what was written, and MDS comes back as it was."""

import datetime
from decimal import Decimal

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from streaming import LocalDataset, MDSWriter


def table(rows=2000):
    numbers = range(rows)
    return pa.table(
        {
            "z": pa.array(numbers, pa.int64()),
            "text": [None if i % 7 == 0 else f"row {i} ☃" * (i % 9) for i in numbers],
            "blob": pa.array([bytes([i % 256]) * (i % 300) for i in numbers], pa.binary()),
            "half": pa.array([np.float16(i % 1000) for i in numbers], pa.float16()),
            "tokens": pa.array([[1, 2, i] if i % 5 else None for i in numbers], pa.list_(pa.int32())),
            "nested": pa.array([{"a": i, "b": [None, str(i)]} if i % 3 else None for i in numbers]),
            "pair": pa.array([[i, 2.0] for i in numbers], pa.list_(pa.float32(), 2)),
            "decimal": pa.array([Decimal(i) / 4 for i in numbers], pa.decimal128(12, 2)),
            "time": pa.array([datetime.datetime(2024, 1, 1) + datetime.timedelta(i) for i in numbers], pa.timestamp("us", "UTC")),
            "long": pa.array([str(i) for i in numbers], pa.large_string()),
            "nothing": pa.nulls(rows),
        }
    )


@pytest.mark.parametrize("compression", ["zstd:3", "snappy", "gz:1", "br:1", "none"])
def test_pyarrow_reads_equal_values_and_types(convert, tmp_path, compression):
    expected = table()
    (tmp_path / "in").mkdir()
    pq.write_table(expected.slice(0, 1500), tmp_path / "in" / "a.parquet", row_group_size=400)
    pq.write_table(expected.slice(1500), tmp_path / "in" / "b.parquet")
    options = ["--to=parquet", "--size-limit=150KiB", "--row-group-size=40KiB", f"--compression={compression}"]
    convert(tmp_path / "in", tmp_path / "out", *options)
    found = pq.read_table(tmp_path / "out")
    assert found.schema.equals(expected.schema)
    assert found.equals(expected)
    file = pq.ParquetFile(sorted((tmp_path / "out").glob("*.parquet"))[0])
    column = file.metadata.row_group(0).column(0)
    assert file.num_row_groups > 1 and column.has_offset_index and column.has_column_index


def test_hugging_face_datasets_reads_parquet_output(convert, tmp_path):
    expected = table()
    pq.write_table(expected, tmp_path / "in.parquet")
    out = tmp_path / "out"
    convert(tmp_path / "in.parquet", out, "--to=parquet", "--samples-per-shard=700")
    cache = str(tmp_path / "cache")
    ways = [("parquet", {"data_dir": str(out)}), ("parquet", {"data_files": f"{out}/*.parquet"}), (str(out), {})]
    for path, more in ways:
        found = datasets.load_dataset(path, split="train", cache_dir=cache, **more)
        assert found.num_rows == 2000
        assert found[1234] == expected.slice(1234, 1).to_pylist()[0]
    stream = datasets.load_dataset("parquet", data_dir=str(out), split="train", streaming=True)
    assert [row["z"] for row in stream] == list(range(2000))


def test_mds_round_trips_through_parquet(convert, tmp_path):
    columns = {
        "bytes": "bytes",
        "fixed": "ndarray:float32:2,3",
        "free": "ndarray",
        "int": "int",
        "json": "json",
        "str": "str",
        "tokens": "ndarray:uint16",
    }
    rng = np.random.default_rng(5)
    samples = [
        {
            "bytes": rng.bytes(i % 50),
            "fixed": rng.random((2, 3), np.float32),
            "free": rng.integers(0, 9, (1 + i % 3, 1 + i % 4), np.int64),
            "int": i - 100,
            "json": {"n": i, "t": None},
            "str": f"é{i}",
            "tokens": rng.integers(0, 1 << 16, 1 + i % 90, np.uint16),
        }
        for i in range(200)
    ]
    with MDSWriter(out=str(tmp_path / "mds"), columns=columns, hashes=["sha1"]) as out:
        for sample in samples:
            out.write(sample)
    convert(tmp_path / "mds", tmp_path / "table", "--to=parquet", "--samples-per-shard=64", "--row-group-size=2KiB")
    found = pq.read_table(tmp_path / "table")
    fixed = pa.list_(pa.field("element", pa.list_(pa.field("element", pa.float32(), False), 3), False), 2)
    assert found.schema.field("fixed").type == fixed
    assert pa.types.is_uint16(found.schema.field("tokens").type.value_type)
    for row, sample in zip(found.to_pylist(), samples):
        assert (row["int"], row["str"], row["bytes"]) == (sample["int"], sample["str"], sample["bytes"])
        for name in ("fixed", "free", "tokens"):
            assert row[name] == sample[name].tolist(), name
    convert(tmp_path / "table", tmp_path / "back", "--compression=none")
    back = LocalDataset(str(tmp_path / "back"))
    assert len(back) == len(samples)
    for number, sample in enumerate(samples):
        for name, value in back[number].items():
            np.testing.assert_array_equal(value, sample[name])
            if isinstance(value, np.ndarray):
                assert value.dtype == sample[name].dtype


UNITS = ["s", "ms", "us", "ns"]
# What pyarrow itself writes and reads again: Parquet has no seconds and no dates of 64 bits.
TYPES = [
    *[pa.timestamp(unit, zone) for unit in UNITS for zone in (None, "UTC")],
    *[pa.duration(unit) for unit in UNITS],
    *[pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"), pa.date32(), pa.date64()],
    *[pa.list_(pa.timestamp("s")), pa.struct({"a": pa.date64(), "b": pa.time32("s")})],
    *[pa.map_(pa.string(), pa.date64()), pa.list_(pa.time32("s"), 2), pa.large_list(pa.date64())],
]


def numbers(data_type, rows):
    """Values of a type from the numbers of its rows; the second is null."""
    if pa.types.is_struct(data_type):
        return pa.StructArray.from_arrays([numbers(field.type, rows) for field in data_type], fields=list(data_type))
    if pa.types.is_map(data_type):
        keys = pa.array([str(n) for n in range(rows)])
        return pa.MapArray.from_arrays(pa.array(range(rows + 1), pa.int32()), keys, numbers(data_type.item_type, rows))
    if pa.types.is_fixed_size_list(data_type):
        return pa.FixedSizeListArray.from_arrays(numbers(data_type.value_type, 2 * rows), 2)
    if pa.types.is_nested(data_type):
        large = pa.types.is_large_list(data_type)
        offsets = pa.array(range(rows + 1), pa.int64() if large else pa.int32())
        made = pa.LargeListArray if large else pa.ListArray
        return made.from_arrays(offsets, numbers(data_type.value_type, rows))
    step = 86_400_000 if data_type == pa.date64() else 1
    integers = pa.int32() if data_type.bit_width == 32 else pa.int64()
    return pa.array([None if n == 1 else n * step for n in range(rows)], integers).view(data_type)


def test_dates_and_times_have_the_types_that_pyarrow_writes(convert, tmp_path):
    columns = {f"c{number}": numbers(data_type, 5) for number, data_type in enumerate(TYPES)}
    expected = pa.table(columns)
    pq.write_table(expected, tmp_path / "own.parquet")
    with pa.ipc.new_file(tmp_path / "in.arrow", expected.schema) as file:
        file.write_table(expected)
    convert(tmp_path / "in.arrow", tmp_path / "out", "--to=parquet")
    found, own = pq.read_table(tmp_path / "out"), pq.read_table(tmp_path / "own.parquet")
    for name in columns:
        assert str(found.schema.field(name).type).replace("item", "element") == str(own.schema.field(name).type)
        assert found[name].to_pylist() == own[name].to_pylist()


@pytest.mark.parametrize(
    ("data_type", "value", "shown"),
    [
        (pa.date64(), 86_400_001, "1970-01-02T00:00:00.001"),
        (pa.list_(pa.date64()), 86_400_001, "1970-01-02T00:00:00.001"),
        (pa.struct({"a": pa.date64()}), 86_400_001, "a value of type Struct"),
        (pa.timestamp("s"), 2**62, "the time 4611686018427387904 seconds from 1970-01-01"),
    ],
)
def test_date_or_time_that_parquet_does_not_have_is_an_error(convert, tmp_path, data_type, value, shown):
    leaf = data_type
    while pa.types.is_nested(leaf):
        leaf = leaf.field(0).type
    values = pa.array([0, value], pa.int64()).view(leaf)
    if pa.types.is_struct(data_type):
        values = pa.StructArray.from_arrays([values], fields=list(data_type))
    elif pa.types.is_list(data_type):
        values = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), values)
    with pa.ipc.new_file(tmp_path / "in.arrow", pa.schema({"x": data_type})) as file:
        file.write_table(pa.table({"x": values}))
    error = convert(tmp_path / "in.arrow", tmp_path / "out", "--to=parquet", status=3).stderr
    assert "value-range" in error and "row 1" in error and shown in error
