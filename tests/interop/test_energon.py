"""Megatron-Energon beside what shardmill writes for it: the same index as its own `prepare`, and its loader reads it."""

import io
import json
import os
import random
import shutil
import sqlite3
import tarfile

import pytest

from conftest import SEED
from megatron.energon import Cooker, CrudeSample, DefaultTaskEncoder, WorkerConfig, get_loader, get_train_dataset, stateless
from megatron.energon.epathlib import EPath
from megatron.energon.flavors.webdataset.indexing import SqliteIndexReader
from megatron.energon.flavors.webdataset.prepare import WebdatasetPreparator

# Keys end at the first dot, as Energon has it.
OPTIONS = ["--to", "webdataset", "--samples-per-shard", "64", "--group", "key"]
TABLES = {
    "samples": "tar_file_id, sample_index",
    "sample_parts": "tar_file_id, sample_index, content_byte_offset",
}


def names(folder):
    return sorted(name for name in os.listdir(folder) if name.endswith(".tar"))


def rows(folder):
    with sqlite3.connect(folder / ".nv-meta" / "index.sqlite") as base:
        return {
            table: base.execute(f"SELECT * FROM {table} ORDER BY {order}").fetchall() for table, order in TABLES.items()
        }


def schema(folder):
    """Columns with their types, and what is unique or indexed in which order."""
    with sqlite3.connect(folder / ".nv-meta" / "index.sqlite") as base:
        assert base.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        found = {}
        for table in TABLES:
            indexes = base.execute(f"PRAGMA index_list({table})").fetchall()
            found[table] = (
                base.execute(f"PRAGMA table_info({table})").fetchall(),
                sorted(
                    (name, unique, [column[2] for column in base.execute(f"PRAGMA index_info({name})")])
                    for _, name, unique, *_ in indexes
                ),
            )
        return found


@pytest.fixture
def tree(tmp_path):
    """400 samples of two or three files, some in folders."""
    draw = random.Random(SEED)
    for number in range(400):
        folder = tmp_path / "tree" / f"{number % 7}"
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{number:04}" if number != 77 else "n" * 80
        (folder / f"{name}.txt").write_text(f"sample {number}")
        (folder / f"{name}.seg.bin").write_bytes(draw.randbytes(draw.randrange(3000)))
        (folder / f"{name}.json").write_text(json.dumps({"number": number}))
    return tmp_path / "tree"


@pytest.fixture(params=["convert", "index export", "TarWriter"])
def written(request, run, tree, tmp_path):
    """Tar files with shardmill's index, by every way there is to one."""
    out = tmp_path / "out"
    if request.param == "convert":
        run("convert", tree, out, *OPTIONS, "--index-for", "energon")
    elif request.param == "index export":
        run("convert", tree, out, *OPTIONS)
        run("index", "export", out, "--for", "energon")
    else:
        import webdataset

        out.mkdir()
        draw = random.Random(SEED + 1)
        for shard in range(3):
            with webdataset.TarWriter(str(out / f"{shard}.tar")) as writer:
                for number in range(50):
                    writer.write(
                        {"__key__": f"{shard}/ä{number}", "txt": "ü" * number, "x.bin": draw.randbytes(number * 9)}
                    )
        run("index", "export", out, "--for", "energon")
    return out


def test_index_of_other_tar_files_equals_energon_prepare(run, tmp_path):
    """A header for all members, directories, files that are no fields, capitals."""
    out = tmp_path / "out"
    out.mkdir()
    with tarfile.open(out / "0.tar", "w", format=tarfile.PAX_FORMAT, pax_headers={"comment": "all"}) as tar:
        for name in ("d", "d/A.JPG", "d/A.Seg.png", "README", "e", "e/.hidden", "__meta__", "f.txt", "f.json", "g"):
            member = tarfile.TarInfo(name)
            if len(name) == 1:
                member.type = tarfile.DIRTYPE
            else:
                member.size = len(name)
            tar.addfile(member, io.BytesIO(name.encode()))
    run("index", "export", out, "--for", "energon")
    test_index_equals_energon_prepare(out, tmp_path)


def test_index_equals_energon_prepare(written, tmp_path):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    tars = names(written)
    for name in tars:
        shutil.copy(written / name, theirs)
    parts = WebdatasetPreparator.prepare_dataset(theirs, tars, split_parts_ratio=[("train", 1.0)], workers=1)
    assert parts
    assert rows(written) == rows(theirs)
    assert schema(written) == schema(theirs)
    for name in tars:
        assert (written / f"{name}.idx").read_bytes() == (theirs / f"{name}.idx").read_bytes(), name
    info = [json.loads((folder / ".nv-meta" / ".info.json").read_text()) for folder in (written, theirs)]
    assert info[0]["shard_counts"] == info[1]["shard_counts"]
    # The order of the shards is what numbers them.
    assert list(info[0]["shard_counts"]) == list(info[1]["shard_counts"])


def test_energon_index_is_deterministic(run, tree, tmp_path):
    for jobs in ("1", "2"):
        run("convert", tree, tmp_path / jobs, *OPTIONS, "--index-for", "energon", "--jobs", jobs)
    for name in ("index.sqlite", "index.uuid", ".info.json", "split.yaml", "dataset.yaml"):
        one, two = (tmp_path / jobs / ".nv-meta" / name for jobs in ("1", "2"))
        assert one.read_bytes() == two.read_bytes(), name
    assert len((tmp_path / "1" / ".nv-meta" / "index.uuid").read_text()) == 36


@stateless
def as_it_is(sample):
    return sample


class AsTheyAre(DefaultTaskEncoder):
    cookers = [Cooker(as_it_is)]
    decoder = None


@pytest.mark.filterwarnings("ignore:.pin_memory. argument")
def test_energon_reads_the_dataset(written):
    """Its loader, without a shuffle, and its access by key."""
    config = WorkerConfig(rank=0, world_size=1, num_workers=0)
    dataset = get_train_dataset(
        EPath(written),
        worker_config=config,
        batch_size=None,
        shuffle_buffer_size=None,
        max_samples_per_sequence=None,
        repeat=False,
        task_encoder=AsTheyAre(),
    )
    found = {sample["__key__"]: sample for sample in get_loader(dataset)}
    wanted = rows(written)
    assert len(found) == len(wanted["samples"])
    parts = {}
    for file, number, part, offset, size in wanted["sample_parts"]:
        parts.setdefault((file, number), {})[part] = (offset, size)
    tars = names(written)
    reader = SqliteIndexReader(EPath(written / ".nv-meta" / "index.sqlite"))
    for file, key, number, begin, size in wanted["samples"]:
        pointer = reader.get_sample_pointer_by_key(key)
        assert (pointer.tar_file_id, pointer.byte_offset, pointer.byte_size) == (file, begin, size)
        sample = found[key]
        with open(written / tars[file], "rb") as tar:
            for part, (offset, length) in parts[file, number].items():
                tar.seek(offset)
                assert sample[part] == tar.read(length), (key, part)
    reader.close()
    assert isinstance(sample, CrudeSample)
