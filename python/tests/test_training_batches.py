"""Batches of NumPy arrays without torch: their order is that of the loader, and they resume."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import samples as made

import shardmill
from shardmill import MDSWriter, Stream, StreamingDataLoader, StreamingDataset
from shardmill.errors import ConflictError, UsageError

BATCH = made.BATCH


def dataset_of(data: Path, **options: Any) -> StreamingDataset:
    return StreamingDataset(**{'local': str(data), 'batch_size': BATCH, 'shuffle': True, **options})


def of_loader(dataset: StreamingDataset, **options: Any) -> list[list[int]]:
    return [made.numbers(batch) for batch in StreamingDataLoader(dataset, BATCH, **options)]


def of_batches(dataset: StreamingDataset, **options: Any) -> list[list[int]]:
    return [made.numbers(batch) for batch in dataset.batches(**options)]


@pytest.mark.parametrize(('rank', 'ranks'), [(0, 1), (1, 3)])
@pytest.mark.parametrize('drop_last', [False, True])
def test_batch_order_equals_loader_order(
    data: Path, rank: int, ranks: int, drop_last: bool
) -> None:
    world = {'rank': rank, 'world_size': ranks}
    ours, theirs = dataset_of(data, **world), dataset_of(data, **world)
    for _ in range(2):
        expected = of_loader(theirs, drop_last=drop_last)
        assert of_batches(ours, drop_last=drop_last) == expected
        assert all(len(batch) == BATCH for batch in expected[:-1])
    assert (len(expected[-1]) == BATCH) == drop_last


def test_batch_columns_have_numpy_types(data: Path) -> None:
    batch = next(dataset_of(data).batches())
    assert {name: (each.dtype, each.shape) for name, each in batch.items()} == {
        'data': (np.dtype(object), (BATCH,)),
        'number': (np.dtype(np.int64), (BATCH,)),
        'short': (np.dtype(np.uint8), (BATCH,)),
        'text': (np.dtype(object), (BATCH,)),
        'vector': (np.dtype(np.float32), (BATCH, 3)),
    }
    assert isinstance(batch['text'][0], str) and isinstance(batch['data'][0], bytes)


def test_irregular_values_become_object_arrays(tmp_path: Path) -> None:
    columns = {'j': 'json', 'n': 'str_int', 'a': 'ndarray', 'b': 'ndarray:int8'}
    with MDSWriter(out=str(tmp_path), columns=columns) as out:
        for n in range(4):
            out.write(
                {'j': n, 'n': 10**30, 'a': np.zeros((2, n // 2 + 1)), 'b': np.full(2, n, np.int8)}
            )
    dataset = StreamingDataset(local=str(tmp_path), batch_size=4)
    batch = next(dataset.batches())
    assert [batch[name].dtype for name in 'jna'] == [np.dtype(object)] * 3
    assert batch['j'].tolist() == [0, 1, 2, 3] and batch['n'].tolist() == [10**30] * 4
    assert [each.shape for each in batch['a']] == [(2, 1), (2, 1), (2, 2), (2, 2)]
    assert batch['b'].tolist() == [[0, 0], [1, 1], [2, 2], [3, 3]]


def test_only_selected_columns_are_decoded(data: Path, tmp_path: Path) -> None:
    batch = next(dataset_of(data).batches(columns=['vector', 'number']))
    assert list(batch) == ['vector', 'number']
    with pytest.raises(UsageError, match='no column `other`, only data, number'):
        dataset_of(data).batches(columns=['other'])
    with MDSWriter(out=str(tmp_path), columns={'good': 'int', 'bad': 'json'}) as out:
        out.write({'good': 1, 'bad': b'{'})
    damaged = StreamingDataset(local=str(tmp_path), batch_size=1)
    assert next(damaged.batches(columns=['good']))['good'].tolist() == [1]
    with pytest.raises(ValueError, match='Expecting property name'):
        next(damaged.batches())


@pytest.mark.parametrize('steps', [0, 1, 7])
def test_batches_resume_with_other_rank_count(data: Path, steps: int) -> None:
    whole = made.flat(of_loader(dataset_of(data)))
    first = dataset_of(data)
    with first.batches() as batches:
        for _ in range(steps):
            next(batches)
        state = json.loads(json.dumps(batches.state_dict()))
    assert batches.num_samples_yielded == steps * BATCH
    ranks = []
    for rank in range(2):
        dataset = dataset_of(data, rank=rank, world_size=2, batch_size=BATCH // 2)
        dataset.load_state_dict(state)
        ranks.append(of_batches(dataset))
    # Ranks share a global batch in another order.
    found = [sorted(made.flat([*pair])) for pair in zip(*ranks)]
    rest = whole[steps * BATCH :]
    full = len(rest) // BATCH
    assert full > 40
    assert found[:full] == [sorted(rest[at * BATCH : (at + 1) * BATCH]) for at in range(full)]


def test_loader_and_batches_states_are_interchangeable(data: Path) -> None:
    loader = StreamingDataLoader(dataset_of(data), BATCH)
    taken = iter(loader)
    for _ in range(5):
        next(taken)
    dataset = dataset_of(data)
    state = loader.state_dict()
    assert state is not None
    dataset.load_state_dict(state)
    batches = dataset.batches()
    assert made.numbers(next(batches)) == made.numbers(next(taken))
    again = StreamingDataLoader(dataset_of(data), BATCH)
    again.load_state_dict(batches.state_dict())
    assert made.numbers(next(iter(again))) == made.numbers(next(taken))
    with pytest.raises(ConflictError):
        dataset_of(data, shuffle_algo='py1s').load_state_dict(batches.state_dict())


def test_batch_size_must_match_the_dataset(data: Path) -> None:
    with pytest.raises(UsageError, match=r'`batch_size` is 4, and that of the dataset is 8'):
        dataset_of(data).batches(4)
    with pytest.raises(UsageError, match='neither `batches` nor the dataset has a batch size'):
        dataset_of(data, batch_size=None).batches()
    for wrong in (0, 1.5):
        with pytest.raises(ValueError, match='batch_size'):
            dataset_of(data).batches(wrong)  # type: ignore[arg-type]
    late = dataset_of(data, batch_size=None)
    assert of_batches(late, batch_size=BATCH) == of_loader(dataset_of(data))
    assert late.batch_size == BATCH


class Doubled(StreamingDataset):
    def get_item(self, sample_id: int, retry: int = 7) -> Any:
        sample = super().get_item(sample_id, retry)
        return {'number': sample['number'], 'double': 2 * sample['number']}


class Fetched(Stream):
    def _download_file(self, from_basename: str, to_basename: Any = None) -> str:
        return super()._download_file(from_basename, to_basename)


def test_samples_of_subclasses_and_custom_streams_are_stacked(data: Path, tmp_path: Path) -> None:
    expected = of_loader(dataset_of(data))
    doubled = Doubled(local=str(data), batch_size=BATCH, shuffle=True)
    found = list(doubled.batches())
    assert [batch['number'].tolist() for batch in found] == expected
    assert all((batch['double'] == 2 * batch['number']).all() for batch in found)
    assert list(next(doubled.batches(columns=['double']))) == ['double']
    stream = Fetched(remote=str(data), local=str(tmp_path))
    fetched = StreamingDataset(streams=[stream], batch_size=BATCH, shuffle=True)
    assert of_batches(fetched) == expected

    class Numbers(StreamingDataset):
        def __getitem__(self, at: Any) -> Any:
            return super().__getitem__(at)['number']

    with pytest.raises(TypeError, match='samples are dicts'):
        next(Numbers(local=str(data), batch_size=2).batches())


def test_streams_with_different_columns_are_batched(data: Path, tmp_path: Path) -> None:
    with MDSWriter(out=str(tmp_path), columns={'number': 'int', 'other': 'str'}) as out:
        for number in range(40):
            out.write({'number': 1000 + number, 'other': 'x'})
    streams = [Stream(local=str(data)), Stream(local=str(tmp_path))]
    dataset = StreamingDataset(streams=streams, batch_size=BATCH, shuffle=True)
    numbers: list[int] = []
    for batch in dataset.batches(columns=['number', 'other']):
        numbers += batch['number'].tolist()
        for number, other in zip(batch['number'], batch.get('other', [None] * BATCH)):
            assert other == ('x' if number >= 1000 else None)
    assert sorted(numbers)[: made.SAMPLES] == list(range(made.SAMPLES))


def test_second_batches_call_stops_the_first(data: Path) -> None:
    dataset = dataset_of(data)
    first = dataset.batches()
    next(first)
    second = dataset.batches()
    next(second)
    assert len(list(first)) == 0
    second.close()
    assert list(second) == []


def test_batches_work_without_torch_installed(data: Path, tmp_path: Path) -> None:
    installed = Path(np.__file__).parents[1]
    for path in installed.glob('numpy*'):
        (tmp_path / path.name).symlink_to(path)
    program = (
        'import importlib.util\n'
        'from shardmill import StreamingDataset\n'
        "assert importlib.util.find_spec('torch') is None\n"
        f'dataset = StreamingDataset(local={str(data)!r}, batch_size=8, shuffle=True)\n'
        "print(sum(len(batch['number']) for batch in dataset.batches()))\n"
    )
    package = Path(shardmill.__file__).parents[1]
    # Without site-packages.
    run = subprocess.run(
        [sys.executable, '-S', '-c', program],
        env={**os.environ, 'PYTHONPATH': f'{tmp_path}{os.pathsep}{package}'},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout.strip() == str(made.SAMPLES), run.stderr
