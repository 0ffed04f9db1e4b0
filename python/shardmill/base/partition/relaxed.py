"""The partition that allows a resumed run to use another number of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from shardmill.base.partition._deal import deal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ['get_partitions_relaxed']


def get_partitions_relaxed(
    num_samples: int,
    num_canonical_nodes: int,
    num_physical_nodes: int,
    ranks_per_node: int,
    workers_per_rank: int,
    batch_size: int,
    drop_first: int = 0,
    initial_physical_nodes: Optional[int] = None,
) -> NDArray[np.int64]:
    """Partitions the positions of an epoch. See `get_partitions`.

    In a first run, and if canonical or physical nodes are a multiple of the other, this is `orig`.
    Otherwise the sequence for the nodes of the first run is redistributed to the current nodes.

    Raises:
        ValueError: Neither number of nodes divides the other in a first run, or the devices of the
            first run cannot share the global batch.
    """
    return deal(
        'relaxed',
        num_samples,
        num_canonical_nodes,
        num_physical_nodes,
        ranks_per_node,
        workers_per_rank,
        batch_size,
        drop_first,
        initial_physical_nodes,
    )
