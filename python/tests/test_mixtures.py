"""Mixtures: weights of streams that change over the samples of a run."""

from __future__ import annotations

import json
import random
from itertools import chain
from typing import TYPE_CHECKING, Any, Optional

import pytest

from shardmill import MDSWriter, Mixture, Stream, StreamingDataLoader, StreamingDataset, plan
from shardmill.errors import ShardmillError

if TYPE_CHECKING:
    from pathlib import Path

#: Nodes, ranks per node and batch size; each with a global batch of 24.
WORLDS = [(1, 1, 24), (1, 2, 12), (2, 2, 6), (1, 3, 8)]
SIZES = [300, 90, 40]

CURRICULUM = Mixture([6, 3, 1]).step(96, [1, 1, 1]).ramp(240, [1, 4, 0])


@pytest.fixture(scope='module')
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    found = []
    for stream, size in enumerate(SIZES):
        folder = tmp_path_factory.mktemp('mixture') / str(stream)
        with MDSWriter(out=str(folder), columns={'id': 'int'}, size_limit=700) as out:
            for number in range(size):
                out.write({'id': stream * 1000 + number})
        found.append(str(folder))
    return found


def opened(
    folders: list[str], world: tuple[int, int, int], rank: int, **options: Any
) -> StreamingDataset:
    nodes, ranks, batch_size = world
    chosen: dict[str, Any] = {'mixture': CURRICULUM, 'epoch_size': 240, **options}
    return StreamingDataset(
        streams=[Stream(local=folder) for folder in folders],
        shuffle=True,
        num_canonical_nodes=12,
        batch_size=batch_size,
        rank=rank,
        world_size=nodes * ranks,
        local_world_size=ranks,
        **chosen,
    )


def run(
    folders: list[str],
    world: tuple[int, int, int],
    epochs: int = 1,
    *,
    workers: int = 0,
    state: Any = None,
    stop: int = -1,
    change: Optional[tuple[int, list[float]]] = None,
    **options: Any,
) -> tuple[list[list[int]], Any]:
    """Returns the global batches, sorted, and the state after `stop` steps or at the end."""
    nodes, ranks, batch_size = world
    batches: list[list[list[int]]] = []
    states = []
    for rank in range(nodes * ranks):
        dataset = opened(folders, world, rank, **options)
        loader = StreamingDataLoader(dataset, batch_size=batch_size, num_workers=workers)
        if state is not None:
            loader.load_state_dict(json.loads(json.dumps(state)))
        if change is not None:
            dataset.set_weights(change[1], from_step=change[0])
        own: list[list[int]] = []
        for _ in range(epochs):
            for batch in loader:
                own.append(batch['id'].tolist())
                if len(own) == stop:
                    break
        batches.append(own)
        states.append(loader.state_dict())
    assert all(state == states[0] for state in states)
    steps = zip(*batches)
    return [sorted(chain.from_iterable(step)) for step in steps], states[0]


def state_of(loader: StreamingDataLoader) -> dict[str, Any]:
    state = loader.state_dict()
    assert state is not None
    return state


def shares(batches: list[list[int]]) -> list[int]:
    streams = [sample // 1000 for batch in batches for sample in batch]
    return [streams.count(stream) for stream in range(len(SIZES))]


def test_window_shares_match_planned_weights(folders: list[str]) -> None:
    batches, _ = run(folders, WORLDS[0])
    assert shares(batches[:4]) == [58, 29, 9]
    dataset = opened(folders, WORLDS[0], 0)
    windows = dataset.mixture_windows()
    assert [(one.from_sample, one.to_sample) for one in windows] == [(0, 96), (96, 240)]
    assert shares(batches[:4]) == windows[0].taken
    assert shares(batches[4:]) == windows[1].taken
    for window in windows:
        for planned, taken in zip(window.planned, window.taken):
            assert abs(planned - taken) <= 1
    # The last weights stay, also in later epochs.
    assert dataset.mixture_windows(1)[0].taken == [48, 192, 0]


def test_batches_are_independent_of_world_and_workers(folders: list[str]) -> None:
    expected, _ = run(folders, WORLDS[0], 2)
    assert len(expected) == 20
    for world in WORLDS[1:]:
        assert run(folders, world, 2)[0] == expected
    assert run(folders, WORLDS[1], 2, workers=2)[0] == expected


def test_runs_resume_with_any_world_size(folders: list[str]) -> None:
    expected, _ = run(folders, WORLDS[0], 2)
    dice = random.Random(7)
    for _ in range(6):
        done = dice.randrange(1, 10)
        _, state = run(folders, dice.choice(WORLDS), stop=done)
        assert state['mixture'] == json.loads(CURRICULUM.to_json())
        rest, _ = run(folders, dice.choice(WORLDS), 2, state=state)
        assert rest == expected[done:]
        # Without a mixture of its own, a run continues with that of the state.
        rest, _ = run(folders, dice.choice(WORLDS), 2, state=state, mixture=None)
        assert rest == expected[done:]


def test_weight_changes_are_recorded_and_replayed_on_resume(folders: list[str]) -> None:
    before, _ = run(folders, WORLDS[0])
    changed, _ = run(folders, WORLDS[0], 2, change=(7, [0, 0, 1]))
    assert changed[:7] == before[:7]
    assert shares(changed[7:10]) == [0, 0, 72]
    dice = random.Random(8)
    for done in (3, 7, 9):
        world = dice.choice(WORLDS)
        _, state = run(folders, world, stop=done, change=(7, [0, 0, 1]))
        assert len(state['mixture']['changes']) == 1
        rest, _ = run(folders, dice.choice(WORLDS), 2, state=state)
        assert rest == changed[done:]
    # A change of a run that resumes, in the epoch of the state.
    _, state = run(folders, WORLDS[1], stop=4)
    rest, _ = run(folders, WORLDS[2], 2, state=state, change=(7, [0, 0, 1]))
    assert rest == changed[4:]


def test_set_weights_does_not_affect_epoch_in_progress(folders: list[str]) -> None:
    expected, _ = run(folders, WORLDS[0])
    dataset = opened(folders, WORLDS[0], 0)
    loader = StreamingDataLoader(dataset, batch_size=24)
    own = []
    for step, batch in enumerate(loader):
        own.append(sorted(batch['id'].tolist()))
        if step == 2:
            dataset.set_weights([0, 0, 1], from_step=4)
            assert len(state_of(loader)['mixture']['changes']) == 1
        if step == 5:
            with pytest.warns(UserWarning, match='weights were changed from sample 96'):
                state = state_of(loader)
            assert 'changes' not in state['mixture']
    assert own == expected
    # The next epoch follows the change.
    assert {sample // 1000 for batch in loader for sample in batch['id'].tolist()} == {2}


def test_state_of_different_mixture_is_rejected(folders: list[str]) -> None:
    expected, _ = run(folders, WORLDS[0])
    _, state = run(folders, WORLDS[0], stop=5)
    with pytest.raises(ShardmillError, match='differ from sample 96 on') as caught:
        run(folders, WORLDS[0], state=state, mixture=Mixture([6, 3, 1]))
    assert caught.value.id == 'state-mixture'
    # A schedule that differs only after the state is followed from there on.
    new = Mixture([6, 3, 1]).step(96, [1, 1, 1]).ramp(240, [1, 4, 0]).step(480, [0, 0, 1])
    rest, after = run(folders, WORLDS[0], 3, state=state, mixture=new)
    assert rest[:5] == expected[5:]
    assert shares(rest[15:]) == [0, 0, 240]
    assert len(after['mixture']['changes']) == 1
    # A state without a mixture, and one with a mixture for a run without one.
    _, other = run(folders, WORLDS[0], stop=5, mixture=None)
    with pytest.raises(ShardmillError) as caught:
        run(folders, WORLDS[0], state=other)
    assert caught.value.id == 'state-foreign'


def test_max_epochs_limits_a_stream(folders: list[str]) -> None:
    mixture = Mixture([1, 1, 1], max_epochs=[None, None, 1])
    batches, _ = run(folders, WORLDS[0], mixture=mixture)
    assert shares(batches)[2] == 40
    samples = [sample for batch in batches for sample in batch if sample >= 2000]
    assert sorted(samples) == list(range(2000, 2040))
    stopping = Mixture([1, 1, 1], max_epochs=[None, None, 1], when_exhausted='stop')
    batches, _ = run(folders, WORLDS[0], 2, mixture=stopping)
    assert shares(batches)[2] == 40
    assert sum(map(len, batches)) <= 123


def test_which_skip_and_batches_support_mixtures(folders: list[str]) -> None:
    expected, _ = run(folders, WORLDS[0])
    dataset = opened(folders, WORLDS[0], 0)
    step = dataset.which(6)
    ids = [int(dataset[one.origin.sample]['id']) for one in step.samples]
    assert sorted(ids) == expected[6]
    found = dataset.which(sample=step.samples[3].origin.sample)
    assert 6 in [one.step for one in found.steps]
    skipped, _ = run(folders, WORLDS[0], skip=[2, 5])
    assert skipped == expected[:2] + expected[3:5] + expected[6:]
    rows = [sorted(batch['id'].tolist()) for batch in dataset.batches()]
    assert rows == expected


def test_invalid_mixture_arguments_are_errors(folders: list[str], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match='add steps and ramps in order'):
        CURRICULUM.step(200, [1, 1, 1])
    with pytest.raises(ValueError, match='has 2 weights for 3 streams'):
        opened(folders, WORLDS[0], 0, mixture=Mixture([1, 1]))
    with pytest.raises(ValueError, match='not all 0'):
        opened(folders, WORLDS[0], 0, mixture=Mixture([0, 0, 0]))
    with pytest.raises(ValueError, match='stream 0 has `proportion`'):
        streams = [Stream(local=folder, proportion=1) for folder in folders]
        StreamingDataset(streams=streams, batch_size=4, mixture=Mixture([1, 1, 1]))
    plain = opened(folders, WORLDS[0], 0, mixture=None)
    assert plain.mixture_windows() == []
    with pytest.raises(ValueError, match='the dataset has no mixture'):
        plain.set_weights([1, 1, 1], from_step=0)
    dataset = opened(folders, WORLDS[0], 0)
    with pytest.raises(ValueError, match='either `from_step` or `from_sample`'):
        dataset.set_weights([1, 1, 1])
    with pytest.raises(ValueError, match='has 1 weights for 3 streams'):
        dataset.set_weights([1], from_sample=5)
    CURRICULUM.save(tmp_path / 'mixture.json')
    assert (tmp_path / 'mixture.json').read_text() == CURRICULUM.to_json() + '\n'
    assert Mixture([1, 2]) == Mixture([1.0, 2]) != Mixture([2, 1])
    assert hash(Mixture([1, 2])) == hash(Mixture([1.0, 2]))
    assert repr(Mixture([1])).startswith('Mixture({"schedule"')


def test_plan_matches_delivered_samples(folders: list[str]) -> None:
    report = plan(folders, mixture=CURRICULUM, epochs=1, epoch_size=240, batch_size=24)
    (epoch,) = report.json['mixture']
    taken = [window['taken'] for window in epoch['windows']]
    batches, _ = run(folders, WORLDS[0])
    assert taken == [shares(batches[:4]), shares(batches[4:])]
