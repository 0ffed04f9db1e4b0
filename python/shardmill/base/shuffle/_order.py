"""The implementation of all shuffles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardmill import _core
from shardmill.base._arguments import whole
from shardmill.base._numbers import int64_array, int64_bytes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def shuffled(
    algo: str,
    shard_sizes: NDArray[np.int64],
    num_canonical_nodes: int,
    seed: int,
    epoch: int,
    block_size: int,
) -> NDArray[np.int64]:
    """Implements `get_shuffle`."""
    order = _core.shuffle(
        algo,
        int64_bytes(shard_sizes),
        whole('num_canonical_nodes', num_canonical_nodes, 1),
        whole('seed', seed),
        whole('epoch', epoch),
        whole('block_size', block_size),
    )
    return int64_array(order)
