"""Runs that leave out steps and samples: everything else stays as it is."""

from __future__ import annotations

import json
import random
from itertools import chain
from typing import TYPE_CHECKING, Any, Optional

import pytest

from shardmill import MDSWriter, StreamingDataLoader, StreamingDataset
from shardmill.base._skip import passed
from shardmill.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

#: Nodes, ranks per node and batch size; each with a global batch of 24.
WORLDS = [(1, 1, 24), (1, 2, 12), (2, 2, 6), (1, 3, 8)]


@pytest.fixture(scope='module')
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp('skip') / 'shards'
    with MDSWriter(out=str(folder), columns={'id': 'int'}, size_limit=700) as out:
        for number in range(300):
            out.write({'id': number})
    return folder


def run(
    shards: Path,
    world: tuple[int, int, int],
    epochs: int = 1,
    *,
    workers: int = 0,
    state: Any = None,
    stop: int = -1,
    **options: Any,
) -> tuple[list[list[int]], Any]:
    """Returns the global batches, sorted, and the state after `stop` steps or at the end."""
    nodes, ranks, batch_size = world
    batches: list[list[list[int]]] = []
    states = []
    for rank in range(nodes * ranks):
        dataset = StreamingDataset(
            local=str(shards),
            shuffle=True,
            num_canonical_nodes=12,
            batch_size=batch_size,
            rank=rank,
            world_size=nodes * ranks,
            local_world_size=ranks,
            **options,
        )
        loader = StreamingDataLoader(dataset, batch_size=batch_size, num_workers=workers)
        if workers:
            # Threads take the place of worker processes unless something concerns processes.
            loader.worker_init_fn = _nothing
        if state is not None:
            loader.load_state_dict(json.loads(json.dumps(state)))
        own = []
        for _ in range(epochs):
            for batch in loader:
                own.append(batch['id'].tolist())
                if len(own) == stop:
                    break
        batches.append(own)
        states.append(loader.state_dict())
    assert all(one == states[0] for one in states)
    assert len({len(own) for own in batches}) == 1
    together = [sorted(chain.from_iterable(parts)) for parts in zip(*batches)]
    return together, states[0]


def _nothing(worker: int) -> None:
    """Concerns worker processes."""


@pytest.mark.parametrize('workers', [0, 2])
@pytest.mark.parametrize('algo', ['py1e', 'py1br', 'shardmill'])
def test_skipping_steps_keeps_other_batches(shards: Path, algo: str, workers: int) -> None:
    for world in WORLDS:
        whole, _ = run(shards, world, 2, shuffle_algo=algo)
        steps = len(whole) // 2
        skip = [3, (0, 4), (1, 0), (1, steps - 1), (2, 5)]
        kept, state = run(shards, world, 2, shuffle_algo=algo, skip=skip, workers=workers)
        gone = {3, 4, steps, 2 * steps - 1}
        assert kept == [batch for step, batch in enumerate(whole) if step not in gone]
        assert state['skip']['steps'][0] == [0, 72, 96]


def test_state_records_skipped_steps(shards: Path) -> None:
    chance = random.Random(11)
    whole, _ = run(shards, WORLDS[0])
    for _ in range(12):
        gone = sorted(chance.sample(range(len(whole)), chance.randrange(1, 5)))
        kept = [batch for step, batch in enumerate(whole) if step not in gone]
        stop = chance.randrange(1, len(kept) - 1)
        first, state = run(shards, chance.choice(WORLDS), skip=gone, stop=stop)
        assert first == kept[:stop]
        # The state alone is enough, in any world. The same arguments again change nothing.
        again: Any = chance.choice([None, gone])
        rest, last = run(shards, chance.choice(WORLDS), state=state, skip=again)
        # Only the padding of the last step depends on the world.
        assert rest[:-1] == kept[stop:-1]
        assert last['skip'] == state['skip']


def test_skip_accepts_results_of_which(shards: Path) -> None:
    whole, _ = run(shards, WORLDS[0])
    dataset = StreamingDataset(
        local=str(shards), shuffle=True, num_canonical_nodes=12, batch_size=24
    )
    found = dataset.which(5)
    delivery = dataset.which(sample=whole[2][0]).steps[0]
    kept, _ = run(shards, WORLDS[1], skip=[found, delivery])
    assert kept == [batch for step, batch in enumerate(whole) if step not in (2, 5)]


def test_skipped_samples_are_replaced_within_their_batch(shards: Path) -> None:
    chance = random.Random(5)
    for world in WORLDS:
        whole, _ = run(shards, world)
        gone = chance.sample(range(300), 20)
        kept, state = run(shards, world, skip_samples=gone, workers=chance.choice([0, 2]))
        assert len(kept) == len(whole)
        for before, after in zip(whole, kept):
            assert len(after) == len(before)
            assert set(after) == set(before) - set(gone)
        assert state['skip'] == {'steps': [], 'samples': sorted(gone)}
        rest, _ = run(shards, WORLDS[0], state={**state, 'epoch': 0, 'sample_in_epoch': 48})
        assert not set(gone) & set(chain.from_iterable(rest))


def test_invalid_skip_arguments_are_errors(shards: Path) -> None:
    def make(**options: Any) -> StreamingDataset[Any]:
        return StreamingDataset(local=str(shards), batch_size=24, **options)

    cases: list[tuple[dict[str, Any], Optional[str]]] = [
        ({'skip': [-1]}, 'config-value'),
        ({'skip_samples': [300]}, 'config-value'),
        ({'skip': range(2000)}, 'config-skip'),
        ({'skip_samples': range(1, 299)}, None),
    ]
    for options, error in cases:
        if error is None:
            make(**options)
            continue
        with pytest.raises(UsageError) as raised:
            make(**options)
        assert raised.value.id == error, options
    wrong_types: list[dict[str, Any]] = [
        {'skip': ['x']},
        {'skip': 'abc'},
        {'skip': 7},
        {'skip_samples': [1.5]},
    ]
    for wrong in wrong_types:
        with pytest.raises(TypeError):
            make(**wrong)
    # A state of steps that are not steps of this world.
    dataset = make()
    state = dataset.state_dict(0)
    dataset.load_state_dict({**state, 'skip': {'steps': [[0, 8, 16]], 'samples': []}})
    with pytest.raises(UsageError, match='not whole steps'):
        list(dataset)
    for bad in [3, {'steps': [[0, 1]], 'samples': []}, {'steps': [], 'samples': ['x']}, {}]:
        with pytest.raises(UsageError, match='cannot be resumed'):
            make().load_state_dict({**state, 'skip': bad})


def test_positions_advance_over_skipped_ranges() -> None:
    ranges = [(16, 32), (48, 64)]
    assert [passed(0, given, ranges) for given in (0, 16, 17, 32, 33)] == [0, 16, 33, 48, 65]
    assert [passed(32, given, ranges) for given in (0, 16, 20)] == [32, 48, 68]
    assert passed(64, 8, ranges) == 72
