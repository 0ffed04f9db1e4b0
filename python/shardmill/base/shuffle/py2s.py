"""The shuffle `py1s`, with a second shuffle of each shard before it is cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardmill.base.shuffle._order import shuffled

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ['get_shuffle_py2s']


def get_shuffle_py2s(
    shard_sizes: NDArray[np.int64],
    num_canonical_nodes: int,
    seed: int,
    epoch: int,
    block_size: int = 1 << 18,
) -> NDArray[np.int64]:
    """Shuffles like `py1s`, after shuffling each shard before it is cut. Ignores `block_size`.

    See `get_shuffle`.
    """
    return shuffled('py2s', shard_sizes, num_canonical_nodes, seed, epoch, block_size)
