"""The partition that requires canonical or physical nodes to be a multiple of the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from shardmill.base.partition._deal import deal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ['get_partitions_orig']


def get_partitions_orig(
    num_samples: int,
    num_canonical_nodes: int,
    num_physical_nodes: int,
    ranks_per_node: int,
    workers_per_rank: int,
    batch_size: int,
    drop_first: int = 0,
    initial_physical_nodes: Optional[int] = None,
) -> NDArray[np.int64]:
    """Partitions the positions of an epoch, ignoring `initial_physical_nodes`. See
    `get_partitions`.

    Raises:
        ValueError: Neither number of nodes divides the other.
    """
    return deal(
        'orig',
        num_samples,
        num_canonical_nodes,
        num_physical_nodes,
        ranks_per_node,
        workers_per_rank,
        batch_size,
        drop_first,
        initial_physical_nodes,
    )
