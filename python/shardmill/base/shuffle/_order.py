"""The implementation of all shuffles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

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
        return shuffled(algo, shard_sizes, num_canonical_nodes, seed, epoch, block_size)

    get_shuffle.__doc__ = f'{doc} See `get_shuffle`.'
    get_shuffle.__module__ = f'shardmill.base.shuffle.{algo}'
    get_shuffle.__name__ = get_shuffle.__qualname__ = f'get_shuffle_{algo}'
    return get_shuffle
