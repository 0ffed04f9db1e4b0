"""Maps sample numbers to shards."""

from __future__ import annotations

import operator
from bisect import bisect_right
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ['Spanner']


class Spanner:
    """Finds the shard of a sample.

    Args:
        shard_sizes: The number of samples in each shard.
        span_size: Stored as an attribute for compatibility; not used.

    Attributes:
        num_samples: The total number of samples.
        shard_bounds: The first sample of each shard, followed by the total number of samples; int64.
    """

    def __init__(self, shard_sizes: NDArray[np.int64], span_size: int = 1 << 10) -> None:
        self.shard_sizes = shard_sizes
        self.span_size = span_size
        self.shard_bounds: NDArray[np.int64] = np.zeros(len(shard_sizes) + 1, np.int64)
        np.cumsum(shard_sizes, out=self.shard_bounds[1:])
        self.num_samples = int(self.shard_bounds[-1])
        self._bounds: list[int] = self.shard_bounds.tolist()

    def __getitem__(self, index: int) -> tuple[int, int]:
        """Returns the shard of a sample, and the position of the sample in it.

        Raises:
            IndexError: The sample does not exist.
        """
        sample = operator.index(index)
        if not 0 <= sample < self.num_samples:
            raise IndexError(f'Invalid sample index {sample}: there are {self.num_samples} samples')
        shard = bisect_right(self._bounds, sample) - 1
        # COMPAT: the shard is a NumPy number, the position a Python integer.
        number: Any = np.int64(shard)
        return number, sample - self._bounds[shard]
