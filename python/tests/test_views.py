"""Views: datasets that read only selected samples."""

from __future__ import annotations

import json
import os
import pickle
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from test_deleted import delete, numbers, write

from shardmill import LocalDataset, Stream, StreamingDataset, View, inspect, select
from shardmill.errors import ConflictError, DataError, NotFoundError, UsageError
from shardmill.reports import DatasetReport

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

SIZES = [9, 6, 12, 7, 3, 11, 12]
TOTAL = sum(SIZES)
#: No sample of the second and the fifth shard.
CHOSEN = [0, 3, 4, 8, *range(15, 25), 28, 30, 33, 37, 38, 41, 47, 48, *range(50, 58)]
ALGOS = [None, 'py1e', 'py1s', 'py1br', 'py2s', 'naive', 'shardmill']


@pytest.fixture(scope='module')
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp('views') / 'shards', range(TOTAL), SIZES)


@pytest.fixture(scope='module')
def view(shards: Path) -> View:
    return select(shards, samples=CHOSEN)


@pytest.fixture(scope='module')
def rewritten(shards: Path) -> Path:
    return rewrite(shards.parent / 'rewritten', CHOSEN)


def sizes_of(chosen: Iterable[int]) -> list[int]:
    """How many of these samples each shard has."""
    starts = np.cumsum([0, *SIZES])
    counts, _ = np.histogram(list(chosen), starts)
    return [int(count) for count in counts]


def rewrite(folder: Path, chosen: Iterable[int]) -> Path:
    """A dataset of these samples only, in shards of the remaining sizes."""
    chosen = sorted(chosen)
    return write(folder, chosen, [size for size in sizes_of(chosen) if size])


def ranks(options: dict[str, Any], world: int, workers: int) -> Iterator[StreamingDataset[Any]]:
    for rank in range(world):
        for worker in range(workers):
            yield StreamingDataset(
                rank=rank,
                world_size=world,
                local_world_size=world,
                worker=worker,
                num_workers=workers,
                **options,
            )


def epoch(options: dict[str, Any], world: int, workers: int, state: Any = None) -> list[list[int]]:
    """What each worker reads in an epoch."""
    found = []
    for dataset in ranks(options, world, workers):
        if state is not None:
            dataset.load_state_dict(dict(state))
        found.append(numbers(dataset))
    return found


def test_views_support_set_operations(shards: Path, view: View, tmp_path: Path) -> None:
    low = select(shards, where='n < 20')
    assert list(low) == list(range(20))
    assert list(view) == CHOSEN
    assert len(view) == len(CHOSEN)
    assert 3 in view
    assert 1 not in view
    assert list(view & low) == [n for n in CHOSEN if n < 20]
    assert set(view | low) == {*CHOSEN, *range(20)}
    assert list(view - low) == [n for n in CHOSEN if n >= 20]
    assert list(~view) == [n for n in range(TOTAL) if n not in CHOSEN]
    assert ~~view == view != low
    assert (view == 3) is False
    assert hash(~~view) == hash(view)
    assert view.num_stored == TOTAL
    assert view.index.startswith('sha256:')
    assert repr(view) == f'<View of 30 of 60 stored samples, {view.index[:15]}>'
    assert pickle.loads(pickle.dumps(view)) == view
    view.save(tmp_path / 'v.view')
    assert View(tmp_path / 'v.view') == view
    assert View.from_bytes((tmp_path / 'v.view').read_bytes()) == view
    with pytest.raises(ConflictError):
        view.save(tmp_path / 'v.view')
    low.save(tmp_path / 'v.view', overwrite=True)
    assert View(str(tmp_path / 'v.view')) == low
    with pytest.raises(TypeError):
        view & 3  # type: ignore[operator]


def test_select_accepts_where_keys_and_samples(shards: Path, tmp_path: Path) -> None:
    keys = ['text of 5', 'text of 41']
    assert list(select(shards, keys=keys, key_column='text')) == [5, 41]
    both = select(shards, where='n % 2 = 1', samples=np.arange(10), out=tmp_path / 'odd.view')
    assert list(both) == [1, 3, 5, 7, 9]
    assert View(tmp_path / 'odd.view') == both
    with pytest.raises(UsageError, match='give `where`, `keys` or `samples`'):
        select(shards)
    with pytest.raises(UsageError, match='line break'):
        select(shards, keys=['a\nb'])
    with pytest.raises(NotFoundError, match='first of 1 such keys of 2'):
        select(shards, keys=['text of 5', 'none'], key_column='text')
    with pytest.raises(UsageError):
        select(shards, samples=[TOTAL])
    with pytest.raises(ConflictError):
        select(shards, samples=[1], out=tmp_path / 'odd.view')


def test_indexes_and_lengths_are_of_the_view(shards: Path, view: View, tmp_path: Path) -> None:
    view.save(tmp_path / 'v.view')
    for dataset in (
        LocalDataset(shards, view=view),
        StreamingDataset(local=shards, batch_size=4, view=tmp_path / 'v.view'),
        StreamingDataset(streams=[Stream(local=shards, view=view)], batch_size=4),
    ):
        assert len(dataset) == dataset.num_samples == len(CHOSEN)
        again = pickle.loads(pickle.dumps(dataset))
        for each in (dataset, again):
            assert [each[number]['n'] for number in range(len(each))] == CHOSEN
        with pytest.raises(IndexError):
            dataset[len(CHOSEN)]
        assert [len(shard) for shard in dataset.shards] == sizes_of(CHOSEN)
        found = []
        for number in range(len(CHOSEN)):
            shard, at = dataset.spanner[number]
            found.append(dataset.shards[shard][at]['n'])
        assert found == CHOSEN


@pytest.mark.parametrize('algo', ALGOS)
def test_view_order_equals_rewritten_dataset(
    shards: Path, view: View, rewritten: Path, algo: str | None
) -> None:
    options: dict[str, Any] = {'shuffle': algo is not None, 'shuffle_algo': algo or 'py1e'}
    for world, workers, nodes, batch in [(1, 1, 1, 4), (2, 1, 2, 3), (3, 2, 1, 2), (4, 1, 4, 1)]:
        options.update(batch_size=batch, num_canonical_nodes=nodes, shuffle_block_size=20)
        found = epoch({**options, 'local': shards, 'view': view}, world, workers)
        assert found == epoch({**options, 'local': rewritten}, world, workers)


def test_view_stream_weights_equal_rewritten_dataset(
    shards: Path, view: View, rewritten: Path
) -> None:
    for granularity in (1, 2, 5):
        for share in (
            {'choose': 11},
            {'repeat': 1.7},
        ):
            found = [
                StreamingDataset(
                    streams=[Stream(local=local, view=given, **share)],
                    batch_size=3,
                    shuffle=True,
                    sampling_granularity=granularity,
                )
                for local, given in ((shards, view), (rewritten, None))
            ]
            assert numbers(found[0]) == numbers(found[1])


@pytest.mark.parametrize('cases', [100, pytest.param(500, marks=pytest.mark.slow)])
def test_random_view_runs_resume_exactly(cases: int, shards: Path, tmp_path: Path) -> None:
    """In random cases: a view, an order, a place to stop, and another world."""
    draw = random.Random(8)
    parts = [select(shards, samples=draw.sample(range(TOTAL), 30)) for _ in range(5)]
    datasets: dict[bytes, Path] = {}
    for _ in range(cases):
        view = draw.choice(parts) | (draw.choice(parts) - draw.choice(parts))
        if draw.random() < 0.3:
            view = ~view | parts[0]
        name = view.to_bytes()
        if name not in datasets:
            datasets[name] = rewrite(tmp_path / str(len(datasets)), view)
        batch, total = draw.choice([(1, 4), (2, 4), (3, 6), (2, 8)])
        first, then = (draw.choice([n for n in (1, 2, 3, 4) if total % n == 0]) for _ in range(2))
        algo = draw.choice(ALGOS)
        options = {
            'shuffle': algo is not None,
            'shuffle_algo': algo or 'py1e',
            'shuffle_seed': draw.randrange(1000),
            'num_canonical_nodes': total,
            'batch_size': batch,
        }
        of_view = {**options, 'local': shards, 'view': view}
        # The samples of whole steps, as the first rank counts them.
        dataset = next(ranks(of_view, first, 1))
        iterator = iter(dataset)
        steps = draw.randrange(max(1, len(view) // (first * batch)))
        for _ in range(steps * batch):
            next(iterator)
        state = dataset.state_dict(steps * batch * first, False)
        other = next(ranks({**options, 'local': datasets[name]}, first, 1))
        iterator = iter(other)
        for _ in range(steps * batch):
            next(iterator)
        state_of_other = other.state_dict(steps * batch * first, False)
        found = epoch(of_view, then, 1, state)
        assert found == epoch({**options, 'local': datasets[name]}, then, 1, state_of_other)


def test_state_of_different_view_is_rejected(shards: Path, view: View) -> None:
    def make(view: View | None) -> StreamingDataset[Any]:
        return StreamingDataset(local=shards, batch_size=2, shuffle=True, view=view)

    dataset = make(view)
    next(iter(dataset))
    state = dataset.state_dict(2, False)
    make(view).load_state_dict(dict(state))
    # As many samples of each shard, but others.
    swapped = select(shards, samples=[1 if number == 0 else number for number in CHOSEN])
    for other in (swapped, None):
        foreign = make(other)
        with pytest.raises(ConflictError) as caught:
            foreign.load_state_dict(dict(state))
            next(iter(foreign))
        assert caught.value.id == 'state-foreign'


class Fetching(Stream):
    """Brings its files by a method of its own."""

    def _download_file(self, from_basename: str, to_basename: str | None = None) -> str:
        return super()._download_file(from_basename, to_basename)


@pytest.mark.parametrize('kind', [Stream, Fetching])
def test_only_shards_with_selected_samples_are_fetched(
    shards: Path, view: View, tmp_path: Path, kind: type[Stream]
) -> None:
    stream = kind(remote=str(shards), local=str(tmp_path / 'cache'), view=view)
    dataset = StreamingDataset(streams=[stream], batch_size=4, shuffle=True)
    assert sorted(numbers(dataset)) == CHOSEN
    fetched = {name for name in os.listdir(tmp_path / 'cache') if name.endswith('.mds')}
    wanted = {f'shard.{number:05}.mds' for number, size in enumerate(sizes_of(CHOSEN)) if size}
    assert fetched == wanted
    # The folder is the whole dataset for a run without the view.
    again = StreamingDataset(remote=str(shards), local=str(tmp_path / 'cache'), batch_size=4)
    assert numbers(again) == list(range(TOTAL))


def test_deleted_samples_in_a_view_are_skipped(shards: Path, tmp_path: Path) -> None:
    folder = write(tmp_path / 'few', range(TOTAL), SIZES)
    view = select(folder, samples=CHOSEN)
    delete(folder, [(3, 5), (15, 27), (57, 60)])
    left = [n for n in CHOSEN if n not in (3, 4, 57) and not 15 <= n < 27]
    assert numbers(StreamingDataset(local=folder, batch_size=4, view=view)) == left
    assert len(LocalDataset(folder, view=view)) == len(left)
    everything = StreamingDataset(local=folder, batch_size=4, view=view, with_deleted=True)
    assert numbers(everything) == CHOSEN
    for algo in ALGOS[1:]:
        options: dict[str, Any] = {'batch_size': 4, 'shuffle': True, 'shuffle_algo': algo}
        same = tmp_path / f'same-{algo}'
        wanted = epoch({**options, 'local': rewrite(same, left)}, 2, 1)
        assert epoch({**options, 'local': folder, 'view': view}, 2, 1) == wanted
    # Numbers of samples do not count deleted ones.
    assert list(select(folder, samples=[3, 4])) == [5, 6]
    assert list(select(folder, samples=[3, 4], with_deleted=True)) == [3, 4]


def test_each_stream_can_have_its_own_view(shards: Path, view: View, rewritten: Path) -> None:
    streams = [Stream(local=shards, view=view), Stream(local=rewritten)]
    dataset = StreamingDataset(streams=streams, batch_size=4)
    assert [dataset[number]['n'] for number in range(60)] == CHOSEN + CHOSEN
    with pytest.raises(UsageError, match='each of the streams'):
        StreamingDataset(streams=[Stream(local=shards), Stream(local=rewritten)], view=view)
    with pytest.raises(UsageError, match='each of the streams'):
        StreamingDataset(streams=[Stream(local=shards, view=view)], view=view)


def test_views_of_other_datasets_and_damaged_files_rejected(
    view: View, rewritten: Path, shards: Path, tmp_path: Path
) -> None:
    for make in (LocalDataset, StreamingDataset):
        with pytest.raises(ConflictError) as caught:
            make(local=rewritten, view=view)
        assert caught.value.id == 'view-dataset'
        assert caught.value.object == str(rewritten)
    with pytest.raises(ConflictError):
        view & select(rewritten, where='true')
    (tmp_path / 'bad').write_bytes(view.to_bytes()[:-1])
    with pytest.raises(DataError) as damage:
        View(tmp_path / 'bad')
    assert damage.value.id == 'view-damaged'
    with pytest.raises(DataError) as damage:
        View.from_bytes(b'')
    assert damage.value.id == 'view-damaged'
    with pytest.raises(NotFoundError):
        StreamingDataset(local=shards, view=tmp_path / 'gone')
    # The index is part of the dataset, and its name is that of the view.
    assert json.loads((shards / 'index.json').read_text())
    report = inspect(shards)
    assert isinstance(report, DatasetReport)
    assert report.samples == TOTAL
