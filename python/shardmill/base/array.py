"""Sequences that support NumPy-style indexing."""

from __future__ import annotations

from typing import Any

__all__ = ['Array']


class Array:
    """A sequence with an item for each index from 0 to `size`, exclusive.

    Subclasses define `size` and `get_item`. Indexing by a slice, a list or an array returns a list of
    items with the nesting of the index.
    """

    @property
    def size(self) -> int:
        """The number of items."""
        raise NotImplementedError

    def get_item(self, idx: int) -> Any:
        """Returns the item at an index from 0 to `size`, exclusive."""
        raise NotImplementedError

    def __getitem__(self, at: Any) -> Any:
        """Returns the item at an index, which may be negative, or a list of items.

        Args:
            at: A Python or NumPy integer, a slice, or a list or array of integers. It has no type for type checkers,
                so that subclasses may accept less.

        Raises:
            IndexError: The item does not exist.
            ValueError: The index is of another type.
        """
        if isinstance(at, int) and not isinstance(at, bool):
            return self._at(at)
        if isinstance(at, slice):
            return [self.get_item(index) for index in range(*at.indices(self.size))]
        if isinstance(at, list):
            return [self[index] for index in at]
        import numpy as np

        if isinstance(at, np.integer):
            return self._at(at)
        if isinstance(at, np.ndarray) and np.issubdtype(at.dtype, np.integer):
            return self[at.tolist()]
        raise ValueError(
            f'items are indexed by an integer, a slice, or a list or an array, not by {type(at)}'
        )

    def _at(self, index: Any) -> Any:
        size = self.size
        if not -size <= index < size:
            raise IndexError(f'index {index} is outside of the {size} items')
        return self.get_item(int(index) + size if index < 0 else index)
