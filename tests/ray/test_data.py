"""Sinks and sources in a real Ray: values, order, workers and drivers that are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import ray.data

# The store of the tests of the package.
sys.path.append(str(Path(__file__).parents[2] / "python" / "tests"))

from support.bucket import Bucket
from support.sweep import names, swept

from shardmill import LocalDataset, parts
from shardmill.errors import ConflictError, MissingIndexError, UsageError
from shardmill.ray import MDSDatasink, MDSDatasource, WebDatasetDatasink, WebDatasetDatasource

PROGRAM = Path(__file__).parent / "programs" / "killed.py"


def described(batch):
    ids = batch["id"]
    return {"id": ids, "text": np.array([str(number) for number in ids]), "pair": np.stack([ids, -ids], 1)}


def frame(rows=100, blocks=3):
    return ray.data.range(rows, override_num_blocks=blocks).map_batches(described)


def read(place):
    dataset = LocalDataset(str(place))
    return [dataset[number] for number in range(len(dataset))]


def ids(place):
    return [int(sample["id"]) for sample in read(place)]


def tree(place):
    return {str(path.relative_to(place)): path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}


def listed(place):
    shards = json.loads((place / "index.json").read_text())["shards"]
    return {"index.json"} | {(shard["zip_data"] or shard["raw_data"])["basename"] for shard in shards}


def test_written_dataset_can_be_read(tmp_path, torch):
    sink = MDSDatasink(str(tmp_path / "out"), size_limit=400, hashes=["xxh64", "sha256"], compression="zstd")
    frame().write_datasink(sink)
    assert (sink.committed.samples, sink.committed.total_samples) == (100, 100)
    # Before they are read: then they are unpacked there as well.
    assert set(tree(tmp_path / "out")) == listed(tmp_path / "out")
    assert ids(tmp_path / "out") == list(range(100))
    sample = read(tmp_path / "out")[7]
    assert sample["text"] == "7" and sample["pair"].tolist() == [7, -7]

    source = MDSDatasource(str(tmp_path / "out"), batch_size=7)
    tasks = source.get_read_tasks(4)
    assert len(tasks) == 4
    assert [sum(len(block) for block in task()) for task in tasks] == [task.metadata.num_rows for task in tasks]
    assert sum(task.metadata.num_rows for task in tasks) == 100
    data = ray.data.read_datasource(source)
    assert data.schema().names == ["id", "pair", "text"], "without reading"
    assert data.count() == 100
    rows = data.take_all()
    assert Counter((row["id"], row["text"], tuple(row["pair"])) for row in rows) == Counter(
        (number, str(number), (number, -number)) for number in range(100)
    )
    found = []
    for batch in data.select_columns(["id", "pair"]).iter_torch_batches(batch_size=32):
        assert isinstance(batch["pair"], torch.Tensor) and batch["pair"].shape[1:] == (2,)
        assert batch["pair"][:, 0].equal(batch["id"])
        found += batch["id"].tolist()
    assert sorted(found) == list(range(100))


def test_equal_blocks_write_equal_bytes(tmp_path):
    for name in ("a", "b"):
        frame(99).write_datasink(MDSDatasink(str(tmp_path / name), size_limit=400))
    assert tree(tmp_path / "a") == tree(tmp_path / "b")
    # And those that one process makes of them.
    staging = parts.begin(str(tmp_path / "c"))
    manifests = []
    for number, (start, end) in enumerate([(0, 33), (33, 66), (66, 99)]):
        numbers = np.arange(start, end)
        pair = pa.FixedSizeListArray.from_arrays(np.stack([numbers, -numbers], 1).ravel(), 2)
        table = pa.table({"id": numbers, "text": [str(each) for each in numbers], "pair": pair})
        manifests.append(parts.write_part([table], staging, number, size_limit=400))
    parts.commit(manifests, staging)
    assert tree(tmp_path / "a") == tree(tmp_path / "c")


def test_mode_selects_error_append_or_overwrite(tmp_path):
    place = tmp_path / "out"
    frame(40).write_datasink(MDSDatasink(str(place)))
    with pytest.raises(ConflictError):
        MDSDatasink(str(place))
    frame(30).write_datasink(MDSDatasink(str(place), mode="append"))
    assert ids(place) == [*range(40), *range(30)]
    before = tree(place)
    frame(20).write_datasink(MDSDatasink(str(place), mode="overwrite"))
    assert ids(place) == list(range(20))
    assert before.keys() < tree(place).keys()
    parts.gc(str(place), older_than=None, delete=True)
    assert set(tree(place)) == listed(place)
    with pytest.raises(UsageError):
        MDSDatasink(str(place), mode="ignore")
    with pytest.raises(MissingIndexError):
        MDSDatasource(str(tmp_path / "nowhere"))
    with pytest.raises(UsageError):
        WebDatasetDatasource(str(place))


def test_webdataset_sink_and_source_round_trip(tmp_path):
    sink = WebDatasetDatasink(str(tmp_path / "out"), columns=["text", "id"], key="id", shard_pattern="x-%04d.tar", size_limit="20kb")
    frame().write_datasink(sink)
    assert {"x-00000-0000.tar", "x-00002-0000.tar.idx"} < set(tree(tmp_path / "out"))
    data = ray.data.read_datasource(WebDatasetDatasource(str(tmp_path / "out")))
    assert data.count() == 100
    rows = data.take_all()
    assert Counter((row["__key__"], row["text"], row["id"]) for row in rows) == Counter(
        (str(number), str(number), number) for number in range(100)
    )


def test_empty_and_uneven_blocks_are_written(tmp_path):
    data = frame(90, 6).filter(lambda row: 20 <= row["id"] < 35)
    data.write_datasink(MDSDatasink(str(tmp_path / "few")))
    assert ids(tmp_path / "few") == list(range(20, 35))
    frame().filter(lambda row: row["id"] < 0).write_datasink(MDSDatasink(str(tmp_path / "none")))
    assert ids(tmp_path / "none") == []
    assert ray.data.read_datasource(MDSDatasource(str(tmp_path / "none"))).count() == 0
    frame(100, 8).repartition(3).write_datasink(MDSDatasink(str(tmp_path / "again")))
    assert ids(tmp_path / "again") == list(range(100))
    frame(100, 4).limit(37).write_datasink(MDSDatasink(str(tmp_path / "some")))
    assert sorted(ids(tmp_path / "some")) == list(range(37))
    frame(100, 4).random_shuffle(seed=1).write_datasink(MDSDatasink(str(tmp_path / "mixed")))
    assert sorted(ids(tmp_path / "mixed")) == list(range(100))
    assert ids(tmp_path / "mixed") != list(range(100))


def test_null_value_is_an_error(tmp_path):
    table = pa.table({"id": [1, None]})
    with pytest.raises(Exception, match="row 1 is null"):
        ray.data.from_arrow(table).write_datasink(MDSDatasink(str(tmp_path / "out")))
    assert not tree(tmp_path / "out") if (tmp_path / "out").exists() else True


def shaky(folder, times, how):
    """Ends the process, or fails, in the middle of a block, the given number of times."""

    def run(batch):
        if 50 in batch["id"]:
            tries = len(os.listdir(folder))
            if tries < times:
                Path(folder, str(tries)).write_text("")
                if how == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise RuntimeError("a task that fails")
        return batch

    return run


def test_a_worker_that_is_killed_while_it_writes(tmp_path):
    (tmp_path / "tries").mkdir()
    data = frame().map_batches(shaky(str(tmp_path / "tries"), 1, "kill"), batch_size=5)
    data.write_datasink(MDSDatasink(str(tmp_path / "out"), size_limit=200))
    assert len(list((tmp_path / "tries").iterdir())) == 1, "nothing was killed"
    assert ids(tmp_path / "out") == list(range(100))
    assert set(tree(tmp_path / "out")) == listed(tmp_path / "out"), "what it had written is gone"
    frame().write_datasink(MDSDatasink(str(tmp_path / "calm"), size_limit=200))
    assert tree(tmp_path / "out") == tree(tmp_path / "calm")


def test_permanent_task_failure_leaves_no_dataset(tmp_path):
    (tmp_path / "tries").mkdir()
    data = frame().map_batches(shaky(str(tmp_path / "tries"), 1000, "fail"), batch_size=5)
    with pytest.raises(Exception, match="a task that fails"):
        data.write_datasink(MDSDatasink(str(tmp_path / "out"), size_limit=200))
    assert not (tmp_path / "out" / "index.json").exists()
    assert swept(str(tmp_path / "out"), lambda: names(tmp_path / "out"), set()) == set()
    frame().write_datasink(MDSDatasink(str(tmp_path / "out")))
    assert ids(tmp_path / "out") == list(range(100))


def test_sink_and_source_support_s3(tmp_path):
    bucket = Bucket()
    try:
        place, settings = "s3://bucket/sets/tokens", bucket.environment
        (tmp_path / "tries").mkdir()
        data = frame().map_batches(shaky(str(tmp_path / "tries"), 1, "kill"), batch_size=5)
        data.write_datasink(MDSDatasink(place, size_limit=200, storage_options=settings))
        assert len(list((tmp_path / "tries").iterdir())) == 1, "nothing was killed"
        names = [shard["raw_data"]["basename"] for shard in json.loads(bucket.objects["sets/tokens/index.json"])["shards"]]
        assert set(bucket.objects) == {"sets/tokens/index.json", *(f"sets/tokens/{name}" for name in names)}
        found = ray.data.read_datasource(MDSDatasource(place, columns=["id"], storage_options=settings)).take_all()
        assert sorted(row["id"] for row in found) == list(range(100))
    finally:
        bucket.close()


def test_a_driver_that_is_killed_before_the_commit(tmp_path):
    place = tmp_path / "out"
    ray.data.range(10).write_datasink(MDSDatasink(str(place)))
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(place)], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]
    assert ids(place) == list(range(10))
    left = parts.gc(str(place), older_than=None)
    assert {entry.reason for entry in left} == {"attempt"} and left
    ray.data.range(100, override_num_blocks=3).write_datasink(MDSDatasink(str(place), mode="append"))
    assert ids(place) == [*range(10), *range(100)]
    parts.gc(str(place), older_than=None, delete=True)
    assert set(tree(place)) == listed(place)


def test_second_sink_to_same_output_is_an_error(tmp_path):
    place = str(tmp_path / "out")
    sinks = [MDSDatasink(place), MDSDatasink(place)]
    frame(10).write_datasink(sinks[0])
    other = frame(10).map_batches(lambda batch: {**batch, "id": batch["id"] + 50})
    with pytest.raises(Exception, match="dest-exists"):
        other.write_datasink(sinks[1])
    # A sink that was used is another job the next time.
    with pytest.raises(Exception, match="dest-exists"):
        other.write_datasink(sinks[0])
    assert sorted(ids(tmp_path / "out")) == list(range(10))
    append = MDSDatasink(place, mode="append")
    other.write_datasink(append)
    frame(10).write_datasink(append)
    assert sorted(ids(tmp_path / "out")) == sorted([*range(10), *range(50, 60), *range(10)])


def tensors(values):
    from ray.data.extensions import ArrowTensorArray

    column = np.empty(len(values), dtype=object)
    column[:] = values
    return ray.data.from_arrow(pa.table({"x": ArrowTensorArray.from_numpy(column)}))


def test_tensors_of_several_shapes_round_trip(tmp_path):
    for name, shapes, dtype in (
        ("one", [(2,), (5,), (1,)], np.float32),
        ("two", [(2, 3), (1, 3), (4, 1)], np.int64),
        ("flags", [(2, 3), (1, 3)], np.bool_),
    ):
        values = [np.arange(np.prod(shape)).reshape(shape).astype(dtype) for shape in shapes]
        tensors(values).write_datasink(MDSDatasink(str(tmp_path / name)))
        stored = [sample["x"] for sample in read(tmp_path / name)]
        back = ray.data.read_datasource(MDSDatasource(str(tmp_path / name)))
        back.write_datasink(MDSDatasink(str(tmp_path / f"{name}-again")))
        for found in (stored, [sample["x"] for sample in read(tmp_path / f"{name}-again")]):
            assert all(np.array_equal(one, other) and one.shape == other.shape for one, other in zip(found, values))
            assert {each.dtype for each in found} == {np.dtype(np.uint8 if dtype is np.bool_ else dtype)}
            assert len(found) == len(values)


def test_boolean_tensors_are_stored_as_bytes(tmp_path):
    ray.data.from_numpy(np.array([[True, False, True], [False, False, True]])).write_datasink(MDSDatasink(str(tmp_path / "out")))
    assert [sample["data"].tolist() for sample in read(tmp_path / "out")] == [[1, 0, 1], [0, 0, 1]]
    shard = json.loads((tmp_path / "out" / "index.json").read_text())["shards"][0]
    assert shard["column_encodings"] == ["ndarray:uint8:3"]


def test_unsupported_tensors_are_errors(tmp_path):
    from ray.data.extensions import ArrowTensorArray

    for array, words in (
        (ArrowTensorArray.from_numpy(np.ones((2, 0, 3))), "column x: tensors of the shape .0, 3. have no elements"),
        (pa.concat_arrays([ArrowTensorArray.from_numpy(np.ones((1, 2))), pa.nulls(1, ArrowTensorArray.from_numpy(np.ones((1, 2))).type)]),
         "column x: a tensor is null"),
    ):
        with pytest.raises(Exception, match=words):
            ray.data.from_arrow(pa.table({"x": array})).write_datasink(MDSDatasink(str(tmp_path / "out")))
        assert not (tmp_path / "out").exists(), "the folder that the write has made"


def test_options_accept_command_line_values(tmp_path):
    sink = MDSDatasink(str(tmp_path / "out"), compression="none", hashes="sha256,xxh64", size_limit="1KiB", samples_per_shard="0.01k")
    frame(25, 1).write_datasink(sink)
    shards = json.loads((tmp_path / "out" / "index.json").read_text())["shards"]
    assert [shard["samples"] for shard in shards] == [10, 10, 5]
    assert all(shard["compression"] is None and shard["size_limit"] == 1024 for shard in shards)
    assert sorted(shards[0]["raw_data"]["hashes"]) == ["sha256", "xxh64"]
    for words, options in (("samples_per_shard: 0", {"samples_per_shard": 0}), ("size_limit: '1XB'", {"size_limit": "1XB"})):
        with pytest.raises(UsageError, match=words):
            MDSDatasink(str(tmp_path / "other"), **options)
    with pytest.raises(UsageError, match="there is no column `nope`, only id, pair, text"):
        MDSDatasource(str(tmp_path / "out"), columns=["nope"])
    with pytest.raises(UsageError, match="a list of names"):
        MDSDatasource(str(tmp_path / "out"), columns="id")


def test_append_with_other_columns_fails_before_writing(tmp_path):
    frame(10).write_datasink(MDSDatasink(str(tmp_path / "out")))
    other = frame(10).map_batches(lambda batch: {**batch, "id": batch["id"].astype(np.int32)})
    with pytest.raises(Exception, match=r"id .int64.*the job writes id .int32"):
        other.write_datasink(MDSDatasink(str(tmp_path / "out"), mode="append"))
    assert set(tree(tmp_path / "out")) == listed(tmp_path / "out")
