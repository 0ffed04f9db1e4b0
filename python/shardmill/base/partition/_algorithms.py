"""Makes the functions of the partition algorithms: they check their arguments, and Rust computes the partition."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Callable, Optional

from shardmill import _core
from shardmill.base._arguments import whole, whole_or_none
from shardmill.base._numbers import int64_array
from shardmill.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def partition_by(algo: str, doc: str) -> Callable[..., NDArray[np.int64]]:
    """Returns the function of the module of an algorithm, with this documentation."""

    def get_partitions(
        num_samples: int,
        num_canonical_nodes: int,
        num_physical_nodes: int,
        ranks_per_node: int,
        workers_per_rank: int,
        batch_size: int,
        drop_first: int = 0,
        initial_physical_nodes: Optional[int] = None,
    ) -> NDArray[np.int64]:
        samples = whole('num_samples', num_samples)
        canonical = whole('num_canonical_nodes', num_canonical_nodes, 1)
        nodes = whole('num_physical_nodes', num_physical_nodes, 1)
        ranks = whole('ranks_per_node', ranks_per_node, 1)
        workers = whole('workers_per_rank', workers_per_rank, 1)
        size = whole('batch_size', batch_size, 1)
        initial = whole_or_none('initial_physical_nodes', initial_physical_nodes, 1)
        divided_over = nodes
        if algo == 'relaxed' and initial is not None and not _divide(canonical, nodes):
            divided_over = initial
        if not _divide(canonical, divided_over):
            raise UsageError(
                f'Either canonical or physical nodes must be a multiple of the others, '
                f'but there are {canonical} canonical and {divided_over} physical nodes',
                'config-world',
                None,
                'choose num_canonical_nodes so that one divides the other',
            )
        dropped = whole('drop_first', drop_first)
        options = _core.EpochOptions(
            nodes=nodes,
            ranks_per_node=ranks,
            workers_per_rank=workers,
            batch_size=size,
            num_canonical_nodes=canonical,
            partition_algo=algo,
            resume=(0, dropped, 0, canonical, initial),
        )
        data, too_few_for_nodes, too_few_for_ranks = _core.partitions(options, samples)
        # COMPAT: programs match the beginning of both messages.
        if too_few_for_nodes:
            warnings.warn(
                f'Trying to partition {samples} samples over {canonical} canonical nodes: there are '
                f'too few, so that samples are repeated, and with some batching methods dropped',
                stacklevel=3,
            )
        if too_few_for_ranks:
            warnings.warn(
                f'Attempting to partition the samples of a node, out of {samples}, over {ranks} ranks: '
                f'there are too few, so that samples are repeated, and with some batching methods '
                f'dropped',
                stacklevel=3,
            )
        return int64_array(data, (nodes, ranks, workers, -1, size))

    get_partitions.__doc__ = f'{doc} See `get_partitions`.'
    get_partitions.__module__ = f'shardmill.base.partition.{algo}'
    get_partitions.__name__ = get_partitions.__qualname__ = f'get_partitions_{algo}'
    return get_partitions


def _divide(one: int, other: int) -> bool:
    return max(one, other) % min(one, other) == 0
