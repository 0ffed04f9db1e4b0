"""Sequences that are indexed as NumPy arrays are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ['Array']


class Array:
    """A sequence with an item for each index from 0 to `size`, exclusive.

    Subclasses say how many (`size`) and what they are (`get_item`). Indexing by a slice, a list or
    an array gives a list of items, nested as the index is.
    """

    @property
    def size(self) -> int:
        """How many items there are."""
        raise NotImplementedError

    def get_item(self, idx: int) -> Any:
        """The item at an index from 0 to `size`, exclusive."""
        raise NotImplementedError

    def _each_slice_index(self, at: slice) -> Iterator[int]:
        """The indexes that a slice selects."""
        yield from range(*at.indices(self.size))

    def __getitem__(self, at: Any) -> Any:
        """The item at an index, which may count from the end, or a list of items.

        Args:
            at: An integer, Python's or NumPy's, which `get_item` is given as it is; a slice; a list or an array of
                integers. It has no type for type checkers, so that subclasses may accept less.

        Raises:
            IndexError: There is no such item.
            ValueError: The index is of another type.
        """
        if isinstance(at, int) and not isinstance(at, bool):
            return self._at(at)
        if isinstance(at, slice):
            return [self.get_item(index) for index in self._each_slice_index(at)]
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
