"""The conformance suite, and conversions, readers, writers that race and writers that are killed, on stores of others."""

import re
import subprocess
import time
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import TABLE

from shardmill import StreamingDataset
from shardmill.errors import ShardmillError

ROWS = 2000


@pytest.fixture(scope="session")
def tables(tmp_path_factory):
    """Two tables of different contents."""
    folder = tmp_path_factory.mktemp("tables")
    paths = []
    for name in ("a", "b"):
        paths.append(folder / f"{name}.parquet")
        texts = [f"{name} {number}" * 20 for number in range(ROWS)]
        pq.write_table(pa.table({"id": range(ROWS), "text": texts}), paths[-1])
    return paths


def read(store, url, local, monkeypatch):
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    return StreamingDataset(remote=url, local=str(local), batch_size=1, shuffle=False)


def test_promises_are_kept(store, suite):
    skipped = ",".join(name.replace(" ", "_") for name in store.kind.defects)
    settings = store.environment.items()
    settings = [f"{name}={value}" for name, value in settings if re.match("AWS_|AZURE_|STORAGE_EM", name)]
    stores = f"{store.name} {store.url('conformance')} {' '.join(settings)} SKIP={skipped}"
    done = subprocess.run(
        [suite, "--exact", "remote::tests::conformance::real_stores", "--nocapture"],
        env={**store.environment, "SHARDMILL_STORES": stores},
        capture_output=True,
        text=True,
        timeout=300,
    )
    for line in done.stdout.splitlines():
        if "TABLE\t" in line:
            _, promise, kept, _ = line.split("TABLE\t")[1].split("\t")
            kept = "no" if promise in store.kind.defects else kept
            TABLE.setdefault(promise, {})[store.name] = kept
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert any(store.name in row for row in TABLE.values())


def test_conversion_is_verified_and_read_in_rust_and_python(store, tables, tmp_path, monkeypatch):
    url, local = store.url("set"), tmp_path / "local"
    if "create only" in store.kind.defects:
        careless = {name: value for name, value in store.environment.items() if name != "SHARDMILL_SINGLE_WRITER"}
        status, _, error = replace(store, environment=careless).run("convert", tables[0], url)
        assert status == 2 and "store-unguarded" in error, error
    for to in (url, local):
        store.ok("convert", tables[0], to, "--samples-per-shard", "100")
    assert "all is well" in store.ok("verify", url, "--deep")
    # The same rows, by a range and by all shards.
    for rows in ("777", f"0..{ROWS}"):
        assert store.ok("cat", url, rows) == store.ok("cat", local, rows)
    found = [(int(row["id"]), row["text"]) for row in read(store, url, tmp_path / "cache", monkeypatch)]
    assert found == [(number, f"a {number}" * 20) for number in range(ROWS)]
    # Nothing is left to do.
    store.ok("convert", tables[0], url, "--samples-per-shard", "100")


def test_more_objects_than_a_page_are_listed(store, tables, tmp_path):
    store.needs("pages")
    many, count = store.url("many"), 1100
    rows = ["--where", f"id < {count}", "--samples-per-shard", "1"]
    store.ok("convert", tables[0], many, *rows)
    assert f"in {count:,} shards" in store.ok("verify", many)
    # A tree of files is found by a listing alone.
    out = store.ok("convert", many, tmp_path / "files", "--from", "tree", "--include", "*.zstd")
    assert f"{count:,} samples" in out


def test_one_of_two_writers_wins(store, tables, tmp_path):
    store.needs("create only")
    url = store.url("race")
    writers = [store.start("convert", table, url, "--samples-per-shard", "20") for table in tables]
    errors = [writer.communicate(timeout=300)[1] for writer in writers]
    statuses = [writer.returncode for writer in writers]
    assert sorted(statuses) == [0, 4], errors
    assert "all is well" in store.ok("verify", url, "--deep")
    winner = "ab"[statuses.index(0)]
    assert f'"text":"{winner} 7' in store.ok("cat", url, "7")


def test_killed_conversion_is_resumed(store, tables, tmp_path):
    args = ["--samples-per-shard", "20"]
    began = time.monotonic()
    store.ok("convert", tables[0], store.url("calm"), *args)
    took = time.monotonic() - began
    for share in (0.4, 0.7):
        url = store.url(f"killed-{share}")
        writer = store.start("convert", tables[0], url, *args)
        time.sleep(took * share)
        writer.kill()
        writer.communicate()
        # Its lease ends with it.
        store.ok("convert", tables[0], url, *args, "--takeover-after", "1s")
        assert "all is well" in store.ok("verify", url, "--deep")
        assert store.ok("cat", url, "0..") == store.ok("cat", store.url("calm"), "0..")


def test_overwritten_dataset_is_never_mixed(store, tables, tmp_path, monkeypatch):
    url = store.url("replaced")
    args = ["--samples-per-shard", "100"]
    store.ok("convert", tables[0], url, *args)
    old = read(store, url, tmp_path / "old", monkeypatch)
    assert old[0]["text"] == "a 0" * 20
    store.ok("convert", tables[1], url, *args, "--overwrite")
    assert "all is well" in store.ok("verify", url, "--deep")
    new = read(store, url, tmp_path / "new", monkeypatch)
    assert new[ROWS - 1]["text"] == f"b {ROWS - 1}" * 20
    try:
        assert old[ROWS - 1]["text"] == f"a {ROWS - 1}" * 20
    except ShardmillError as error:
        # A replaced dataset has shards of other names.
        assert error.id in ("shard-missing", "remote-changed", "not-found", "hash-mismatch"), error
