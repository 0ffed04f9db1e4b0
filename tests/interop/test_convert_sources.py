"""Every kind of source, converted by ours and read back by the original."""

import csv
import datetime
import gzip
import io
import json
from decimal import Decimal

import numpy as np
import peer
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from PIL import Image
from streaming import LocalDataset


@pytest.fixture
def samples_of(convert, tmp_path):
    """Converts and reads back, scalars as Python values."""

    def samples_of(*args):
        convert(*args[:1], tmp_path / "ours", "--compression=none", *args[1:])
        dataset = LocalDataset(str(tmp_path / "ours"))
        return [{k: v.item() if isinstance(v, np.generic) else v for k, v in dataset[i].items()} for i in range(len(dataset))]

    return samples_of


def encodings(folder):
    shard = peer.index(folder)["shards"][0]
    return dict(zip(shard["column_names"], shard["column_encodings"]))


# --- Parquet ------------------------------------------------------------------------------------------------------


def test_parquet_folder_is_read_in_path_order(samples_of, tmp_path):
    for name, start in (("b/0.parquet", 20), ("a.parquet", 0), ("b/1.parquet", 30), ("aa.parquet", 10)):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"n": range(start, start + 10)}), tmp_path / "in" / name)
    for name in ("_SUCCESS", "_committed_1", ".hidden.parquet", "_temporary.parquet"):
        (tmp_path / "in" / name).write_bytes(b"not a table")
    assert [s["n"] for s in samples_of(tmp_path / "in")] == list(range(40))


def test_hive_partitions_become_columns(samples_of, tmp_path):
    table = pa.table({"n": range(12), "year": [2023, 2024, 2025] * 4, "lang": ["de", "en"] * 6})
    ds.write_dataset(table, tmp_path / "in", format="parquet", partitioning=["year", "lang"], partitioning_flavor="hive")
    found = samples_of(tmp_path / "in")
    assert {(s["n"], int(s["year"]), s["lang"]) for s in found} == set(zip(range(12), [2023, 2024, 2025] * 4, ["de", "en"] * 6))


def test_several_sources_keep_given_order(convert, tmp_path):
    for name in ("b", "a"):
        pq.write_table(pa.table({"name": [name] * 2}), tmp_path / f"{name}.parquet")
    convert(tmp_path / "b.parquet", tmp_path / "a.parquet", tmp_path / "ours", "--compression=none")
    dataset = LocalDataset(str(tmp_path / "ours"))
    assert [dataset[i]["name"] for i in range(4)] == ["b", "b", "a", "a"]


def test_arrow_types_without_mds_encoding_are_converted(samples_of, tmp_path):
    utc = datetime.timezone.utc
    moment = datetime.datetime(2024, 2, 29, 12, 30, 45, 123456)
    table = pa.table({
        "bool": pa.array([True, False]),
        "date": pa.array([datetime.date(2024, 2, 29), datetime.date(1969, 12, 31)]),
        "moment": pa.array([moment, datetime.datetime(1969, 12, 31, 23, 59, 59)], pa.timestamp("us")),
        "utc": pa.array([moment.replace(tzinfo=utc)] * 2, pa.timestamp("us", tz="UTC")),
        "time": pa.array([datetime.time(12, 30, 45, 123456), datetime.time(0, 0)], pa.time64("us")),
        "decimal": pa.array([Decimal("1.50"), Decimal("-0.01")]),
        "category": pa.array(["x", "y"]).dictionary_encode(),
        "fixed": pa.array([b"ab", b"cd"], pa.binary(2)),
    })  # fmt: skip
    pq.write_table(table, tmp_path / "in.parquet")
    first, second = samples_of(tmp_path / "in.parquet")
    assert (first["bool"], second["bool"]) == (1, 0)
    assert (first["date"], second["date"]) == ("2024-02-29", "1969-12-31")
    for name, values in (("moment", [moment, datetime.datetime(1969, 12, 31, 23, 59, 59)]), ("utc", [moment.replace(tzinfo=utc)] * 2)):
        assert [datetime.datetime.fromisoformat(s[name]) for s in (first, second)] == values
    assert [datetime.time.fromisoformat(s["time"]) for s in (first, second)] == [datetime.time(12, 30, 45, 123456), datetime.time(0, 0)]
    assert (first["decimal"], second["decimal"]) == (Decimal("1.50"), Decimal("-0.01"))
    assert (first["category"], second["category"]) == ("x", "y")
    assert (first["fixed"], second["fixed"]) == (b"ab", b"cd")
    assert encodings(tmp_path / "ours") == {
        "bool": "uint8", "date": "str", "moment": "str", "utc": "str", "time": "str", "decimal": "str_decimal", "category": "str",
        "fixed": "bytes",
    }  # fmt: skip


@pytest.mark.parametrize("expression", ["", "=image['bytes']"])
def test_hugging_face_image_structs_become_images(samples_of, tmp_path, expression):
    """A struct of bytes and a path is its bytes, which an expression can take out as well."""
    files = []
    for value in (0, 200):
        out = io.BytesIO()
        Image.new("RGB", (3, 2), (value, 10, 20)).save(out, format="PNG")
        files.append(out.getvalue())
    images = [{"bytes": files[0], "path": "a.png"}, {"bytes": files[1], "path": None}]
    pq.write_table(pa.table({"image": images, "label": [7, 8]}), tmp_path / "in.parquet")
    found = samples_of(tmp_path / "in.parquet", f"--column=image:png{expression}", "--column=label:int32")
    assert [sample["image"].size for sample in found] == [(3, 2)] * 2
    assert [sample["image"].fp.getvalue() for sample in found] == files
    assert encodings(tmp_path / "ours") == {"image": "png", "label": "int32"}


# --- queries ------------------------------------------------------------------------------------------------------


@pytest.fixture
def people(tmp_path):
    pq.write_table(pa.table({"Name": ["Ann", "Bob", "Eve", "Joe"], "age": [31, 17, 45, 17], "f": [0.5, 1.5, 2.5, 3.5]}),
                   tmp_path / "people.parquet")
    return tmp_path / "people.parquet"


def test_where_filters_rows(samples_of, people):
    assert [s["Name"] for s in samples_of(people, "--where=age > 18")] == ["Ann", "Eve"]


def test_select_expressions_become_columns(samples_of, people):
    found = samples_of(people, '--select=upper("Name") AS name, age * 2 AS twice')
    assert found == [{"name": n, "twice": t} for n, t in (("ANN", 62), ("BOB", 34), ("EVE", 90), ("JOE", 34))]


def test_sql_query_defines_samples(samples_of, people):
    found = samples_of(people, "--sql=SELECT age, count(*) AS n FROM source GROUP BY age ORDER BY age")
    assert found == [{"age": 17, "n": 2}, {"age": 31, "n": 1}, {"age": 45, "n": 1}]


def test_column_option_sets_encoding_and_expression(samples_of, people, tmp_path):
    found = samples_of(people, "--column=n:int=CAST(age AS BIGINT)", "--column=Name")
    assert found[1] == {"n": 17, "Name": "Bob"}
    assert encodings(tmp_path / "ours") == {"Name": "str", "n": "int"}


def test_unknown_column_is_an_error(run, people, tmp_path):
    done = run("convert", people, tmp_path / "ours", "--column=missing", status=2)
    assert "missing" in done.stderr and not (tmp_path / "ours" / "index.json").exists()


# --- nulls --------------------------------------------------------------------------------------------------------


@pytest.fixture
def holes(tmp_path):
    table = pa.table({"n": pa.array([1, None, 3], pa.int32()), "s": pa.array(["a", "b", None]), "j": pa.array([{"k": None}, None, {"k": 1}])})
    pq.write_table(table, tmp_path / "holes.parquet")
    return tmp_path / "holes.parquet"


def test_null_values_are_an_error_by_default(run, holes, tmp_path):
    done = run("convert", holes, tmp_path / "ours", status=None)
    assert done.status in (2, 3) and "error[" in done.stderr, done
    assert not (tmp_path / "ours" / "index.json").exists()


def test_nulls_mask_adds_mask_columns(samples_of, holes):
    found = samples_of(holes, "--nulls=mask")
    assert [(s["n"], s["n__is_null"]) for s in found] == [(1, 0), (0, 1), (3, 0)]
    assert [(s["s"], s["s__is_null"]) for s in found] == [("a", 0), ("b", 0), ("", 1)]
    assert [s["j"] for s in found] == [{"k": None}, None, {"k": 1}]


def test_nulls_drop_skips_rows_with_nulls(samples_of, holes):
    assert [(s["n"], s["s"]) for s in samples_of(holes, "--nulls=drop", "--column=n", "--column=s")] == [(1, "a")]


def test_null_as_fills_nulls(samples_of, holes):
    found = samples_of(holes, "--null-as=n=-1", "--null-as=s=nothing")
    assert [(s["n"], s["s"]) for s in found] == [(1, "a"), (-1, "b"), (3, "nothing")]


# --- text files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zipped", [False, True])
def test_csv_and_gzipped_csv_are_converted(zipped, samples_of, tmp_path):
    rows = [["id", "text", "score"], [1, "plain", 0.5], [2, 'with, "quotes"\nand a line', 1e-7], [3, "é日本", -2.0]]
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    data = text.getvalue().encode()
    path = tmp_path / ("in.csv.gz" if zipped else "in.csv")
    path.write_bytes(gzip.compress(data) if zipped else data)
    assert samples_of(path) == [dict(zip(rows[0], row)) for row in rows[1:]]
    assert encodings(tmp_path / "ours") == {"id": "int64", "text": "str", "score": "float64"}


def test_json_lines_are_converted(samples_of, tmp_path):
    rows = [
        {"id": 1, "text": "a", "nested": {"b": [1, 2.5, None], "a": "é"}, "tags": ["x", "y"], "ok": True},
        {"id": 2, "text": "\U0001d54f", "nested": {"b": [], "a": ""}, "tags": [], "ok": False},
    ]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = samples_of(tmp_path / "in.jsonl")
    for ours, row in zip(found, rows, strict=True):
        assert (ours["id"], ours["text"], ours["ok"], ours["tags"]) == (row["id"], row["text"], row["ok"], row["tags"])
        assert ours["nested"] == row["nested"]


# --- Arrow files --------------------------------------------------------------------------------------------------

TABLE = pa.table({"n": range(100), "text": [f"row {n}" for n in range(100)], "vector": [[n, n + 1] for n in range(100)]})


def check_table(found):
    assert [(s["n"], s["text"], s["vector"].tolist()) for s in found] == [(n, f"row {n}", [n, n + 1]) for n in range(100)]


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_arrow_file_is_converted(compression, samples_of, tmp_path):
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(tmp_path / "in.arrow", TABLE.schema, options=options) as out:
        out.write_table(TABLE, max_chunksize=30)
    check_table(samples_of(tmp_path / "in.arrow"))


def test_feather_file_is_converted(samples_of, tmp_path):
    pyarrow.feather.write_feather(TABLE, tmp_path / "in.feather")
    check_table(samples_of(tmp_path / "in.feather"))


def test_arrow_stream_is_converted(samples_of, tmp_path):
    with pa.ipc.new_stream(tmp_path / "in.arrows", TABLE.schema) as out:
        out.write_table(TABLE, max_chunksize=30)
    check_table(samples_of(tmp_path / "in.arrows", "--from=arrow"))


# --- trees --------------------------------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path):
    for n, key in enumerate(["a/001", "a/002", "b/c/é"]):
        path = tmp_path / "tree" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4 + n, 3), (n, 0, 0)).save(f"{path}.jpg")
        (path.parent / f"{path.name}.json").write_text(json.dumps({"label": n, "é": None}))
        (path.parent / f"{path.name}.txt").write_text(f"caption {n}")
    return tmp_path / "tree"


def test_files_with_equal_stem_become_one_sample(samples_of, tree, tmp_path):
    found = samples_of(tree)
    assert [s["__key__"] for s in found] == ["a/001", "a/002", "b/c/é"]
    for n, sample in enumerate(found):
        assert sample["jpg"].size == (4 + n, 3)
        assert sample["jpg"].fp.getvalue() == (tree / f"{sample['__key__']}.jpg").read_bytes()
        assert (sample["json"], sample["txt"]) == ({"label": n, "é": None}, f"caption {n}")
    assert encodings(tmp_path / "ours") == {"__key__": "str", "jpg": "jpeg", "json": "json", "txt": "str"}


def test_group_file_makes_each_file_a_sample(samples_of, tree):
    found = samples_of(tree, "--group=file")
    assert [s["__key__"] for s in found] == sorted(p.relative_to(tree).as_posix() for p in tree.rglob("*") if p.is_file())
    assert all(s["data"] == (tree / s["__key__"]).read_bytes() for s in found)


def test_selected_columns_of_a_tree_are_converted(samples_of, tree):
    found = samples_of(tree, "--key-column=path", "--column=path", "--column=txt:bytes")
    assert found == [{"path": k, "txt": f"caption {n}".encode()} for n, k in enumerate(["a/001", "a/002", "b/c/é"])]


def test_converted_tree_can_be_extracted_unchanged(convert, run, tree, tmp_path):
    """Converted, verified, extracted: the same files."""
    convert(tree, tmp_path / "ours")
    run("verify", tmp_path / "ours", "--deep")
    run("cat", tmp_path / "ours", "0..", "--extract", tmp_path / "back", "--by-key")
    assert peer.files(tmp_path / "back") == peer.files(tree)


# --- the run itself -----------------------------------------------------------------------------------------------


def test_dry_run_writes_nothing(run, people, tmp_path):
    run("convert", people, tmp_path / "ours", "--dry-run")
    assert not (tmp_path / "ours").exists()


def test_second_run_changes_nothing(convert, run, people, tmp_path):
    convert(people, tmp_path / "ours")
    before = {path: (tmp_path / "ours" / path).stat().st_mtime_ns for path in peer.files(tmp_path / "ours")}
    convert(people, tmp_path / "ours")
    assert before == {path: (tmp_path / "ours" / path).stat().st_mtime_ns for path in peer.files(tmp_path / "ours")}
    run("convert", people, tmp_path / "ours", "--hashes=md5", status=4)
    convert(people, tmp_path / "ours", "--hashes=md5", "--overwrite")
    assert peer.index(tmp_path / "ours")["shards"][0]["hashes"] == ["md5"]
    assert not (tmp_path / "ours" / ".shardmill").exists()
