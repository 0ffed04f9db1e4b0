"""A number in shared memory."""

from __future__ import annotations

from typing import Any

from shardmill.base.shared.array import SharedArray

__all__ = ['SharedScalar']


class SharedScalar:
    """A number in shared memory, initially 0.

    Args:
        dtype: The type, such as `numpy.int64`.
        name: The name of the shared memory.
    """

    def __init__(self, dtype: type[Any], name: str) -> None:
        self.dtype = dtype
        self.name = name
        self.arr = SharedArray(1, dtype, name)

    def get(self) -> Any:
        """Returns the number as a NumPy scalar."""
        return self.arr[0]

    def set(self, value: Any) -> None:
        """Sets the number."""
        self.arr[0] = value
