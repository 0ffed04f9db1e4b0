"""Windows: samples with their neighbours in the same episode."""

from __future__ import annotations

import json
import pickle
import random
import shutil
from typing import TYPE_CHECKING, Any, Optional, Union

import numpy as np
import pytest
from test_deleted import delete

from shardmill import (
    FileStream,
    LocalDataset,
    MDSWriter,
    Stream,
    StreamingDataset,
    View,
    Window,
    find_episodes,
    select,
)
from shardmill.errors import ConflictError, UnsupportedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from support.store import Store

COLUMNS = {
    'n': 'int32',
    'episode': 'int',
    'state': 'ndarray:float32:3',
    'any': 'ndarray',
    'text': 'str',
}


def sample(number: int, episode: int) -> dict[str, Any]:
    return {
        'n': np.int32(number),
        'episode': episode,
        'state': np.arange(3, dtype=np.float32) + number,
        'any': np.full((2, 2), number, np.uint8),
        'text': f'text {number}',
    }


def write(
    folder: Path, lengths: Iterable[int], sizes: Iterable[int], **options: Any
) -> tuple[Path, list[int]]:
    """Writes episodes of these lengths in shards of these sizes. Returns the episode of each sample."""
    episodes = [number for number, length in enumerate(lengths) for _ in range(length)]
    shards: list[Any] = []
    at = 0
    for size in sizes:
        part = folder / 'part'
        with MDSWriter(out=str(part), columns=COLUMNS, **options) as out:
            for number in range(at, min(at + size, len(episodes))):
                out.write(sample(number, episodes[number]))
        at += size
        for info in json.loads((part / 'index.json').read_text())['shards']:
            for key in ('raw_data', 'zip_data'):
                if info[key]:
                    ending = info[key]['basename'].partition('.')[2].partition('.')[2]
                    name = f'shard.{len(shards):05}.{ending}'
                    if (part / info[key]['basename']).exists():
                        (part / info[key]['basename']).rename(folder / name)
                    info[key]['basename'] = name
            shards.append(info)
        shutil.rmtree(part)
    (folder / 'index.json').write_text(json.dumps({'version': 2, 'shards': shards}))
    return folder, episodes


def windows(
    episodes: Sequence[int],
    offsets: Sequence[int],
    pad: bool = False,
    deleted: Iterable[int] = (),
    anchors: Optional[Iterable[int]] = None,
) -> list[tuple[list[int], list[bool]]]:
    """Constructs all windows from a list: their sample numbers, and which are padding."""
    live = [number for number in range(len(episodes)) if number not in set(deleted)]
    found = []
    for number in live if anchors is None else anchors:
        if number not in live:
            continue
        own = [other for other in live if episodes[other] == episodes[number]]
        at = own.index(number)
        wanted = [at + offset for offset in offsets]
        if pad or all(0 <= each < len(own) for each in (*wanted, at)):
            placed = [min(max(each, 0), len(own) - 1) for each in wanted]
            flags = [each != place for each, place in zip(wanted, placed)]
            found.append(([own[place] for place in placed], flags))
    return found


def check_sample(found: dict[str, Any], numbers: list[int], flags: Optional[list[bool]]) -> None:
    assert found['n'].tolist() == numbers
    assert found['n'].dtype == np.int32
    assert found['state'].tolist() == [[number + place for place in range(3)] for number in numbers]
    assert found['any'].shape == (len(numbers), 2, 2)
    assert found['any'][:, 0, 1].tolist() == numbers
    assert found['text'] == [f'text {number}' for number in numbers]
    assert ('n_is_pad' in found) == (flags is not None)
    if flags is not None:
        for name in COLUMNS:
            assert found[f'{name}_is_pad'].tolist() == flags
            assert found[f'{name}_is_pad'].dtype == bool


def read(options: dict[str, Any], world: int, workers: int = 1, state: Any = None) -> list[Any]:
    """Returns the windows that each worker reads in an epoch."""
    found = []
    for rank in range(world):
        for worker in range(workers):
            dataset: StreamingDataset[Any] = StreamingDataset(
                rank=rank,
                world_size=world,
                local_world_size=world,
                worker=worker,
                num_workers=workers,
                **options,
            )
            if state is not None:
                dataset.load_state_dict(dict(state))
            found.append([each['n'].tolist() for each in dataset])
    return found


LENGTHS = [7, 1, 12, 5, 9, 3]
SIZES = [4, 6, 3, 9, 0, 11, 4]
OFFSETS = [-2, -1, 0, 3]


@pytest.fixture(scope='module')
def shards(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    return write(tmp_path_factory.mktemp('windows') / 'shards', LENGTHS, SIZES)


@pytest.mark.parametrize('pad', [None, 'repeat'])
def test_samples_and_batches_contain_windows(
    shards: tuple[Path, list[int]], pad: Optional[str]
) -> None:
    folder, episodes = shards
    window = Window(OFFSETS, episode='episode', pad=pad)
    wanted = windows(episodes, OFFSETS, pad is not None)
    flags = [each if pad else None for _, each in wanted]
    local: LocalDataset[Any] = LocalDataset(folder, window=window)
    assert len(local) == len(wanted)
    dataset: StreamingDataset[Any] = StreamingDataset(local=folder, window=window, batch_size=5)
    for opened in (local, dataset, pickle.loads(pickle.dumps(dataset))):
        for number, (numbers, _) in enumerate(wanted):
            check_sample(opened[number], numbers, flags[number])
    for number, found in enumerate(dataset):
        check_sample(found, wanted[number][0], flags[number])
    begun = 0
    for batch in dataset.batches():
        size = len(batch['n'])
        part = wanted[begun : begun + size]
        assert batch['n'].tolist() == [numbers for numbers, _ in part]
        assert batch['state'].shape == (size, len(OFFSETS), 3)
        assert batch['any'].shape == (size, len(OFFSETS), 2, 2)
        assert batch['text'].tolist() == [[f'text {n}' for n in numbers] for numbers, _ in part]
        if pad:
            assert batch['state_is_pad'].tolist() == [own for _, own in part]
        begun += size
    assert begun == len(wanted)
    chosen = next(iter(dataset.batches(columns=['n'])))
    assert set(chosen) == ({'n', 'n_is_pad'} if pad else {'n'})


def test_columns_can_have_different_window_offsets(shards: tuple[Path, list[int]]) -> None:
    folder, episodes = shards
    offsets = {'state': [-1, 0], 'n': [3, 0, 2]}
    window = Window(offsets, episode='episode', pad='repeat')
    dataset: StreamingDataset[Any] = StreamingDataset(local=folder, window=window, batch_size=4)
    assert len(dataset) == len(episodes)
    wanted = {name: windows(episodes, each, True) for name, each in offsets.items()}
    for number, found in enumerate(dataset):
        assert set(found) == {*COLUMNS, 'state_is_pad', 'n_is_pad'}
        assert found['n'].tolist() == wanted['n'][number][0]
        assert found['n_is_pad'].tolist() == wanted['n'][number][1]
        assert found['state'][:, 0].tolist() == wanted['state'][number][0]
        assert found['text'] == f'text {number}'
        assert found['any'].shape == (2, 2)
    window = Window([0, 1], columns=['n'], episode='episode')
    found = LocalDataset[Any](folder, window=window)[0]
    assert (found['n'].tolist(), found['text']) == ([0, 1], 'text 0')


@pytest.mark.parametrize(
    'seed', [*range(50), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(50, 200))]
)
def test_random_windows_match_list_model_in_any_world(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    lengths = [draw.randint(1, 14) for _ in range(draw.randint(1, 8))]
    sizes: list[int] = []
    while sum(sizes) < sum(lengths):
        sizes.append(draw.randint(1, 9))
    folder, episodes = write(tmp_path / 'shards', lengths, sizes)
    deleted: set[int] = set()
    if draw.random() < 0.4:
        deleted = set(draw.sample(range(len(episodes)), len(episodes) // 4))
        delete(folder, _ranges(sorted(deleted)))
    offsets = sorted(draw.sample(range(-4, 6), draw.randint(1, 4)))
    pad = draw.random() < 0.5
    anchors = None
    view = None
    if draw.random() < 0.3:
        anchors = sorted(draw.sample(range(len(episodes)), max(len(episodes) // 2, 1)))
        view = select(folder, samples=anchors, with_deleted=True)
    wanted = [each for each, _ in windows(episodes, offsets, pad, deleted, anchors)]
    window = Window(offsets, episode='episode', pad='repeat' if pad else None)
    options: dict[str, Any] = {'local': folder, 'window': window, 'view': view}
    if not wanted:
        with pytest.raises((UsageError, RuntimeError), match=r'no sample has all|no samples'):
            StreamingDataset(**options)
        return
    options.update(
        batch_size=draw.randint(1, 4),
        shuffle=draw.random() < 0.8,
        shuffle_algo=draw.choice(['py1e', 'py1s', 'py2s', 'py1br', 'shardmill']),
        num_canonical_nodes=draw.choice([1, 2]),
        shuffle_seed=seed,
    )
    world = draw.randint(1, 3)
    found = read(options, world, draw.randint(1, 2))
    flat = [tuple(each) for own in found for each in own]
    # The last global batch is filled with repeated samples.
    assert set(flat) == {tuple(each) for each in wanted}
    # A world of another size resumes with the windows that were not returned.
    dataset: StreamingDataset[Any] = StreamingDataset(
        rank=0, world_size=1, local_world_size=1, **options
    )
    rows = [each['n'].tolist() for each in dataset]
    cut = draw.randrange(0, len(rows) + 1) // options['batch_size'] * options['batch_size']
    state = dataset.state_dict(cut)
    rest = read(options, draw.randint(1, 3), 1, state)
    seen = {tuple(each) for each in rows[:cut]}
    left = {tuple(each) for own in rest for each in own}
    assert left >= {tuple(each) for each in wanted} - seen
    again = read({**options, 'num_canonical_nodes': None}, 1, 1, state)
    assert again[0] == rows[cut:]


def _ranges(numbers: list[int]) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number:
            ranges[-1] = ranges[-1][0], number + 1
        else:
            ranges.append((number, number + 1))
    return ranges


def test_found_episodes_can_be_saved_and_reused(
    shards: tuple[Path, list[int]], tmp_path: Path
) -> None:
    folder, episodes = shards
    found = find_episodes(folder, 'episode')
    firsts = [number for number, own in enumerate(episodes) if number == episodes.index(own)]
    assert list(found) == firsts
    found.save(tmp_path / 'episodes.view')
    saved = View(tmp_path / 'episodes.view')
    read_with = [
        LocalDataset[Any](folder, window=Window(OFFSETS, episode=each))
        for each in (saved, 'episode')
    ]
    assert [each['text'] for each in read_with[0][:]] == [each['text'] for each in read_with[1][:]]
    # The first samples can also be selected.
    selected = select(folder, samples=firsts)
    assert selected == found
    other, _ = write(tmp_path / 'other', [4, 4], [8])
    with pytest.raises(ConflictError, match='view-dataset'):
        LocalDataset(other, window=Window(OFFSETS, episode=saved))


def test_without_episode_column_dataset_is_one_series(shards: tuple[Path, list[int]]) -> None:
    folder, episodes = shards
    dataset: LocalDataset[Any] = LocalDataset(folder, window=Window([0, 5]))
    assert [each['n'].tolist() for each in dataset[:]] == [
        [number, number + 5] for number in range(len(episodes) - 5)
    ]


def test_state_of_different_windows_is_rejected(shards: tuple[Path, list[int]]) -> None:
    folder, _ = shards
    options: dict[str, Any] = {'local': folder, 'batch_size': 2}
    some = StreamingDataset[Any](window=Window([0, 2], episode='episode'), **options)
    state = some.state_dict(4)
    with pytest.raises(FileExistsError):
        StreamingDataset[Any](**options).load_state_dict(state)
    padded = Window([0, 2], episode='episode', pad='repeat')
    # Padded windows do not change the order of samples.
    StreamingDataset[Any](**options).load_state_dict(
        StreamingDataset[Any](window=padded, **options).state_dict(4)
    )


def test_loaders_collate_windows(shards: tuple[Path, list[int]]) -> None:
    torch = pytest.importorskip('torch')
    from torch.utils.data import DataLoader

    from shardmill import StreamingDataLoader

    folder, episodes = shards
    window = Window({'state': OFFSETS, 'text': [0, 1]}, episode='episode', pad='repeat')
    wanted = windows(episodes, OFFSETS, True)
    for loader, workers in ((StreamingDataLoader, 0), (StreamingDataLoader, 2), (DataLoader, 2)):
        dataset: StreamingDataset[Any] = StreamingDataset(local=folder, window=window, batch_size=4)
        rows = []
        for batch in loader(dataset, batch_size=4, num_workers=workers):
            assert batch['state'].shape[1:] == (len(OFFSETS), 3)
            assert batch['state_is_pad'].dtype == torch.bool
            for place, number in enumerate(batch['n'].tolist()):
                rows.append(number)
                assert batch['state'][place, :, 0].tolist() == wanted[number][0]
                assert batch['state_is_pad'][place].tolist() == wanted[number][1]
                assert batch['text'][0][place] == f'text {number}'
        assert sorted(set(rows)) == list(range(len(episodes)))


@pytest.mark.parametrize('compression', [None, 'zstd'])
def test_windows_cross_shards_of_remote_dataset(
    served: Path,
    tmp_path: Path,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    compression: Optional[str],
) -> None:
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    prefix = f'windows-{compression}'
    folder, episodes = write(served / prefix, LENGTHS, SIZES, compression=compression)
    remote = f's3://bucket/{prefix}'
    first = find_episodes(folder, 'episode')
    assert find_episodes(remote, 'episode', local=tmp_path / 'found') == first
    wanted = windows(episodes, OFFSETS)
    largest = max(path.stat().st_size for path in folder.iterdir())
    cases: list[tuple[Optional[int], Union[str, View]]] = [
        (None, 'episode'),
        (5 * largest, first),
    ]
    for number, (limit, episode) in enumerate(cases):
        dataset: StreamingDataset[Any] = StreamingDataset(
            remote=remote,
            local=tmp_path / str(number),
            window=Window(OFFSETS, episode=episode),
            cache_limit=limit,
            batch_size=3,
            shuffle=limit is not None,
        )
        found = [each['n'].tolist() for each in dataset]
        assert sorted(found) == sorted(numbers for numbers, _ in wanted)
        check_sample(dataset[7], wanted[7][0], None)
        fetched = dataset.stats()['fetched_shards']
        # Finding the episodes fetches all shards. A cache that holds some of them fetches few twice.
        assert fetched == 0 if limit is None else fetched <= 2 * len(SIZES)


def test_invalid_windows_are_errors(shards: tuple[Path, list[int]], tmp_path: Path) -> None:
    folder, _ = shards
    with pytest.raises(UsageError, match='window-offsets'):
        Window([])
    with pytest.raises(UsageError, match='offsets'):
        Window('12')  # type: ignore[arg-type]
    with pytest.raises(UsageError, match='pad'):
        Window([0], pad='zero')
    with pytest.raises(UsageError, match='window'):
        LocalDataset(folder, window=[0, 1])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match='window-column'):
        LocalDataset(folder, window=Window({'none': [0]}))
    with pytest.raises(UsageError, match='window-column'):
        LocalDataset(folder, window=Window([0], episode='none'))
    with pytest.raises(UsageError, match='window-empty'):
        LocalDataset(folder, window=Window([0, 12], episode='episode'))
    view = find_episodes(folder, 'episode')
    streams = [Stream(local=folder), Stream(local=folder)]
    with pytest.raises(UsageError, match='one dataset'):
        StreamingDataset(streams=streams, window=Window([0], episode=view))
    mix: StreamingDataset[Any] = StreamingDataset(
        streams=[Stream(local=folder), Stream(local=folder)],
        window=Window([0, 1], episode='episode'),
        batch_size=2,
    )
    assert len(list(mix)) == 2 * len(windows([*shards[1]], [0, 1]))
    (tmp_path / 'raw').mkdir()
    (tmp_path / 'raw' / 'a.txt').write_text('a')
    with pytest.raises(UnsupportedError, match='window-files'):
        StreamingDataset(
            streams=[FileStream(remote=tmp_path / 'raw')], window=Window([0, 1]), batch_size=1
        )
