"""Partitions against golden ones and against what they promise."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest

from shardmill.base.partition import algos, get_partitions
from shardmill.base.partition.orig import get_partitions_orig
from shardmill.base.partition.relaxed import get_partitions_relaxed

# Arguments, the shape, and the positions by node, rank, worker, batch and place.
GOLDEN: list[tuple[list[Any], tuple[int, ...], list[int]]] = [
    (
        ['orig', 10, 2, 1, 2, 2, 2],
        (1, 2, 2, 2, 2),
        [*(0, 1, 4, -1), *(2, 3, -1, -1), *(5, 6, 9, -1), *(7, 8, -1, -1)],
    ),
    (['orig', 10, 2, 1, 2, 2, 2, 4], (1, 2, 2, 1, 2), [2, 3, 4, -1, 7, 8, 9, -1]),
    (['orig', 7, 1, 2, 1, 1, 2], (2, 1, 1, 2, 2), [0, 2, 4, 6, 1, 3, 5, 5]),
    (['orig', 10, 1, 1, 4, 1, 1], (1, 4, 1, 3, 1), [0, 4, 8, 1, 5, 9, 2, 6, 5, 3, 7, 6]),
    (
        ['relaxed', 12, 4, 3, 1, 1, 4, 0, 2],
        (3, 1, 1, 1, 4),
        [0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11],
    ),
]


@pytest.mark.parametrize(('arguments', 'shape', 'positions'), GOLDEN)
def test_partitions_match_golden_values(
    arguments: list[Any], shape: tuple[int, ...], positions: list[int]
) -> None:
    partition = get_partitions(*arguments)
    assert partition.shape == shape
    assert partition.reshape(-1).tolist() == positions
    assert partition.dtype == np.int64
    partition[...] = 0
    assert partition.flags.writeable


def test_fewer_samples_than_canonical_nodes_warns() -> None:
    with pytest.warns(UserWarning, match='^Trying to partition 3 samples over 4 canonical nodes'):
        partition = get_partitions('orig', 3, 4, 2, 1, 1, 2)
    assert partition.tolist() == [[[[[0, 2]]]], [[[[1, 0]]]]]


def test_fewer_samples_than_ranks_warns() -> None:
    with pytest.warns(UserWarning, match='^Attempting to partition'):
        get_partitions('orig', 25, 4, 4, 8, 8, 4)
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        get_partitions('orig', 55, 4, 4, 8, 8, 4)


WORLDS = list(itertools.product(['orig', 'relaxed'], [1, 2, 4], [1, 2, 3], [1, 3], [1, 2, 5]))


@pytest.mark.parametrize(('algo', 'nodes', 'ranks', 'workers', 'batch'), WORLDS)
def test_partition_assigns_every_position(
    algo: str, nodes: int, ranks: int, workers: int, batch: int
) -> None:
    for samples in (480, 481):
        partition = get_partitions(algo, samples, 4, nodes, ranks, workers, batch)
        assert partition.shape[:3] == (nodes, ranks, workers)
        assert partition.shape[4] == batch
        dealt = partition[partition >= 0]
        assert set(dealt.tolist()) == set(range(samples))
        # As many for each rank, some of them twice.
        each = (partition >= 0).sum(axis=(2, 3, 4))
        assert each.min() == each.max()
        assert 0 <= each.sum() - samples < nodes * ranks + 4


def walk(partition: Any, batch: int) -> Any:
    """Global batches, in order."""
    return partition.transpose(3, 2, 0, 1, 4).reshape(-1, batch)


@pytest.mark.parametrize(('nodes', 'ranks', 'batch'), [(1, 6, 4), (2, 3, 4), (3, 8, 1), (4, 2, 3)])
def test_global_batches_are_equal_in_every_world(nodes: int, ranks: int, batch: int) -> None:
    base = walk(get_partitions('orig', 960, 12, 1, 1, 1, 24), 24)
    other = walk(get_partitions('orig', 960, 12, nodes, ranks, 2, batch), 24)
    assert [set(row) for row in other] == [set(row) for row in base]


def test_resumed_partition_continues_after_drop_first() -> None:
    whole = walk(get_partitions('relaxed', 960, 4, 4, 2, 1, 3), 24)
    rest = walk(get_partitions('relaxed', 960, 4, 3, 2, 1, 4, 240, 4), 24)
    # Three nodes do not divide four: the order is exactly that of the first run.
    assert rest.tolist() == whole[10:].tolist()


def test_fully_consumed_epoch_has_empty_partition() -> None:
    assert get_partitions('orig', 405, 2, 2, 8, 3, 4, 416).shape == (2, 8, 3, 0, 4)


@pytest.mark.parametrize(
    ('changed', 'message'),
    [
        ({'num_physical_nodes': 3}, 'Either canonical or physical nodes must be'),
        ({'num_canonical_nodes': 6}, 'Either canonical or physical nodes must be'),
        ({'drop_first': 417}, 'Resuming further into the dataset'),
        ({'num_samples': -1}, 'num_samples'),
        ({'num_samples': 0, 'drop_first': 0}, 'no samples'),
        ({'batch_size': 0}, 'batch_size'),
        ({'ranks_per_node': 0}, 'ranks_per_node'),
        ({'workers_per_rank': 0}, 'workers_per_rank'),
        ({'num_canonical_nodes': 0}, 'num_canonical_nodes'),
        ({'num_samples': 1 << 60}, 'num_samples'),
        ({'drop_first': -1}, 'drop_first'),
    ],
)
@pytest.mark.parametrize('algo', ['orig', 'relaxed'])
def test_invalid_partition_arguments_are_errors(
    algo: str, changed: dict[str, int], message: str
) -> None:
    arguments = {
        'num_samples': 400,
        'num_canonical_nodes': 4,
        'num_physical_nodes': 4,
        'ranks_per_node': 8,
        'workers_per_rank': 2,
        'batch_size': 4,
    }
    get_partitions(algo, **arguments)
    with pytest.raises(ValueError, match=message):
        get_partitions(algo, **{**arguments, **changed})


def test_changed_global_batch_is_an_error() -> None:
    with pytest.raises(ValueError, match='global batch'):
        get_partitions('relaxed', 400, 4, 3, 1, 1, 3, 0, 2)


def test_unknown_algorithm_and_wrong_types_are_errors() -> None:
    assert algos == {'orig': get_partitions_orig, 'relaxed': get_partitions_relaxed}
    with pytest.raises(KeyError):
        get_partitions('other', 4, 1, 1, 1, 1, 1)
    with pytest.raises(TypeError):
        get_partitions('orig', 4.5, 1, 1, 1, 1, 1)  # type: ignore[arg-type]
    numpy = [np.int64(number) for number in (10, 2, 1, 2, 2, 2)]
    dealt = get_partitions('orig', *numpy)  # type: ignore[arg-type]
    assert dealt.reshape(-1).tolist() == GOLDEN[0][2]
