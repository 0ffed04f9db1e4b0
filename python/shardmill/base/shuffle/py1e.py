"""A shuffle of shard parts that then moves each sample by a bounded random distance."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from shardmill.base.shuffle._order import shuffled
from shardmill.base.shuffle.py1s import divide_spans

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ['divide_spans', 'get_shuffle_py1e', 'warn_of_small_block']


def get_shuffle_py1e(
    shard_sizes: NDArray[np.int64],
    num_canonical_nodes: int,
    seed: int,
    epoch: int,
    block_size: int = 1 << 18,
) -> NDArray[np.int64]:
    """Shuffles shard parts, then moves each sample by up to half of about `block_size` samples.

    See `get_shuffle`.
    """
    order = shuffled('py1e', shard_sizes, num_canonical_nodes, seed, epoch, block_size)
    warn_of_small_block(shard_sizes, block_size)
    return order


def warn_of_small_block(
    shard_sizes: NDArray[np.int64], block_size: int, stacklevel: int = 3
) -> None:
    """Warns if a shard is larger than the smallest block, which is 3/4 of the block size."""
    largest = int(np.max(shard_sizes, initial=0))
    if largest > int(0.75 * block_size):
        # COMPAT: programs match the beginning of this message.
        warnings.warn(
            f'Shuffle block size was smaller than shard size: blocks are of about {block_size} '
            f'samples, and there is a shard of {largest}; the samples of such a shard are not '
            f'mixed with those of others',
            stacklevel=stacklevel,
        )
