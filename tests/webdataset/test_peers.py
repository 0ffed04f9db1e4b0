"""What shardmill writes, read by those whose format it is; and what they write, read by shardmill."""

import hashlib
import io
import json
import os
import random
import shutil
import subprocess
import tarfile

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import webdataset as wds
from conftest import ROOT
from PIL import Image
from webdataset.writer import ShardWriter, TarWriter


def picture(rng):
    image = Image.fromarray(np.frombuffer(rng.randbytes(16 * 12 * 3), np.uint8).reshape(12, 16, 3))
    out = io.BytesIO()
    image.save(out, "jpeg")
    return out.getvalue()


def samples(count):
    """Key and fields, as a tree of files has them."""
    rng = random.Random(7)
    for number in range(count):
        fields = {
            "jpg": picture(rng),
            "json": json.dumps({"number": number, "é": [1.5, None, True]}, ensure_ascii=False).encode(),
            "cls": str(number % 10).encode(),
            "txt": f"sample {number} é".encode(),
        }
        yield f"{number % 3}/{number:05}", fields


def tree(place, count=50):
    for key, fields in samples(count):
        for field, content in fields.items():
            path = place.path / "tree" / f"{key}.{field}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    return dict(sorted(samples(count)))


def by_webdataset(paths):
    """Raw bytes by key, in the order of the original reader."""
    found = {}
    for sample in wds.WebDataset(paths, shardshuffle=False, empty_check=False):
        key = sample["__key__"]
        assert key not in found
        found[key] = {name: value for name, value in sample.items() if not name.startswith("__")}
    return found


@pytest.mark.parametrize("compression", ["none", "gz", "gz:1", "zstd:3"])
def test_webdataset_reads_converted_tree(place, compression):
    expected = tree(place)
    place.ok("convert", "tree", "out", "--to", "webdataset", "--samples-per-shard", 20, "--compression", compression)
    ending = {"n": "", "g": ".gz", "z": ".zst"}[compression[0]]
    paths = place.shards("out", f"*.tar{ending}")
    assert len(paths) == 3
    if ending == ".zst":
        if not shutil.which("zstd"):
            pytest.skip("no zstd program")
        paths = [f"pipe:zstd -dc {path}" for path in paths]
    found = by_webdataset(paths)
    assert found == expected
    assert list(found) == list(expected)
    place.ok("verify", "out", "--deep")


def test_tarfile_and_gnu_tar_read_converted_tree(place):
    expected = tree(place)
    place.ok("convert", "tree", "out", "--to", "webdataset", "--samples-per-shard", 20)
    for path in place.shards("out"):
        (place.path / "unpacked").mkdir(exist_ok=True)
        subprocess.run(["tar", "xf", path, "-C", place.path / "unpacked"], check=True, stderr=subprocess.PIPE)
    for key, fields in expected.items():
        for field, content in fields.items():
            assert (place.path / "unpacked" / f"{key}.{field}").read_bytes() == content
    members = 0
    for path in place.shards("out"):
        with tarfile.open(path) as tar:
            for member in tar:
                key, field = member.name.rsplit(".", 1)
                assert tar.extractfile(member).read() == expected[key][field]
                assert (member.mode, member.uid, member.uname, member.mtime) == (0o444, 0, "bigdata", 0)
                members += 1
    assert members == 4 * len(expected)


def test_tar_is_byte_identical_to_webdataset_tar_writer(place):
    expected = tree(place)
    place.ok("convert", "tree", "out", "--to", "webdataset")
    with TarWriter(str(place.path / "theirs.tar"), encoder=False, mtime=0) as out:
        for key, fields in expected.items():
            out.write({"__key__": key, **fields})
    assert (place.path / "out" / "shard-000000.tar").read_bytes() == (place.path / "theirs.tar").read_bytes()


def test_hugging_face_datasets_reads_converted_tree(place):
    expected = tree(place)
    place.ok("convert", "tree", "out", "--to", "webdataset", "--samples-per-shard", 20)
    place.ok("verify", "out", "--for", "hf", "--strict")
    files = {"train": place.shards("out")}
    cache = str(place.path / "cache")
    found = datasets.load_dataset("webdataset", data_files=files, split="train", cache_dir=cache)
    assert len(found) == len(expected)
    found = found.cast_column("jpg", datasets.Image(decode=False))
    for row, (key, fields) in zip(found, expected.items()):
        assert row["__key__"] == key
        assert row["jpg"]["bytes"] == fields["jpg"]
        assert row["txt"] == fields["txt"].decode()
        assert row["cls"] == int(fields["cls"])
        assert row["json"] == json.loads(fields["json"])


def table(rows):
    rng = np.random.default_rng(3)
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "caption": [f"caption {row} é" for row in range(rows)],
            "label": pa.array([row % 5 - 2 for row in range(rows)], pa.int16()),
            "vector": pa.array(list(rng.random((rows, 6), np.float32)), pa.list_(pa.float32())),
            "matrix": pa.array(
                [list(map(list, rng.integers(-9, 9, (2, 3)))) for _ in range(rows)],
                pa.list_(pa.list_(pa.int32(), 3), 2),
            ),
            "meta": [{"row": row, "tags": ["a", "b"]} for row in range(rows)],
            "score": [row / 4 for row in range(rows)],
            "blob": [bytes([row % 256, 0, 255]) for row in range(rows)],
        }
    )


def test_table_columns_become_decodable_fields(place):
    rows = table(100)
    pq.write_table(rows, place.path / "rows.parquet", row_group_size=17)
    place.ok("convert", "rows.parquet", "out", "--to", "webdataset", "--samples-per-shard", 40)
    found = list(wds.WebDataset(place.shards("out"), shardshuffle=False).decode())
    assert [sample["__key__"] for sample in found] == [f"{row:09}" for row in range(100)]
    for sample, row in zip(found, rows.to_pylist()):
        assert sample["id"] == row["id"]
        assert sample["caption.txt"] == row["caption"]
        assert sample["label.cls"] == row["label"]
        assert sample["vector.npy"].dtype == np.float32
        assert sample["vector.npy"].tolist() == row["vector"]
        assert sample["matrix.npy"].dtype == np.int32
        assert sample["matrix.npy"].tolist() == row["matrix"]
        assert sample["meta.json"] == row["meta"]
        assert sample["score.json"] == row["score"]
        assert sample["blob"] == row["blob"]


def test_npy_and_text_fields_match_webdataset_bytes(place):
    rows = table(20)
    pq.write_table(rows, place.path / "rows.parquet")
    columns = ["npy=vector", "m.npy=matrix", "cls=label", "txt=caption", "bin=blob"]
    options = [part for column in columns for part in ("--column", column)]
    place.ok("convert", "rows.parquet", "out", "--to", "webdataset", "--key-column", "id", *options)
    with TarWriter(str(place.path / "theirs.tar"), mtime=0) as out:
        for row in rows.to_pylist():
            out.write(
                {
                    "__key__": str(row["id"]),
                    "npy": np.array(row["vector"], np.float32),
                    "m.npy": np.array(row["matrix"], np.int32),
                    "cls": row["label"],
                    "txt": row["caption"],
                    "bin": row["blob"],
                }
            )
    assert (place.path / "out" / "shard-000000.tar").read_bytes() == (place.path / "theirs.tar").read_bytes()


def test_ten_fields_match_webdataset_bytes(place):
    rows = table(20)
    pq.write_table(rows, place.path / "rows.parquet")
    columns = ["ten:ten=vector", "m.ten:ten=matrix"]
    options = [part for column in columns for part in ("--column", column)]
    place.ok("convert", "rows.parquet", "out", "--to", "webdataset", "--key-column", "id", *options)
    # By way of MDS as well.
    place.ok("convert", "rows.parquet", "mds")
    place.ok("convert", "mds", "again", "--to", "webdataset", "--key-column", "id", *options)
    with TarWriter(str(place.path / "theirs.tar"), mtime=0) as out:
        for row in rows.to_pylist():
            out.write(
                {
                    "__key__": str(row["id"]),
                    "ten": np.array(row["vector"], np.float32),
                    "m.ten": [np.array(row["matrix"], np.int32)],
                }
            )
    theirs = (place.path / "theirs.tar").read_bytes()
    assert (place.path / "out" / "shard-000000.tar").read_bytes() == theirs
    assert (place.path / "again" / "shard-000000.tar").read_bytes() == theirs
    for sample, row in zip(wds.WebDataset(place.shards("out"), shardshuffle=False).decode(), rows.to_pylist()):
        assert sample["ten"][0].tolist() == row["vector"]


PATTERNS = [
    "out/shard-{000000..000004}.tar",
    "out/shard-{000004..000000..2}.tar",
    "out/shard-{000001,000003}.tar",
    "{out,more/deep}/shard-00000{0..1}.tar",
    "out/shard-000002.tar::more/deep/shard-{000000..1}.tar",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_brace_patterns_match_webdataset(place, pattern):
    tree(place)
    place.ok("convert", "tree", "out", "--to", "webdataset", "--samples-per-shard", 10)
    place.ok("convert", "tree", "more/deep", "--to", "webdataset", "--samples-per-shard", 7)
    paths = "::".join(str(place.path / part) for part in pattern.split("::"))
    if pattern.startswith("{"):
        paths = f"{place.path}/{pattern}"
    theirs = [sample["__key__"] for sample in wds.WebDataset(paths, shardshuffle=False)]
    assert len(theirs) > 10
    for given in (pattern, paths):
        lines = place.ok("cat", given, f"0..{len(theirs)}", "--column", "__key__").splitlines()
        assert [json.loads(line)["__key__"] for line in lines] == theirs
        assert json.loads(place.ok("inspect", given, "--json"))["samples"] == len(theirs)
        # A pattern may name two copies of a sample: `verify` reports the repeated key.
        if len(set(theirs)) == len(theirs):
            place.ok("verify", given, "--deep")
        else:
            done = place.run("verify", given, "--deep")
            assert done.returncode == 3 and "error[sample-key-twice]" in done.stderr


@pytest.mark.parametrize("mtime", [None, 0, 12345])
@pytest.mark.parametrize("compress", [False, "gz"])
def test_webdataset_output_round_trips(place, mtime, compress):
    expected = dict(samples(40))
    (place.path / "in").mkdir()
    ending = "tar.gz" if compress else "tar"
    options = {} if mtime is None else {"mtime": mtime}
    pattern = str(place.path / "in" / f"a-%03d.{ending}")
    with ShardWriter(pattern, maxcount=15, encoder=False, verbose=0, **options) as out:
        for key, fields in expected.items():
            out.write({"__key__": key, **fields})
    place.ok("verify", "in", "--deep")
    # Twice through MDS and back: the same samples in the same order.
    place.ok("convert", "in", "mds")
    place.ok("convert", "mds", "tars", "--to", "webdataset", "--samples-per-shard", 7)
    found = by_webdataset(place.shards("tars"))
    assert found == expected
    assert list(found) == list(expected)
    # Written again as tars: the bytes of the original with a fixed time.
    place.ok("convert", "in", "again", "--to", "webdataset", "--samples-per-shard", 15)
    for number, path in enumerate(place.shards("again")):
        theirs = place.path / "theirs.tar"
        with TarWriter(str(theirs), encoder=False, mtime=0) as out:
            for key, fields in list(expected.items())[number * 15 : number * 15 + 15]:
                out.write({"__key__": key, **fields})
        with open(path, "rb") as again:
            assert again.read() == theirs.read_bytes()


def test_exported_indexes_locate_tar_members(place):
    tree(place)
    options = ["--to", "webdataset", "--samples-per-shard", 20]
    place.ok("convert", "tree", "out", *options, "--hashes", "md5,sha256", "--index-for", "wids,dali,open_clip")
    place.ok("convert", "tree", "later", *options)
    place.ok("index", "export", "later", "--for", "dali,open_clip")
    wids = json.loads((place.path / "out" / "shardindex.json").read_text())
    sizes = json.loads((place.path / "out" / "sizes.json").read_text())
    for entry, path in zip(wids["shardlist"], place.shards("out")):
        name = path.rsplit("/", 1)[1]
        with tarfile.open(path) as tar:
            members = tar.getmembers()
            ends = tar.offset
        keys = sorted({member.name.rsplit(".", 1)[0] for member in members})
        assert (entry["url"], entry["nsamples"]) == (name, len(keys))
        md5 = subprocess.run(["md5sum", path], capture_output=True, text=True, check=True).stdout.split()[0]
        assert entry["md5sum"] == md5
        assert sizes[name] == len(keys)
        dali = (place.path / "out" / name.replace(".tar", ".idx")).read_text().splitlines()
        assert dali[0] == f"v1.2 {len(keys)}"
        words = " ".join(dali[1:]).split()
        quads = [tuple(words[at : at + 4]) for at in range(0, len(words), 4)]
        assert quads == [
            (m.name.rsplit(".", 1)[1], str(m.offset_data), str(m.size), m.name) for m in members
        ]
        table = np.fromfile(place.path / "out" / f"{name}.idx", "<u8")
        begins = [m.offset for m in members if m.name.endswith(".cls")]
        assert table.tolist() == [*begins, table[-1]]
        assert members[-1].offset_data + -(-members[-1].size // 512) * 512 == table[-1] < ends + 10240
        for ending in (".idx", ".tar.idx"):
            file = name.replace(".tar", ending)
            assert (place.path / "later" / file).read_bytes() == (place.path / "out" / file).read_bytes()


def test_wids_index_matches_and_is_readable(place):
    expected = tree(place)
    python = os.environ.get("SHARDMILL_WIDS")
    if not python:
        pytest.skip("no wids: set SHARDMILL_WIDS to the Python of an environment with requirements-wids.txt")
    options = ["--to", "webdataset", "--samples-per-shard", 20, "--hashes", "md5,sha256", "--index-for", "wids"]
    place.ok("convert", "tree", "out", *options)
    ours = json.loads((place.path / "out" / "shardindex.json").read_text())
    shards = [path.rsplit("/", 1)[1] for path in place.shards("out")]
    create = [python, "-m", "wids.wids_index", "create", "--output", "theirs.json", "--name", "", *shards]
    subprocess.run(create, cwd=place.path / "out", check=True, capture_output=True)
    theirs = json.loads((place.path / "out" / "theirs.json").read_text())
    assert ours["shardlist"] == theirs["shardlist"]
    assert {name: ours[name] for name in ("__kind__", "wids_version")} == {
        name: theirs[name] for name in ("__kind__", "wids_version")
    }
    read = [python, ROOT / "tests" / "webdataset" / "read_wids.py", place.path / "out" / "shardindex.json"]
    lines = subprocess.run(read, check=True, capture_output=True, text=True).stdout.splitlines()
    keys = list(expected)
    assert len(lines) == 19
    for line in map(json.loads, lines):
        fields = expected[keys[line["number"]]]
        assert line["key"] == keys[line["number"]]
        assert line["fields"] == {f".{name}": hashlib.sha256(value).hexdigest() for name, value in fields.items()}
