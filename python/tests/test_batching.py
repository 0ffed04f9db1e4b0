"""Epochs as a whole, against golden ones."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shardmill.base.batching import batching_methods, generate_work
from shardmill.base.world import World

# Two ranks of one node, batches of two.
GOLDEN = {
    'random': (
        [[14, 12], [17, 2], [4, 6], [3, 9], [10, -1]],
        [[13, 15], [16, 5], [0, 1], [11, 8], [7, -1]],
    ),
    'stratified': (
        [[1, 2], [0, 6], [4, 9], [10, 11]],
        [[3, 13], [5, 14], [7, 17], [8, 15]],
    ),
    'per_stream': (
        [[1, 3], [6, 4], [13, 17], [7, 11]],
        [[2, 0], [5, 9], [14, 15], [10, 8]],
    ),
    'device_per_stream': (
        [[1, 2], [6, 5], [17, 15], [7, 10], [11, 8]],
        [[3, 0], [13, 14], [4, 9], [12, 16], [-1, -1]],
    ),
}


def dataset(**changed: Any) -> Any:
    attributes = {
        'streams': [
            SimpleNamespace(choose=12, proportion=12 / 18),
            SimpleNamespace(choose=6, proportion=6 / 18),
        ],
        'shard_offset_per_stream': np.array([0, 3]),
        'shards_per_stream': np.array([3, 1]),
        'samples_per_shard': np.array([4, 3, 5, 6]),
        'sampling_granularity': 1,
        'sampling_method': 'balanced',
        'epoch_seed_change': True,
        'shuffle': True,
        'shuffle_algo': 'py1e',
        'shuffle_block_size': 8,
        'shuffle_seed': 9176,
        'num_canonical_nodes': 1,
        'initial_physical_nodes': None,
        'partition_algo': 'relaxed',
        'batch_size': 2,
    }
    return SimpleNamespace(**{**attributes, **changed})


WORLD = World(1, 2, 1, 0)
# One sample of the second stream is less than a part of a global batch of four.
UNEVEN = [
    SimpleNamespace(choose=12, proportion=12 / 13),
    SimpleNamespace(choose=1, proportion=1 / 13),
]


@pytest.mark.filterwarnings('ignore:Shuffle block size')
@pytest.mark.parametrize('method', sorted(GOLDEN))
def test_epochs_match_golden_values(method: str) -> None:
    work = generate_work(method, dataset(), WORLD, 0, 0)
    assert work.tolist() == [[[rank] for rank in GOLDEN[method]]]
    assert work.dtype == np.int64
    direct = batching_methods[method](dataset(), WORLD, 0, 0)
    assert direct.tolist() == work.tolist()


def walk(work: Any) -> Any:
    """Global batches, in order."""
    return work.transpose(3, 2, 0, 1, 4).reshape(work.shape[2] * work.shape[3], -1)


@pytest.mark.filterwarnings('ignore:Shuffle block size')
@pytest.mark.parametrize('method', sorted(GOLDEN))
def test_workers_and_restarts_keep_batch_order(method: str) -> None:
    whole = walk(generate_work(method, dataset(), WORLD, 0, 0)).tolist()
    several = walk(generate_work(method, dataset(), World(1, 2, 3, 0), 0, 0)).tolist()
    assert several[: len(whole)] == whole
    assert {entry for row in several[len(whole) :] for entry in row} <= {-1}
    rest = walk(generate_work(method, dataset(), WORLD, 0, 8)).tolist()
    assert rest == whole[2:]


def test_unshuffled_epoch_interleaves_canonical_nodes() -> None:
    work = generate_work('random', dataset(shuffle=False, epoch_seed_change=False), WORLD, 3, 0)
    assert [entry for row in walk(work).tolist() for entry in row if entry >= 0] == [
        *(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15, 16, 17)
    ]


@pytest.mark.filterwarnings('ignore:Shuffle block size')
def test_overridden_resample_streams_is_called() -> None:
    calls = []

    def resample_streams(epoch: int, stream_id: Any = None) -> Any:
        calls.append((epoch, stream_id))
        return [2, 2], np.array([100, 101, 102, 103])

    streams = [SimpleNamespace(choose=4, proportion=0.5)] * 2
    changed = dataset(resample_streams=resample_streams, streams=streams)
    work = generate_work('per_stream', changed, WORLD, 5, 0)
    assert calls == [(5, 0), (5, 1)]
    assert sorted(work.reshape(-1).tolist()) == [100, 100, 101, 101, 102, 102, 103, 103]
    generate_work('random', changed, WORLD, 6, 0)
    assert calls[2:] == [(6, None)]


def test_shuffle_block_smaller_than_shard_warns() -> None:
    with pytest.warns(UserWarning, match='^Shuffle block size was smaller than shard size'):
        generate_work('random', dataset(shuffle_block_size=6), WORLD, 0, 0)


@pytest.mark.filterwarnings('ignore:Shuffle block size')
@pytest.mark.parametrize(
    ('method', 'changed', 'error', 'message'),
    [
        ('random', {'num_canonical_nodes': None}, RuntimeError, 'num_canonical_nodes'),
        ('random', {'batch_size': None}, TypeError, 'batch_size'),
        ('random', {'batch_size': 0}, ValueError, 'batch_size'),
        ('random', {'shuffle_block_size': None}, TypeError, 'shuffle_block_size'),
        ('random', {'partition_algo': 'other'}, ValueError, 'partition_algo'),
        ('random', {'shuffle_algo': 'other'}, ValueError, 'shuffle_algo'),
        ('stratified', {'streams': UNEVEN}, ValueError, 'share'),
        ('per_stream', {'batch_size': 4}, ValueError, 'do not fill a batch'),
        ('device_per_stream', {'shuffle_block_size': 2}, ValueError, 'shuffle block'),
        ('other', {}, KeyError, 'other'),
    ],
)
def test_invalid_epoch_arguments_are_errors(
    method: str, changed: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        generate_work(method, dataset(**changed), WORLD, 0, 0)
