"""What ours writes is read by the original: every compression family, hashes checked.

The expectation is what the original reads of the same rows written by itself, without compression.
"""

import random

import peer
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstd
from conftest import SEED
from tables import MDS_KINDS, Table, names

LEVELS = ["none", "br", "br:0", "br:4", "br:11", "bz2", "bz2:1", "bz2:9", "gz", "gz:0", "gz:1", "gz:9", "snappy",
          "zstd", "zstd:1", "zstd:3", "zstd:9", "zstd:12", "zstd:13", "zstd:19", "zstd:22"]  # fmt: skip
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def one_of_each(rng, rows):
    """A table with a column of every kind."""
    kinds = list(dict.fromkeys(MDS_KINDS))
    order = names(rng, len(kinds))
    drawn = {name: kind(rng) for name, kind in zip(order, kinds)}
    pairs = {name: [kind.make() for _ in range(rows)] for name, kind in drawn.items()}
    arrays = {name: pa.array([ours for ours, _ in pairs[name]], drawn[name].arrow) for name in order}
    samples = [{name: pairs[name][row][1] for name in order} for row in range(rows)]
    return Table(pa.table(arrays), {name: kind.encoding for name, kind in drawn.items()}, samples, True, order)


def read_both(tmp_path, convert, data, options, peer_options, validate_hash):
    """Ours and the original's own, each read by the original."""
    pq.write_table(data.arrow, tmp_path / "in.parquet")
    convert(tmp_path / "in.parquet", tmp_path / "ours", *options, *data.column_options())
    peer.write(tmp_path / "theirs", "mds", data.columns, data.samples, **peer_options)
    ours = peer.streamed(tmp_path / "ours", validate_hash)
    assert ours == peer.streamed(tmp_path / "theirs")
    # The streaming reader has decompressed the shards in place.
    assert peer.local(tmp_path / "ours") == ours
    assert len(ours) == data.arrow.num_rows
    return peer.index(tmp_path / "ours")


@pytest.mark.parametrize("compression", LEVELS)
def test_streaming_reads_mds_of_every_compression(compression, convert, tmp_path):
    data = one_of_each(random.Random(f"{SEED} {compression}"), 60)
    options = [f"--compression={compression}", "--hashes=sha256,xxh3_128", "--size-limit=10kb"]
    index = read_both(tmp_path, convert, data, options, {"size_limit": "10kb"}, "xxh3_128")
    assert len(index["shards"]) > 3
    expected = None if compression == "none" else compression
    assert {shard["compression"] for shard in index["shards"]} == {expected}


def test_streaming_reads_default_output(convert, tmp_path):
    """Without an option: MDS, zstd:3, sha256, 64 MiB."""
    data = one_of_each(random.Random(f"{SEED} defaults"), 10)
    index = read_both(tmp_path, convert, data, [], {}, "sha256")
    for shard in index["shards"]:
        found = shard["format"], shard["compression"], shard["hashes"], shard["size_limit"]
        assert found == ("mds", "zstd:3", ["sha256"], 1 << 26)


@pytest.mark.parametrize("compression", ["zstd:3", "zstd:12", "gz:1"])
def test_streaming_reads_shards_above_8_mib(compression, convert, tmp_path):
    """Fast levels of zstd are written as one frame for each 8 MiB, which the original reads as one stream."""
    rng = random.Random(f"{SEED} large")
    blobs = [rng.randbytes(15_000) + bytes(10_000) for _ in range(800)]
    pq.write_table(pa.table({"n": range(800), "blob": blobs}), tmp_path / "in.parquet")
    convert(tmp_path / "in.parquet", tmp_path / "ours", f"--compression={compression}", "--hashes=xxh64")
    (shard,) = peer.index(tmp_path / "ours")["shards"]
    assert shard["raw_data"]["bytes"] > 2 * (8 << 20)
    zipped = (tmp_path / "ours" / shard["zip_data"]["basename"]).read_bytes()
    if compression.startswith("zstd"):
        assert zipped.count(ZSTD_MAGIC) == 3
        assert len(zstd.decompress(zipped)) == shard["raw_data"]["bytes"]
    found = peer.streamed(tmp_path / "ours", "xxh64")
    assert [sample["blob"] for sample in found] == [("bytes", blob) for blob in blobs]
    assert [sample["n"][1] for sample in found] == [n.to_bytes(8, "little") for n in range(800)]


def test_streaming_reads_samples_per_shard_output(convert, tmp_path):
    pq.write_table(pa.table({"n": range(25)}), tmp_path / "in.parquet")
    convert(tmp_path / "in.parquet", tmp_path / "ours", "--samples-per-shard=10")
    assert [shard["samples"] for shard in peer.index(tmp_path / "ours")["shards"]] == [10, 10, 5]
    assert len(peer.streamed(tmp_path / "ours", "sha256")) == 25


def test_streaming_reads_splits(convert, tmp_path):
    """Each split is a dataset of its own, below the destination, and together they hold every row once."""
    pq.write_table(pa.table({"n": range(500), "user": [n % 50 for n in range(500)]}), tmp_path / "in.parquet")
    convert(tmp_path / "in.parquet", tmp_path / "ours", "--split=train=0.8,val=0.2", "--split-key=user")
    users = {}
    seen = []
    for split in ("train", "val"):
        for sample in peer.streamed(tmp_path / "ours" / split, "sha256"):
            seen.append(int.from_bytes(sample["n"][1], "little"))
            users.setdefault(sample["user"], set()).add(split)
    assert sorted(seen) == list(range(500))
    assert all(len(splits) == 1 for splits in users.values())
    assert 250 < len(peer.local(tmp_path / "ours" / "train")) < 480
