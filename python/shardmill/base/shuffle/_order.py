"""Makes the functions of the shuffles: they check their arguments, and Rust computes the order."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Protocol

import numpy as np

from shardmill import _core
from shardmill.base._arguments import whole
from shardmill.base._numbers import int64_array, int64_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Shuffle(Protocol):
    """The type of the functions that shuffle."""

    def __call__(
        self,
        shard_sizes: NDArray[np.int64],
        num_canonical_nodes: int,
        seed: int,
        epoch: int,
        block_size: int = ...,
    ) -> NDArray[np.int64]: ...


def shuffle_by(algo: str, doc: str) -> Shuffle:
    """Returns the function of the module of an algorithm, with this documentation."""

    def get_shuffle(
        shard_sizes: NDArray[np.int64],
        num_canonical_nodes: int,
        seed: int,
        epoch: int,
        block_size: int = 1 << 18,
    ) -> NDArray[np.int64]:
        order = _core.shuffle(
            algo,
            int64_bytes(shard_sizes),
            whole('num_canonical_nodes', num_canonical_nodes, 1),
            whole('seed', seed),
            whole('epoch', epoch),
            whole('block_size', block_size),
        )
        if algo == 'py1e':
            warn_of_small_block(shard_sizes, block_size)
        return int64_array(order)

    get_shuffle.__doc__ = f'{doc} See `get_shuffle`.'
    get_shuffle.__module__ = f'shardmill.base.shuffle.{algo}'
    get_shuffle.__name__ = get_shuffle.__qualname__ = f'get_shuffle_{algo}'
    return get_shuffle


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
