"""What the original writes is read, checked, rebuilt, merged and converted by ours.

The datasets are those of `fixtures/` (every encoding, format, compression and hash), and some written on the spot.
"""

import json
import random

import numpy as np
import peer
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import FIXTURES, SEED
from shown import same
from tables import table
from streaming import LocalDataset
from streaming.base.util import merge_index

ALL = sorted(path.parent.name for path in FIXTURES.glob("*/index.json"))
# What the writer takes and its reader refuses, in whole or in part.
UNREADABLE = {"mds-unreadable", "csv-unreadable", "json-newline-word"}
# Names that lead nowhere.
BROKEN = {"merged-two-levels"}
# Read by one side only: a lone surrogate has no UTF-8, Python's looser numbers are refused; the original cannot read
# samples of no bytes.
STRICTER = {"json-surrogates", "mds-loose-text", "mds-no-columns"}
READABLE = [name for name in ALL if name not in UNREADABLE | BROKEN | STRICTER]
LIMITS = ["--safety-limit=array-dims=63"]


def test_fixtures_exist():
    assert len(ALL) >= 160


@pytest.mark.parametrize("name", READABLE)
def test_verify_accepts_readable_fixtures(name, run):
    run("verify", FIXTURES / name, "--deep", *LIMITS)


@pytest.mark.parametrize("name", sorted(UNREADABLE | BROKEN))
def test_verify_reports_unreadable_fixtures(name, run):
    done = run("verify", FIXTURES / name, "--deep", status=3)
    assert "error[" in done.stderr


def test_verify_detects_a_changed_byte(run, copy_of):
    folder = copy_of("mds-zip-zstd")
    shard = sorted(folder.glob("shard.*"))[0]
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    assert "error[hash-mismatch]" in run("verify", folder, status=3).stderr


@pytest.mark.parametrize("name", READABLE)
def test_cat_prints_expected_samples(name, run):
    expected = [json.loads(line) for line in (FIXTURES / f"{name}.expected.jsonl").read_text().splitlines()]
    found = run("cat", FIXTURES / name, "0..", *LIMITS).lines()
    assert len(found) == len(expected)
    for number, (ours, theirs) in enumerate(zip(found, expected)):
        assert ours.keys() == theirs.keys(), number
        for column in theirs:
            assert same(ours[column], theirs[column]), f"sample {number} column {column!r}: {ours[column]} is not {theirs[column]}"


# Merged indexes belong to several folders, an empty dataset has no shards, and one newline is refused.
REBUILT = [name for name in ALL if not name.startswith("merged-") and not name.endswith("-empty") and name != "json-newline-word"]


@pytest.mark.parametrize("name", REBUILT)
def test_rebuilt_index_is_byte_identical(name, run, copy_of):
    """The index that was lost comes back byte for byte."""
    folder = copy_of(name)
    (folder / "index.json").unlink()
    run("index", "rebuild", folder, *LIMITS)
    assert (folder / "index.json").read_bytes() == (FIXTURES / name / "index.json").read_bytes()
    assert set(peer.files(folder)) == set(peer.files(FIXTURES / name))


def converted(run, source, dest, *options):
    run("convert", "--quiet", "--from=mds", source, dest, *LIMITS, *options)
    run("verify", dest, "--deep", *LIMITS)
    return dest


CONVERTED = [name for name in READABLE if name.startswith(("mds-", "merged-")) and name not in ("mds-empty", "merged-list")]


@pytest.mark.parametrize("name", CONVERTED)
def test_convert_keeps_values_and_encodings(name, run, copy_of, tmp_path):
    source = copy_of(name)
    ours = converted(run, source, tmp_path / "ours", "--compression=zstd:1", "--hashes=xxh64", "--size-limit=20kb")
    assert peer.streamed(ours, "xxh64") == peer.streamed(source)
    (before, *_), (after, *_) = peer.index(source)["shards"], peer.index(ours)["shards"]
    for key in ("column_names", "column_encodings", "column_sizes"):
        assert after[key] == before[key]
    assert {(s["compression"], *s["hashes"], s["size_limit"]) for s in peer.index(ours)["shards"]} == {("zstd:1", "xxh64", 20480)}


def numbers_alike(sample):
    """Columns by what they mean: a whole number is one whether it is an int or a numpy scalar."""
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in sample.items()}


@pytest.mark.parametrize("format_", ["json", "csv", "tsv", "xsv"])
def test_text_formats_convert_to_mds(format_, run, copy_of, tmp_path):
    """From every text format; MDS has numpy scalars where the others have numbers."""
    source = copy_of(f"{format_}-zip-bz2")
    ours = converted(run, source, tmp_path / "ours", "--compression=gz", "--hashes=sha1")
    # Raw files for the local reader.
    peer.streamed(ours, "sha1")
    peer.streamed(source, "sha1")
    found, expected = LocalDataset(str(ours)), LocalDataset(str(source))
    assert [numbers_alike(found[i]) for i in range(len(found))] == [numbers_alike(expected[i]) for i in range(len(expected))]
    assert len(found) == 12


def test_converting_with_same_options_is_byte_identical(run, copy_of, tmp_path):
    """With the options of the dataset itself, converting it gives it again."""
    source = copy_of("mds-cut-many")
    ours = converted(run, source, tmp_path / "ours", "--compression=none", "--hashes=none", "--size-limit=700")
    assert peer.difference(ours, source) is None


@pytest.mark.parametrize("compression", ["zstd:3", "gz", "br:5", "bz2", "snappy", None])
@pytest.mark.parametrize("format_", ["mds", "json", "csv", "tsv", "xsv"])
def test_random_streaming_datasets_are_verified_and_converted(format_, compression, run, tmp_path):
    """Written on the spot: verified, and MDS is the same after compression by ours."""
    rng = random.Random(f"{SEED} {format_} {compression} theirs")
    separator = {"csv": ",", "tsv": "\t", "xsv": ";"}.get(format_, "")
    data = table(rng, format_, forbidden=separator)
    while data.arrow.num_rows < 10:
        data = table(rng, format_, forbidden=separator)
    options = {"separator": separator} if format_ == "xsv" else {}
    peer.write(tmp_path / "theirs", format_, data.columns, data.samples, compression=compression, hashes=["sha256", "xxh32"],
               size_limit=3000, **options)
    run("verify", tmp_path / "theirs", "--deep")
    if format_ == "mds":
        ours = converted(run, tmp_path / "theirs", tmp_path / "ours", "--compression=zstd:7", "--hashes=md5")
        assert peer.streamed(ours, "md5") == peer.streamed(tmp_path / "theirs")


@pytest.mark.parametrize("name", ["merged-one-level", "merged-with-empty"])
def test_merged_index_equals_streaming_merge(name, run, copy_of):
    folder = copy_of(name)
    (folder / "index.json").unlink()
    run("index", "merge", folder)
    assert (folder / "index.json").read_bytes() == (FIXTURES / name / "index.json").read_bytes()


def test_merged_list_equals_streaming_merge(run, copy_of):
    folder = copy_of("merged-list")
    (folder / "index.json").unlink()
    run("index", "merge", *(folder / part for part in ("third", "first", "second", "fourth")), "--out", folder)
    assert (folder / "index.json").read_bytes() == (FIXTURES / "merged-list" / "index.json").read_bytes()


def test_two_level_merge_is_readable_by_streaming(run, copy_of):
    """Where the original's own merge names files that do not exist, ours is read by the original."""
    folder = copy_of("merged-two-levels")
    (folder / "index.json").unlink()
    run("index", "merge", folder)
    found = peer.streamed(folder)
    expected = [sample for part in ("w/y", "x/y", "x/z") for sample in peer.local(folder / part)]
    assert found == expected
    run("verify", folder, "--deep")


def test_merge_of_converted_datasets_equals_streaming_merge(run, convert, tmp_path):
    """Side files do not disturb the original's merge either."""
    root = tmp_path / "root"
    for part, rows in (("a", 5), ("b", 0), ("c", 7)):
        pq.write_table(pa.table({"n": pa.array(range(rows), pa.int64())}), tmp_path / f"{part}.parquet")
        convert(tmp_path / f"{part}.parquet", root / part, "--size-limit=300")
    merge_index(str(root), keep_local=True)
    theirs = (root / "index.json").read_bytes()
    (root / "index.json").unlink()
    run("index", "merge", root)
    assert (root / "index.json").read_bytes() == theirs
    assert len(peer.streamed(root, "sha256")) == 12


def test_dataset_with_different_schemas_is_read(run, copy_of):
    """Shards of one index may differ in format and columns; verify and cat do not mind."""
    folder = copy_of("merged-list")
    lines = run("cat", folder, "0..").lines()
    assert len({tuple(sorted(line)) for line in lines}) == 2
    assert len(peer.streamed(folder)) == len(lines)
