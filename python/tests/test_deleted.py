"""Samples that the table of a dataset no longer has."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from shardmill import LocalDataset, MDSWriter, Stream, StreamingDataset, _tables
from shardmill.base.util import merge_index
from shardmill.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from support.store import Store

#: The shards store 7, 7, 7, 7 and 2 samples. Of the second none is left.
DELETED = [(0, 1), (5, 6), (7, 14), (29, 30)]
LIVE = [5, 0, 7, 7, 1]


def write(folder: Path, numbers: Iterable[int], sizes: Iterable[int]) -> Path:
    """A dataset of these numbers, in shards of these sizes."""
    numbers = iter(numbers)
    shards: list[Any] = []
    for size in sizes:
        # A shard at a time, so that each has the size that is asked for.
        part = folder / 'part'
        with MDSWriter(out=str(part), columns={'n': 'int', 'text': 'str'}) as out:
            for _ in range(size):
                number = next(numbers)
                out.write({'n': number, 'text': f'text of {number}'})
        info = json.loads((part / 'index.json').read_text())['shards']
        if info:
            name = f'shard.{len(shards):05}.mds'
            (part / info[0]['raw_data']['basename']).rename(folder / name)
            info[0]['raw_data']['basename'] = name
            shards += info
        shutil.rmtree(part)
    (folder / 'index.json').write_text(json.dumps({'version': 2, 'shards': shards}))
    return folder


def delete(folder: Path, ranges: list[tuple[int, int]]) -> Path:
    """Notes that samples of a dataset are deleted."""
    index = json.loads((folder / 'index.json').read_text())
    count = sum(end - start for start, end in ranges)
    text = json.dumps({'tombstones': 1, 'count': count, 'samples': ranges}).encode()
    (folder / 'index.tombstones').write_bytes(text)
    note = {'count': count, 'bytes': len(text), 'sha256': hashlib.sha256(text).hexdigest()}
    samples = sum(shard['samples'] for shard in index['shards'])
    noted = {'samples': samples, 'shards': len(index['shards']), 'tombstones': note}
    (folder / 'index.provenance').write_text(json.dumps(noted))
    return folder


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    return delete(write(tmp_path / 'shards', range(30), [7, 7, 7, 7, 2]), DELETED)


def left() -> list[int]:
    return [n for n in range(30) if not any(start <= n < end for start, end in DELETED)]


def test_tables_of_shards_lack_them(shards: Path, store: Store, served: Path) -> None:
    shutil.copytree(shards, served / 'lacking')
    for place, settings in ((str(shards), None), ('s3://bucket/lacking', store.environment)):
        table, found = _tables.open_table(place, settings)
        assert [shard.samples for shard in found] == LIVE
        batches = [batch for each in found for batch in _tables.read_shard(table, each)]
        assert [n for batch in batches for n in batch.column('n').to_pylist()] == left()


def numbers(dataset: Any) -> list[int]:
    return [sample['n'] for sample in dataset]


def each(dataset: LocalDataset) -> list[int]:
    return [dataset[number]['n'] for number in range(len(dataset))]


def test_indexes_and_lengths_exclude_deleted_samples(shards: Path) -> None:
    for dataset in (
        LocalDataset(str(shards)),
        StreamingDataset(local=str(shards), batch_size=4),
    ):
        assert len(dataset) == dataset.size == dataset.num_samples == 20
        assert [dataset[number]['n'] for number in range(20)] == left()
        assert dataset[-1]['n'] == 28
        with pytest.raises(IndexError):
            dataset[20]
        assert dataset.spanner[5] == (2, 0)
        assert [len(shard) for shard in dataset.shards] == LIVE
        # A shard and a number in it, as subclasses take samples.
        found = []
        for number in range(20):
            shard, at = dataset.spanner[number]
            found.append(dataset.shards[shard][at]['n'])
        assert found == left()
        again = pickle.loads(pickle.dumps(dataset))
        assert [again[number]['n'] for number in range(20)] == left()
    everything = LocalDataset(str(shards), with_deleted=True)
    assert len(everything) == 30
    assert each(everything) == list(range(30))


def test_shard_counts_exclude_deleted_samples(shards: Path) -> None:
    dataset = StreamingDataset(local=str(shards), batch_size=4)
    assert dataset.samples_per_shard.tolist() == LIVE
    assert dataset.sample_offset_per_shard.tolist() == [0, 5, 5, 12, 19]
    assert dataset.samples_per_stream.tolist() == [20]
    assert dataset.epoch_size == 20
    dataset = StreamingDataset(local=str(shards), batch_size=4, with_deleted=True)
    assert dataset.samples_per_shard.tolist() == [7, 7, 7, 7, 2]


@pytest.mark.parametrize('algo', ['py1e', 'py1s', 'py1br', 'py2s', 'naive', 'shardmill'])
def test_order_equals_dataset_without_deleted_samples(
    shards: Path, tmp_path: Path, algo: str
) -> None:
    full = [size for size in LIVE if size]
    other = write(tmp_path / 'other', left(), full)
    few = delete(write(tmp_path / 'few', range(30), [7, 7, 7, 7, 2]), [(0, 1), (5, 6), (29, 30)])
    live = [n for n in range(30) if n not in (0, 5, 29)]
    same = write(tmp_path / 'same', live, [5, 7, 7, 7, 1])
    arguments: dict[str, Any] = {'batch_size': 4, 'shuffle': True, 'shuffle_algo': algo}
    wanted = StreamingDataset(local=str(same), **arguments)
    found = StreamingDataset(local=str(few), **arguments)
    for _ in range(2):
        assert numbers(found) == numbers(wanted)
    # With a shard of which none is left, every sample comes once.
    dataset = StreamingDataset(local=str(shards), **arguments)
    assert sorted(numbers(dataset)) == sorted(
        numbers(StreamingDataset(local=str(other), **arguments))
    )


def test_with_deleted_applies_per_stream(shards: Path) -> None:
    streams = [Stream(local=str(shards)), Stream(local=str(shards), with_deleted=True)]
    dataset = StreamingDataset(streams=streams, batch_size=5)
    assert dataset.samples_per_stream.tolist() == [20, 30]
    assert [dataset[number]['n'] for number in range(50)] == [*left(), *range(30)]


class Fetching(Stream):
    """Brings its files by a method of its own."""

    def _download_file(self, from_basename: str, to_basename: str | None = None) -> str:
        return super()._download_file(from_basename, to_basename)


@pytest.mark.parametrize('kind', [Stream, Fetching])
def test_fully_deleted_shards_are_not_downloaded(
    shards: Path, tmp_path: Path, kind: type[Stream]
) -> None:
    local = tmp_path / 'local'
    stream = kind(remote=str(shards), local=str(local))
    dataset = StreamingDataset(streams=[stream], batch_size=4)
    assert numbers(dataset) == left()
    # What is left of nothing is not fetched.
    assert (local / 'shard.00000.mds').exists()
    assert not (local / 'shard.00001.mds').exists()
    # The folder says itself what is deleted.
    assert len(LocalDataset(str(local))) == 20
    assert not list(local.glob('*.tmp'))


def test_remote_tombstones_are_reloaded(
    store: Store, served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in store.environment.items():
        monkeypatch.setenv(key, value)
    delete(write(served / 'deleted', range(30), [7, 7, 7, 7, 2]), DELETED)
    local = tmp_path / 'local'
    remote = 's3://bucket/deleted'
    dataset = StreamingDataset(remote=remote, local=str(local), batch_size=4)
    assert numbers(dataset) == left()
    assert not (local / 'shard.00001.mds').exists()
    # The table loses more, and the index stays what it is.
    delete(served / 'deleted', [(0, 14), (29, 30)])
    dataset = StreamingDataset(remote=remote, local=str(local), batch_size=4)
    assert numbers(dataset) == list(range(14, 29))
    assert len(LocalDataset(str(local))) == 15
    (served / 'deleted' / 'index.tombstones').unlink()
    with pytest.raises(DataError, match='missing') as caught:
        StreamingDataset(remote=remote, local=str(tmp_path / 'new'), batch_size=4)
    assert caught.value.id == 'tombstones-missing'
    dataset = StreamingDataset(
        remote=remote, local=str(tmp_path / 'all'), batch_size=4, with_deleted=True
    )
    assert numbers(dataset) == list(range(30))


def test_missing_or_damaged_tombstones_are_an_error(shards: Path) -> None:
    for damage in (b'{', None):
        path = shards / 'index.tombstones'
        if damage is None:
            path.unlink()
        else:
            path.write_bytes(damage)
        for open_it in (
            lambda: LocalDataset(str(shards)),
            lambda: StreamingDataset(local=str(shards), batch_size=4),
        ):
            with pytest.raises(DataError) as caught:
                open_it()
            assert caught.value.object == os.fspath(path)
    assert len(LocalDataset(str(shards), with_deleted=True)) == 30


def test_merged_indexes_keep_tombstones(shards: Path, tmp_path: Path) -> None:
    root = tmp_path / 'root'
    shutil.copytree(shards, root / 'a')
    delete(write(root / 'b', range(100, 110), [7, 3]), [(0, 1)])
    merge_index(str(root))
    dataset = LocalDataset(str(root))
    assert each(dataset) == [*left(), *range(101, 110)]
    # Of parts without a list there is none, and that of before goes.
    shutil.rmtree(root / 'a')
    for name in ('index.tombstones', 'index.provenance'):
        (root / 'b' / name).unlink()
    merge_index(str(root))
    assert sorted(path.name for path in root.iterdir()) == ['b', 'index.json']
    assert len(LocalDataset(str(root))) == 10


def test_tables_and_batches_exclude_deleted_samples(shards: Path) -> None:
    pytest.importorskip('pyarrow')
    for dataset in (LocalDataset(str(shards)), StreamingDataset(local=str(shards), batch_size=4)):
        assert dataset.to_arrow()['n'].to_pylist() == left()
        assert dataset.to_arrow(3, 9, ['text'])['text'].to_pylist() == [
            f'text of {number}' for number in left()[3:9]
        ]
    found = [batch['n'] for batch in StreamingDataset(local=str(shards), batch_size=4).batches()]
    assert sorted(number for batch in found for number in batch) == left()
    whole = LocalDataset(str(shards), with_deleted=True)
    assert whole.to_arrow()['n'].to_pylist() == list(range(30))
