"""Partitions the positions of an epoch among nodes, ranks and workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Optional

from shardmill.base._arguments import choice
from shardmill.base.partition.orig import get_partitions_orig
from shardmill.base.partition.relaxed import get_partitions_relaxed
from shardmill.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ['algos', 'get_partitions', 'get_partitions_orig', 'get_partitions_relaxed']

algos: dict[str, Callable[..., NDArray[np.int64]]] = {
    'orig': get_partitions_orig,
    'relaxed': get_partitions_relaxed,
}


def get_partitions(
    algo: str,
    num_samples: int,
    num_canonical_nodes: int,
    num_physical_nodes: int,
    ranks_per_node: int,
    workers_per_rank: int,
    batch_size: int,
    drop_first: int = 0,
    initial_physical_nodes: Optional[int] = None,
) -> NDArray[np.int64]:
    """Partitions the positions of an epoch.

    Args:
        algo: ``orig`` or ``relaxed``.
        num_samples: The number of positions in the epoch.
        num_canonical_nodes: The fixed division of the sample space.
        num_physical_nodes: The number of nodes.
        ranks_per_node: The number of ranks per node.
        workers_per_rank: The number of workers per rank.
        batch_size: Samples per batch of one rank.
        drop_first: How many positions all ranks together have already received.
        initial_physical_nodes: The number of nodes in the first run, for a resumed run; not used by ``orig``.

    Returns:
        Positions by node, rank, worker, batch of the worker and position in the batch, int64; -1 is padding.

    Raises:
        KeyError: The algorithm is unknown.
        ValueError: Neither number of nodes divides the other, or `drop_first` is too large.
    """
    partition = algos[choice('algo', algo, algos)]
    ranks = num_physical_nodes * ranks_per_node
    if ranks > 0 and drop_first > num_samples + ranks - num_samples % ranks:
        raise UsageError(
            f'Resuming further into the dataset than its {num_samples} samples: at {drop_first}',
            'state-position',
        )
    return partition(
        num_samples,
        num_canonical_nodes,
        num_physical_nodes,
        ranks_per_node,
        workers_per_rank,
        batch_size,
        drop_first,
        initial_physical_nodes,
    )
