"""A shuffle of shard parts, followed by shuffles within staggered blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardmill.base.shuffle._order import shuffled
from shardmill.base.shuffle.py1s import divide_spans

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ['divide_spans', 'get_shuffle_py1br']


def get_shuffle_py1br(
    shard_sizes: NDArray[np.int64],
    num_canonical_nodes: int,
    seed: int,
    epoch: int,
    block_size: int = 1 << 18,
) -> NDArray[np.int64]:
    """Shuffles shard parts, then samples within staggered blocks of about `block_size` samples.

    See `get_shuffle`.
    """
    return shuffled('py1br', shard_sizes, num_canonical_nodes, seed, epoch, block_size)
