"""`which` against the batches that loaders yield."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from shardmill import MDSWriter, StreamingDataLoader, StreamingDataset
from shardmill.errors import UsageError
from shardmill.lineage import Delivery, SampleSteps, StepSamples


def write(folder: Any, sizes: list[int], first: int = 0) -> str:
    """Writes a dataset with these numbers of samples in its shards."""
    number = first
    with MDSWriter(
        out=str(folder), columns={'__key__': 'str', 'id': 'int'}, size_limit=None
    ) as out:
        for _ in range(sum(sizes)):
            out.write({'__key__': f'key {number}', 'id': number})
            number += 1
    return str(folder)


@pytest.fixture
def shards(tmp_path: Any) -> str:
    with MDSWriter(
        out=str(tmp_path / 'shards'),
        columns={'__key__': 'str', 'id': 'int'},
        size_limit=1 << 9,
    ) as out:
        for number in range(211):
            out.write({'__key__': f'key {number}', 'id': number})
    return str(tmp_path / 'shards')


def batches(dataset: StreamingDataset[Any], workers: int = 0) -> list[list[int]]:
    loader = StreamingDataLoader(dataset, batch_size=dataset.batch_size, num_workers=workers)
    return [batch['id'].tolist() for batch in loader]


def ids(found: StepSamples) -> list[int]:
    return [one.origin.sample for one in found.samples]


@pytest.mark.parametrize('algo', ['py1e', 'py1br', 'py1s', 'py2s', 'naive', 'shardmill'])
def test_which_step_matches_loader_batches(shards: str, algo: str) -> None:
    made: dict[str, Any] = {
        'local': shards,
        'shuffle': True,
        'shuffle_algo': algo,
        'batch_size': 8,
        'shuffle_block_size': 60,
    }
    ranks = [StreamingDataset(**made, rank=rank, world_size=2) for rank in range(2)]
    for epoch in range(2):
        logs = [batches(dataset) for dataset in ranks]
        for step, both in enumerate(zip(*logs)):
            found = ranks[0].which(step)
            assert (found.epoch, found.step, found.sample_in_epoch) == (epoch, step, step * 16)
            assert ids(found) == both[0] + both[1]
            own = ranks[1].which(step, rank=1, epoch=epoch, keys=False)
            assert ids(own) == both[1]
            assert all(one.rank == 1 and one.origin.key is None for one in own.samples)
        for sample in random.Random(epoch).sample(range(211), 5):
            places = [
                (step, rank, position)
                for step in range(len(logs[0]))
                for rank, log in enumerate(logs)
                for position, found_id in enumerate(log[step])
                if found_id == sample
            ]
            steps = ranks[0].which(sample=sample, epoch=epoch)
            assert [(one.step, one.rank, one.position) for one in steps.steps] == places


def test_which_sample_returns_origin_and_steps(shards: str) -> None:
    dataset = StreamingDataset(local=shards, batch_size=4)
    found = dataset.which(sample=37)
    assert isinstance(found, SampleSteps)
    origin = found.origin
    assert (origin.sample, origin.stream, origin.key) == (37, 0, 'key 37')
    assert dataset.shards[origin.shard].samples > origin.index
    assert found.steps == (Delivery(0, 9, 36, 0, 1, False),)
    assert (origin.file, origin.row) == (None, None)
    assert origin.source.unknown == 'file and row: there is no index.provenance'
    # Nothing of the iteration has changed.
    assert batches(dataset)[0] == [0, 1, 2, 3]


def test_which_counts_steps_from_a_state(shards: str) -> None:
    made: dict[str, Any] = {'local': shards, 'shuffle': True, 'batch_size': 8}
    dataset = StreamingDataset(**made)
    loader = StreamingDataLoader(dataset, batch_size=8)
    log = []
    for step, batch in enumerate(loader):
        log.append(batch['id'].tolist())
        if step == 4:
            state = json.loads(json.dumps(loader.state_dict()))
    # From the state, with and without loading it, also with more ranks and in the form of Mosaic.
    assert ids(dataset.which(2, state=state)) == log[7]
    plain = {name: state[name] for name in state if name != 'shardmill'}
    other = StreamingDataset(**{**made, 'batch_size': 4}, rank=1, world_size=2)
    assert sorted(ids(other.which(2, state=plain))) == sorted(log[7])
    other.load_state_dict(state)
    assert sorted(ids(other.which(2))) == sorted(log[7])
    assert other.which(0).sample_in_epoch == 40
    found = other.which(sample=log[9][3])
    assert [(one.step, one.sample_in_epoch) for one in found.steps] == [(4, 72)]


def test_which_reports_stream_of_mixed_samples(tmp_path: Any, shards: str) -> None:
    from shardmill import Stream

    more = write(tmp_path / 'more', [50], 211)
    streams = [Stream(local=shards, proportion=0.5), Stream(local=more, proportion=0.5)]
    dataset = StreamingDataset(
        streams=streams, shuffle=True, batch_size=6, batching_method='stratified', epoch_size=120
    )
    for step, batch in enumerate(batches(dataset)):
        found = dataset.which(step)
        assert ids(found) == batch
        assert [one.origin.stream for one in found.samples] == [int(one > 210) for one in batch]


def test_which_with_invalid_arguments_is_an_error(tmp_path: Any, shards: str) -> None:
    dataset = StreamingDataset(local=shards, batch_size=8)
    steps = len(batches(dataset))
    wrong: list[tuple[dict[str, Any], str]] = [
        ({'step': steps}, 'no-such-step'),
        ({'sample': 211}, 'no-such-sample'),
        ({'step': 0, 'rank': 1}, 'config-world'),
        ({}, 'config-value'),
        ({'step': 0, 'sample': 0}, 'config-value'),
        ({'sample': 0, 'rank': 0}, 'config-value'),
        ({'step': 0, 'state': dataset.state_dict(8), 'epoch': 0}, 'config-value'),
        ({'step': -1}, 'config-value'),
    ]
    for arguments, error in wrong:
        with pytest.raises(UsageError) as raised:
            dataset.which(**arguments)
        assert raised.value.id == error, arguments
    with pytest.raises(TypeError):
        dataset.which('first')  # type: ignore[call-overload]
    other = StreamingDataset(local=write(tmp_path / 'other', [30]), batch_size=8)
    with pytest.raises(FileExistsError, match='state-foreign'):
        dataset.which(0, state=other.state_dict(8))
    with pytest.raises(UsageError, match='batch_size'):
        StreamingDataset(local=shards).which(0)
