"""Going on in mid-epoch: exactly the samples that are left, on the same machines or on others."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest
from support.apart import apart
from support.samples import collate, flat, in_worker, numbers, tar_value, write, write_tars

from shardmill import Stream, StreamingDataLoader, StreamingDataset
from shardmill.errors import ConflictError, DataError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    State = dict[str, Any]

BATCH = 8
KINDS = ('0', '2', '2-persistent', '2-threads')
BATCHING = ('random', 'stratified', 'per_stream', 'device_per_stream')


#: Mixed datasets have tar shards, too.
@pytest.fixture(
    scope='module', params=['mds', pytest.param('tar', marks=pytest.mark.slow), 'mixed']
)
def mix(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two datasets: samples 0 to 191, and 192 to 287. Global batches divide both."""
    folder = tmp_path_factory.mktemp('mix')
    if request.param == 'tar':
        return [write_tars(folder / 'a', 192), write_tars(folder / 'tar', 96, first=192)]
    if request.param == 'mixed':
        return [write(folder / 'a', 192), write_tars(folder / 'mixed', 96, first=192)]
    return [write(folder / 'a', 192), write(folder / 'b', 96, first=192, shard_bytes=2000)]


def dataset(mix: Sequence[Path], **options: Any) -> StreamingDataset:
    """Both datasets."""
    weights = options.pop('weights', [{}, {}])
    streams = [Stream(local=str(folder), **weight) for folder, weight in zip(mix, weights)]
    defaults: dict[str, Any] = {
        'batch_size': BATCH,
        'shuffle': True,
        'shuffle_seed': 3,
        'shuffle_block_size': 64,
        'num_canonical_nodes': 4,
        'decode': tar_value,
    }
    return StreamingDataset(streams=streams, **{**defaults, **options})


def collate_of(mix: Sequence[Path]) -> Callable[[list[dict[str, Any]]], dict[str, Any]] | None:
    """Samples of MDS have no key, and batches of torch the same columns in all samples."""
    return collate if mix[-1].name == 'mixed' else None


def loader(mix: Sequence[Path], kind: str = '0', **options: Any) -> StreamingDataLoader:
    """A loader over both datasets.

    Args:
        mix: Their folders.
        kind: How many workers, and of which kind: `2`, `2-threads`, `2-persistent`.
        options: Of the dataset.
    """
    data = dataset(mix, **options)
    workers, _, manner = kind.partition('-')
    # With a function to call in them, the workers are processes.
    init = None if manner == 'threads' else in_worker
    return StreamingDataLoader(
        data,
        batch_size=data.batch_size,
        num_workers=int(workers),
        persistent_workers=manner == 'persistent',
        worker_init_fn=init,
        collate_fn=collate_of(mix),
    )


def take(loader: StreamingDataLoader, batches: int | None = None) -> tuple[list[list[int]], State]:
    """The next batches of a loader, without a number all of them, and the state behind the last."""
    found = [numbers(batch) for batch in itertools.islice(iter(loader), batches)]
    state = loader.state_dict()
    assert state is not None
    return found, json.loads(json.dumps(state))


def every_cut(mix: Sequence[Path], kind: str) -> None:
    """Stops an epoch at several places and resumes in a new loader, and in a used one."""
    whole = loader(mix, kind)
    full = [take(whole)[0] for _ in range(3)]
    assert [sorted(flat(epoch)) for epoch in full] == [list(range(288))] * 3
    used = loader(mix, kind)
    take(used, 2)
    for cut in (1, 7, len(full[1]) - 1, len(full[1])):
        first = loader(mix, kind)
        take(first)
        begun, state = take(first, cut)
        assert begun == full[1][:cut]
        assert (state['epoch'], state['sample_in_epoch']) == (1, cut * BATCH)
        for other in (loader(mix, kind), used):
            other.load_state_dict(state)
            rest, _ = take(other)
            assert rest == full[1][cut:], cut
            following, _ = take(other)
            assert following == full[2], cut


@pytest.mark.parametrize('kind', KINDS)
def test_resume_yields_exactly_remaining_samples(mix: list[Path], kind: str) -> None:
    apart(every_cut, mix, kind)


def chain(mix: Sequence[Path], kinds: Sequence[str]) -> None:
    """Resumes repeatedly, each time with a new loader of another kind."""
    whole = loader(mix)
    full = [take(whole)[0] for _ in range(2)]
    for step in (1, 5):
        state: State | None = None
        found: list[list[int]] = []
        for kind in itertools.cycle(kinds):
            again = loader(mix, kind)
            if state is not None:
                again.load_state_dict(state)
            batches, state = take(again, step)
            found += batches
            assert state['epoch'] == 0
            if len(found) == len(full[0]):
                break
            assert len(batches) == step or len(found) > len(full[0]), len(found)
        assert found == full[0]
        # At its very end: nothing is left of this epoch.
        last = loader(mix)
        assert state is not None
        last.load_state_dict(state)
        assert take(last)[0] == []
        assert take(last)[0] == full[1]


def test_repeated_resume_keeps_order(mix: list[Path]) -> None:
    apart(chain, mix, ['0'])


def test_repeated_resume_over_worker_kinds_keeps_order(mix: list[Path]) -> None:
    kinds = ['2', '0', '3-threads', '0', '0', '1-threads', '0', '3', '0', '0', '0']
    apart(chain, mix, kinds)


WEIGHTS = {
    'none': [{}, {}],
    'proportion': [{'proportion': 1}, {'proportion': 3}],
    'repeat': [{'repeat': 0.5}, {'repeat': 2}],
    'choose': [{'choose': 100}, {'choose': 250}],
}


@pytest.mark.parametrize('weights', WEIGHTS)
@pytest.mark.parametrize('shuffle', [False, True], ids=['in-order', 'shuffled'])
@pytest.mark.parametrize('batching', BATCHING)
def test_resume_keeps_order_for_batching_methods_and_weights(
    mix: list[Path], batching: str, shuffle: bool, weights: str
) -> None:
    options: dict[str, Any] = {
        'batching_method': batching,
        'shuffle': shuffle,
        'weights': WEIGHTS[weights],
    }
    whole = loader(mix, **options)
    full = [take(whole)[0] for _ in range(3)]
    assert len(full[0]) > 20
    # With a fraction of a stream, the samples are drawn anew every epoch.
    assert (full[0] == full[1]) == (not shuffle and weights == 'none')
    for cut in (1, 9, len(full[1]) - 2):
        first = loader(mix, **options)
        take(first)
        begun, state = take(first, cut)
        assert begun == full[1][:cut]
        again = loader(mix, **options)
        again.load_state_dict(state)
        assert take(again)[0] == full[1][cut:], cut
        assert take(again)[0] == full[2], cut


@pytest.mark.parametrize('algo', ['py1e', 'py1br', 'py1s', 'py2s', 'naive', 'shardmill'])
def test_resume_keeps_order_for_each_shuffle_algorithm(mix: list[Path], algo: str) -> None:
    whole = loader(mix, shuffle_algo=algo)
    full = [take(whole)[0] for _ in range(2)]
    assert [sorted(flat(epoch)) for epoch in full] == [list(range(288))] * 2
    first = loader(mix, shuffle_algo=algo)
    _, state = take(first, 11)
    again = loader(mix, shuffle_algo=algo)
    again.load_state_dict(state)
    assert take(again)[0] == full[0][11:]
    assert take(again)[0] == full[1]


# Other worlds.

#: Nodes, ranks of a node; the global batch is 24 in all of them.
WORLDS = [(1, 1), (1, 2), (1, 4), (2, 1), (2, 3), (4, 1), (1, 12)]
GLOBAL = 24


def ranks_of(
    mix: Sequence[Path], world: tuple[int, int], **options: Any
) -> list[StreamingDataLoader]:
    """The loader of each rank."""
    nodes, per_node = world
    size = nodes * per_node
    return [
        loader(
            mix,
            rank=rank,
            world_size=size,
            local_world_size=per_node,
            batch_size=GLOBAL * (options.get('replication') or 1) // size,
            **options,
        )
        for rank in range(size)
    ]


def steps(ranks: list[StreamingDataLoader], batches: int | None = None) -> tuple[list[Any], State]:
    """The batches of each rank, step by step, and the state, which is the same on all."""
    taken = [take(rank, batches) for rank in ranks]
    states = [state for _, state in taken]
    assert all(state == states[0] for state in states), states
    return list(zip(*[found for found, _ in taken])), states[0]


def as_sets(steps: list[Any]) -> list[list[int]]:
    """The samples of each global batch, whoever has them."""
    return [sorted(itertools.chain.from_iterable(step)) for step in steps]


@pytest.mark.parametrize('shuffle', [False, True], ids=['in-order', 'shuffled'])
@pytest.mark.parametrize('batching', ['random', 'stratified'])
@pytest.mark.parametrize('world', WORLDS, ids=lambda world: f'{world[0]}x{world[1]}')
def test_resume_with_other_rank_count_keeps_batches(
    mix: list[Path], world: tuple[int, int], batching: str, shuffle: bool
) -> None:
    options: dict[str, Any] = {'batching_method': batching, 'shuffle': shuffle}
    whole = as_sets(steps(ranks_of(mix, (1, 1), **options))[0])
    assert sorted(flat(whole)) == list(range(288))
    ranks = ranks_of(mix, (2, 2), **options)
    begun, state = steps(ranks, 5)
    assert as_sets(begun) == whole[:5]
    others = ranks_of(mix, world, **options)
    for other in others:
        other.load_state_dict(state)
    rest, _ = steps(others)
    assert as_sets(rest) == whole[5:]


def test_repeated_resume_in_changing_worlds_keeps_batches(mix: list[Path]) -> None:
    whole = as_sets(steps(ranks_of(mix, (1, 1)))[0])
    found: list[list[int]] = []
    state: State | None = None
    for world in WORLDS:
        ranks = ranks_of(mix, world)
        for rank in ranks:
            if state is not None:
                rank.load_state_dict(state)
        begun, state = steps(ranks, 1)
        found += as_sets(begun)
    assert found == whole[: len(WORLDS)]


def test_resume_keeps_partition_if_nodes_do_not_divide(mix: list[Path]) -> None:
    # 3 nodes and 4 canonical ones, begun on 2: the partition of those 2 is kept.
    whole = as_sets(steps(ranks_of(mix, (2, 1)))[0])
    _, state = steps(ranks_of(mix, (2, 1)), 4)
    ranks = ranks_of(mix, (3, 1))
    for rank in ranks:
        rank.load_state_dict(state)
    rest, again = steps(ranks, 3)
    assert as_sets(rest) == whole[4:7]
    assert again['initial_physical_nodes'] == 2
    ranks = ranks_of(mix, (1, 2))
    for rank in ranks:
        rank.load_state_dict(again)
    assert as_sets(steps(ranks)[0]) == whole[7:]


@pytest.mark.parametrize('replication', [2, 4])
def test_resume_with_replication_keeps_batches(mix: list[Path], replication: int) -> None:
    whole = as_sets(steps(ranks_of(mix, (1, 1)))[0])
    ranks = ranks_of(mix, (1, 4), replication=replication)
    begun, state = steps(ranks, 5)
    for step in begun:
        groups = [step[at : at + replication] for at in range(0, 4, replication)]
        assert all(batch == group[0] for group in groups for batch in group)
    assert as_sets([step[::replication] for step in begun]) == whole[:5]
    assert state['sample_in_epoch'] == 5 * GLOBAL
    again = ranks_of(mix, (1, 1))
    again[0].load_state_dict(state)
    assert as_sets(steps(again)[0]) == whole[5:]


@pytest.mark.parametrize('batching', ['per_stream', 'device_per_stream'])
def test_per_stream_batching_resumes_in_same_world(mix: list[Path], batching: str) -> None:
    whole, _ = steps(ranks_of(mix, (2, 2), batching_method=batching))
    _, state = steps(ranks_of(mix, (2, 2), batching_method=batching), 3)
    ranks = ranks_of(mix, (2, 2), batching_method=batching)
    for rank in ranks:
        rank.load_state_dict(state)
    assert steps(ranks)[0] == whole[3:]


def with_workers(mix: Sequence[Path], counts: Sequence[int], cache: Path) -> list[list[int]]:
    """What ranks read that share a cache and have different numbers of workers."""
    read = []
    # Shards of tar have a block of 512 bytes before every field.
    limit = 60_000 if mix[-1].name == 'b' else 600_000
    for rank, count in enumerate(counts):
        data = StreamingDataset(
            streams=[Stream(remote=str(folder), local=str(cache / folder.name)) for folder in mix],
            batch_size=4,
            shuffle=True,
            num_canonical_nodes=4,
            rank=rank,
            world_size=len(counts),
            cache_limit=limit,
            decode=tar_value,
        )
        each = StreamingDataLoader(
            data,
            batch_size=4,
            num_workers=count,
            worker_init_fn=in_worker,
            collate_fn=collate_of(mix),
        )
        read.append(iter(each))
    found: list[list[int]] = [[] for _ in counts]
    for batches in zip(*read):
        for samples, batch in zip(found, batches):
            samples.extend(numbers(batch))
    return found


def test_ranks_can_have_different_worker_counts(mix: list[Path], tmp_path: Path) -> None:
    even = apart(with_workers, mix, [0, 0, 0], tmp_path / 'even')
    odd = apart(with_workers, mix, [0, 3, 1], tmp_path / 'odd')
    assert odd == even
    assert sorted(flat(odd)) == list(range(288))


# States.


@pytest.mark.parametrize('kind', KINDS)
def test_older_state_rewinds_the_loader(mix: list[Path], kind: str) -> None:
    def run() -> None:
        again = loader(mix, kind)
        _, early = take(again, 3)
        assert early['epoch'] == 0
        # What is left of epoch 0 is not read: the next iteration is epoch 1.
        full = [take(again)[0] for _ in range(2)]
        assert sorted(flat(full[0])) == list(range(288))
        again.load_state_dict(early)
        assert len(take(again)[0]) == 288 // BATCH - 3
        assert [take(again)[0] for _ in range(2)] == full
        # Twice is as good as once.
        again.load_state_dict(early)
        again.load_state_dict(early)
        assert len(take(again)[0]) == 288 // BATCH - 3

    apart(run)


def test_later_state_skips_epochs(mix: list[Path]) -> None:
    whole = loader(mix)
    full = [take(whole)[0] for _ in range(5)]
    ahead = loader(mix)
    ahead.load_state_dict(
        {
            'epoch': 3,
            'sample_in_epoch': 2 * BATCH,
            'num_canonical_nodes': 4,
            'shuffle_seed': 3,
            'initial_physical_nodes': 1,
        }
    )
    assert take(ahead)[0] == full[3][2:]
    assert take(ahead)[0] == full[4]


def test_state_overrides_seed_and_canonical_nodes(mix: list[Path]) -> None:
    whole = loader(mix, shuffle_seed=11, num_canonical_nodes=2)
    full = [take(whole)[0] for _ in range(3)]
    first = loader(mix, shuffle_seed=11, num_canonical_nodes=2)
    _, state = take(first, 6)
    again = loader(mix, shuffle_seed=12, num_canonical_nodes=8)
    again.load_state_dict(state)
    assert take(again)[0] == full[0][6:]
    # In the epochs that follow, too.
    assert [take(again)[0] for _ in range(2)] == full[1:]


def seed_in_workers(mix: Sequence[Path], kind: str) -> None:
    """The same in loader processes that are started anew for every epoch, or kept."""
    whole = loader(mix, shuffle_seed=11)
    full = [take(whole)[0] for _ in range(3)]
    _, state = take(loader(mix, shuffle_seed=11), 6)
    again = loader(mix, kind, shuffle_seed=12)
    again.load_state_dict(state)
    assert take(again)[0] == full[0][6:]
    assert [take(again)[0] for _ in range(2)] == full[1:]


@pytest.mark.parametrize('kind', KINDS[1:])
def test_state_seed_reaches_workers(mix: list[Path], kind: str) -> None:
    apart(seed_in_workers, mix, kind)


def test_dataset_state_dict_round_trips(mix: list[Path]) -> None:
    data = dataset(mix)
    assert data.state_dict(0, False)['epoch'] == -1
    read = list(itertools.islice(data, 20))
    state = data.state_dict(20, from_beginning=False)
    assert state == {
        'epoch': 0,
        'sample_in_epoch': 20,
        'num_canonical_nodes': 4,
        'shuffle_seed': 3,
        'initial_physical_nodes': 1,
        'shardmill': state['shardmill'],
    }
    # mosaicml-streaming takes no longer states.
    assert len(json.dumps(state)) < 4096
    fresh = dataset(mix)
    fresh.load_state_dict(dataset(mix).state_dict(0, False))
    assert [sample['number'] for sample in itertools.islice(fresh, 20)] == [
        sample['number'] for sample in read
    ]
    again = dataset(mix)
    again.load_state_dict(state)
    rest = list(again)
    assert len(read) + len(rest) == 288
    found = [int(sample['number']) for sample in read + rest]
    assert found == [int(sample['number']) for sample in dataset(mix)]
    # Counted from where it went on, and from the beginning.
    assert again.state_dict(16, from_beginning=False)['sample_in_epoch'] == 36
    assert again.state_dict(16, from_beginning=True)['sample_in_epoch'] == 16


@pytest.mark.parametrize('init', [None, in_worker], ids=['threads', 'processes'])
def test_prefetched_batches_are_not_counted_in_state(mix: list[Path], init: Any) -> None:
    def run() -> None:
        read = StreamingDataLoader(
            dataset(mix),
            batch_size=BATCH,
            num_workers=2,
            prefetch_factor=8,
            worker_init_fn=init,
            collate_fn=collate_of(mix),
        )
        iteration = iter(read)
        for done in range(1, 6):
            next(iteration)
            state = read.state_dict()
            assert state is not None
            assert state['sample_in_epoch'] == done * BATCH
            assert read.num_samples_yielded == done * BATCH

    apart(run)


@pytest.mark.parametrize(
    'state',
    [
        {},
        {'epoch': 0},
        {'epoch': 'one', 'sample_in_epoch': 0, 'num_canonical_nodes': 4, 'shuffle_seed': 3},
        {'epoch': 0, 'sample_in_epoch': -1, 'num_canonical_nodes': 4, 'shuffle_seed': 3},
        {'epoch': 0, 'sample_in_epoch': 8, 'num_canonical_nodes': 4, 'shuffle_seed': -3},
        {'epoch': 0, 'sample_in_epoch': 8, 'num_canonical_nodes': -4, 'shuffle_seed': 3},
        {'epoch': 1 << 70, 'sample_in_epoch': 8, 'num_canonical_nodes': 4, 'shuffle_seed': 3},
        {'epoch': 0, 'sample_in_epoch': 8, 'num_canonical_nodes': 4, 'shuffle_seed': 3}
        | {'note': 'x' * 70_000},
    ],
    ids=['empty', 'parts', 'text', 'negative', 'seed', 'nodes', 'huge', 'long'],
)
def test_invalid_state_is_an_error(mix: list[Path], state: State) -> None:
    again = loader(mix)
    with pytest.raises(ValueError) as raised:
        again.load_state_dict(state)
        take(again)
    assert str(raised.value)


def test_state_beyond_dataset_end_is_an_error(mix: list[Path]) -> None:
    # More samples were read than this dataset has.
    again = loader(mix)
    state = {
        'epoch': 0,
        'sample_in_epoch': 1000,
        'num_canonical_nodes': 4,
        'shuffle_seed': 3,
        'initial_physical_nodes': 1,
    }
    again.load_state_dict(state)
    with pytest.raises(ValueError):
        take(again)


def state_after(data: StreamingDataset, samples: int = 2 * BATCH) -> State:
    """The state of a dataset in its first epoch, as it comes from a checkpoint."""
    next(iter(data))
    state: State = json.loads(json.dumps(data.state_dict(samples, True)))
    return state


@pytest.mark.parametrize(
    ('options', 'difference'),
    [
        ({'shuffle': False}, 'shuffle_algo was py1e and is none'),
        ({'shuffle_algo': 'py1br'}, 'shuffle_algo was py1e and is py1br'),
        ({'shuffle_block_size': 65}, 'shuffle_block_size was 64 and is 65'),
        ({'sampling_method': 'fixed'}, 'sampling_method was balanced and is fixed'),
        ({'sampling_granularity': 3}, 'sampling_granularity was 1 and is 3'),
        ({'batching_method': 'stratified'}, 'batching_method was random and is stratified'),
        ({'epoch_size': 100}, 'epoch_size was 288 and is 100'),
        ({'weights': [{'repeat': 2}, {}]}, 'epoch_size was 288 and is 480'),
    ],
)
def test_state_of_different_order_is_rejected(
    options: State, difference: str, mix: list[Path]
) -> None:
    state = state_after(dataset(mix))
    other = dataset(mix, **options)
    with pytest.raises(ConflictError, match='state-foreign') as raised:
        other.load_state_dict(state)
        next(iter(other))
    assert difference in str(raised.value)
    # States of mosaicml-streaming, and of versions before, do not say what they belong to.
    del state['shardmill']
    dataset(mix, **options).load_state_dict(state)


def test_state_of_different_shards_is_rejected(tmp_path: Path) -> None:
    folders = [write(tmp_path / name, samples) for name, samples in (('a', 192), ('c', 200))]
    state = state_after(dataset(folders[:1]))
    # As where an increment has appended shards.
    for others, difference in (
        (folders[1:], 'samples was 192 and is 200'),
        (folders, 'streams was 1 and is 2'),
    ):
        other = dataset(others)
        with pytest.raises(ConflictError, match='state-foreign') as raised:
            other.load_state_dict(state)
        assert difference in str(raised.value)
        # Nothing of it is taken.
        assert sorted(flat(take(loader(others))[0])) == sorted(flat(take_of(other)))
    dataset(folders[:1]).load_state_dict(state)


def take_of(data: StreamingDataset) -> list[list[int]]:
    """The batches of an epoch of a dataset."""
    return take(StreamingDataLoader(data, batch_size=BATCH))[0]


def test_state_is_accepted_if_order_is_unchanged(mix: list[Path]) -> None:
    state = state_after(dataset(mix))
    for options in (
        {'batch_size': 4},
        {'shuffle_seed': 5},
        {'num_canonical_nodes': 2},
        {'rank': 1, 'world_size': 4, 'local_world_size': 2},
        {'replication': 2, 'rank': 1, 'world_size': 2},
    ):
        dataset(mix, **options).load_state_dict(state)


def test_default_block_size_uses_canonical_nodes_of_state(mix: list[Path]) -> None:
    state = state_after(dataset(mix, num_canonical_nodes=8, shuffle_block_size=None))
    assert state['shardmill']['order']['shuffle_block_size'] == 500_000
    again = dataset(mix, num_canonical_nodes=1, shuffle_block_size=None)
    # It has a block size of its own by now.
    next(iter(again))
    assert again.shuffle_block_size == 4_000_000
    again.load_state_dict(state)
    next(iter(again))
    assert again.shuffle_block_size == 500_000


def test_stratified_state_requires_equal_global_batch_size(mix: list[Path]) -> None:
    options: State = {'batching_method': 'stratified'}
    state = state_after(dataset(mix, **options))
    same = dataset(mix, batch_size=BATCH // 2, rank=0, world_size=2, **options)
    same.load_state_dict(state)
    next(iter(same))
    other = dataset(mix, batch_size=BATCH, rank=0, world_size=2, **options)
    other.load_state_dict(state)
    with pytest.raises(ConflictError, match='global_batch_size was 8 and is 16'):
        next(iter(other))


@pytest.mark.parametrize(
    'mark',
    [
        'text',
        {},
        {'version': 1},
        {'version': 1, 'fingerprint': 'x'},
        {'version': 2, 'fingerprint': '0' * 32},
        {'version': 1, 'fingerprint': '0' * 32, 'order': []},
    ],
)
def test_damaged_state_fingerprint_is_rejected(mark: Any, mix: list[Path]) -> None:
    state = {**state_after(dataset(mix)), 'shardmill': mark}
    with pytest.raises((DataError, UnsupportedError), match='state-'):
        dataset(mix).load_state_dict(state)
