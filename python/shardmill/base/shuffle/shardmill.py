"""A shuffle of shard parts, followed by keyed permutations of overlapping blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardmill.base.shuffle._order import shuffled

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ['get_shuffle_shardmill']


def get_shuffle_shardmill(
    shard_sizes: NDArray[np.int64],
    num_canonical_nodes: int,
    seed: int,
    epoch: int,
    block_size: int = 1 << 18,
) -> NDArray[np.int64]:
    """Shuffles shard parts, then samples by keyed permutations of blocks of `block_size` samples. Not available in
    ``streaming``.

    See `get_shuffle`.
    """
    return shuffled('shardmill', shard_sizes, num_canonical_nodes, seed, epoch, block_size)
