"""The same rows through both writers: the same files, byte for byte.

SHARDMILL_CASES and SHARDMILL_SEED choose how many random cases there are and which; a case depends on the seed and
its number only, so that `SHARDMILL_SEED=… pytest -k 'case[17]'` runs it again.
"""

import random

import peer
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import CASES, SEED
from tables import table
from streaming.base.hashing import get_hashes

HASHES = sorted(get_hashes())


def size_limit(rng):
    """As the option, and as the original takes it."""
    return rng.choice([
        ("64MiB", 1 << 26), ("none", None), ("1kb", "1kb"), ("0.5kb", "0.5kb"), ("10kb", 10240), ("1", 1),
        *[(str(n), n) for n in (rng.randint(1, 100), rng.randint(100, 1000), rng.randint(1000, 20000))],
    ])  # fmt: skip


def write_source(rng, folder, data):
    """One file, or several with row groups of their own."""
    folder.mkdir()
    pieces = rng.choice([1, 1, 2, 3])
    bounds = sorted(rng.randint(0, data.num_rows) for _ in range(pieces - 1))
    for n, (begin, end) in enumerate(zip([0, *bounds], [*bounds, data.num_rows])):
        pq.write_table(data.slice(begin, end - begin), folder / f"part-{n:05}.parquet",
                       row_group_size=rng.choice([1, 7, 1000]), compression=rng.choice(["none", "snappy", "zstd"]))


@pytest.mark.parametrize("case", range(CASES), ids=lambda n: f"case[{n}]")
def test_random_tables_are_byte_identical(case, convert, tmp_path):
    rng = random.Random(f"{SEED} {case}")
    data = table(rng, "mds", forbidden="")
    limit, peer_limit = size_limit(rng)
    hashes = sorted(rng.sample(HASHES, rng.choice([0, 0, 1, 2, 5, 17])))
    write_source(rng, tmp_path / "in", data.arrow)
    options = ["--compression=none", f"--hashes={','.join(hashes) or 'none'}", f"--size-limit={limit}"]
    peer.write(tmp_path / "theirs", "mds", data.columns, data.samples, hashes=hashes, size_limit=peer_limit)
    peer.drop_empty_first_shard(tmp_path / "theirs")

    done = convert(tmp_path / "in", tmp_path / "ours", *options, *data.column_options())

    found = peer.difference(tmp_path / "ours", tmp_path / "theirs")
    assert found is None, f"SHARDMILL_SEED={SEED} case {case}: {data.columns}\n{data.arrow.schema}\n{done}\n{found}"


def test_output_is_independent_of_job_count(convert, tmp_path):
    rng = random.Random(f"{SEED} threads")
    samples = [{"n": n, "blob": rng.randbytes(rng.randint(0, 2000))} for n in range(2000)]
    pq.write_table(pa.table({"n": [s["n"] for s in samples], "blob": [s["blob"] for s in samples]}), tmp_path / "in.parquet",
                   row_group_size=100)
    peer.write(tmp_path / "theirs", "mds", {"n": "int64", "blob": "bytes"}, samples, hashes=["sha256"], size_limit=30000)
    for jobs in (1, 2, 8):
        convert(tmp_path / "in.parquet", tmp_path / f"ours-{jobs}", "--compression=none", "--size-limit=30000", f"--jobs={jobs}")
        assert peer.difference(tmp_path / f"ours-{jobs}", tmp_path / "theirs") is None


def test_empty_table_writes_only_an_index(convert, tmp_path):
    pq.write_table(pa.table({"a": pa.array([], pa.string())}), tmp_path / "in.parquet")
    convert(tmp_path / "in.parquet", tmp_path / "ours")
    assert (tmp_path / "ours" / "index.json").read_bytes() == b'{"shards": [], "version": 2}'
    assert set(peer.files(tmp_path / "ours")) - peer.SIDE_FILES == {"index.json"}


def test_oversized_first_sample_gets_no_empty_shard_before_it(convert, tmp_path):
    """The original writes a shard without samples before it."""
    samples = [{"b": b"x" * n} for n in (5000, 10, 10, 5000, 10)]
    pq.write_table(pa.table({"b": [s["b"] for s in samples]}), tmp_path / "in.parquet")
    convert(tmp_path / "in.parquet", tmp_path / "ours", "--compression=none", "--size-limit=300", "--hashes=none")
    peer.write(tmp_path / "theirs", "mds", {"b": "bytes"}, samples, size_limit=300)
    assert peer.index(tmp_path / "theirs")["shards"][0]["samples"] == 0
    peer.drop_empty_first_shard(tmp_path / "theirs")
    assert peer.difference(tmp_path / "ours", tmp_path / "theirs") is None
    assert [shard["samples"] for shard in peer.index(tmp_path / "ours")["shards"]] == [1, 2, 1, 1]


@pytest.mark.parametrize("delta", [-1, 0, 1])
def test_shard_size_limit_boundary_matches_streaming(delta, convert, tmp_path):
    samples = [{"b": bytes([n]) * 10} for n in range(9)]
    peer.write(tmp_path / "probe", "mds", {"b": "bytes"}, samples[:3], size_limit=999)
    limit = peer.index(tmp_path / "probe")["shards"][0]["raw_data"]["bytes"] + delta
    pq.write_table(pa.table({"b": [s["b"] for s in samples]}), tmp_path / "in.parquet")
    convert(tmp_path / "in.parquet", tmp_path / "ours", "--compression=none", f"--size-limit={limit}", "--hashes=none")
    peer.write(tmp_path / "theirs", "mds", {"b": "bytes"}, samples, size_limit=limit)
    assert peer.difference(tmp_path / "ours", tmp_path / "theirs") is None
    assert peer.index(tmp_path / "ours")["shards"][0]["samples"] == (2 if delta < 0 else 3)


def test_large_table_is_byte_identical(convert, tmp_path):
    """Past the batch size of any reader."""
    rng = random.Random(f"{SEED} large")
    count = 20_000
    samples = [{"id": n, "text": "w" * rng.randint(0, 20), "score": rng.random()} for n in range(count)]
    pq.write_table(pa.table({k: [s[k] for s in samples] for k in samples[0]}), tmp_path / "in.parquet", row_group_size=3000)
    options = {"hashes": ["sha1", "xxh64"], "size_limit": 100_000}
    peer.write(tmp_path / "theirs", "mds", {"id": "int64", "text": "str", "score": "float64"}, samples, **options)
    convert(tmp_path / "in.parquet", tmp_path / "ours", "--compression=none", "--size-limit=100000", "--hashes=sha1,xxh64")
    assert peer.difference(tmp_path / "ours", tmp_path / "theirs") is None
