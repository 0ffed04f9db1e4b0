"""Shuffles the samples of an epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable

from shardmill.base._arguments import choice
from shardmill.base.shuffle.naive import get_shuffle_naive
from shardmill.base.shuffle.py1br import get_shuffle_py1br
from shardmill.base.shuffle.py1e import get_shuffle_py1e
from shardmill.base.shuffle.py1s import get_shuffle_py1s
from shardmill.base.shuffle.py2s import get_shuffle_py2s
from shardmill.base.shuffle.shardmill import get_shuffle_shardmill

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    'algos',
    'get_shuffle',
    'get_shuffle_naive',
    'get_shuffle_py1br',
    'get_shuffle_py1e',
    'get_shuffle_py1s',
    'get_shuffle_py2s',
    'get_shuffle_shardmill',
]

algos: dict[str, Callable[..., NDArray[np.int64]]] = {
    'py1br': get_shuffle_py1br,
    'py1e': get_shuffle_py1e,
    'py1s': get_shuffle_py1s,
    'py2s': get_shuffle_py2s,
    'naive': get_shuffle_naive,
    'shardmill': get_shuffle_shardmill,
}


def get_shuffle(
    algo: str,
    shard_sizes: NDArray[np.int64],
    num_canonical_nodes: int,
    seed: int,
    epoch: int,
    block_size: int = 1 << 18,
) -> NDArray[np.int64]:
    """Returns the sample at each position of an epoch.

    Args:
        algo: ``py1br``, ``py1e``, ``py1s``, ``py2s``, ``naive`` or ``shardmill``.
        shard_sizes: The number of samples in each shard.
        num_canonical_nodes: How many parts the epoch is divided into; each sample stays in the same
            part in every epoch.
        seed: The seed of the run.
        epoch: The epoch, which is added to the seed.
        block_size: Samples per shuffle block, which bounds how far a sample moves; not used by
            `naive`, `py1s` and `py2s`.

    Returns:
        A permutation of the sample ids by position, int64.

    Raises:
        KeyError: The algorithm is unknown.
        ValueError: A number is negative, the block is too small for the algorithm, or (`py1e`)
            there are more canonical nodes than samples.
    """
    return algos[choice('algo', algo, algos)](
        shard_sizes, num_canonical_nodes, seed, epoch, block_size
    )
