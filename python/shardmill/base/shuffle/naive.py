"""A shuffle with one permutation of the whole epoch: every batch needs every shard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardmill.base.shuffle._order import shuffled

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ['get_shuffle_naive']


def get_shuffle_naive(
    shard_sizes: NDArray[np.int64],
    num_canonical_nodes: int,
    seed: int,
    epoch: int,
    block_size: int = 1 << 18,
) -> NDArray[np.int64]:
    """Permutes all samples at once, ignoring `num_canonical_nodes` and `block_size`.

    See `get_shuffle`.
    """
    return shuffled('naive', shard_sizes, num_canonical_nodes, seed, epoch, block_size)
