"""An array in shared memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Union

import numpy as np

from shardmill.base.shared.memory import SharedMemory

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ['SharedArray']


class SharedArray:
    """An array in shared memory: created with zeros by the first process that names it, attached to
    by the others.

    Args:
        shape: Its shape.
        dtype: Its type, such as `numpy.int64`.
        name: The name of the block of shared memory.

    Attributes:
        shape: Its shape, a tuple.
    """

    def __init__(self, shape: Union[int, tuple[int, ...]], dtype: type[Any], name: str) -> None:
        self.shape: tuple[int, ...] = (shape,) if isinstance(shape, int) else tuple(shape)
        self.dtype = dtype
        self.name = name
        size = int(np.prod(self.shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        self.shm = SharedMemory(name=name, size=size)

    def numpy(self) -> NDArray[Any]:
        """The array, writable. The block stays mapped as long as there is such an array of it."""
        # Not np.ndarray(buffer=...), which does not keep the memory from being unmapped.
        length = int(np.prod(self.shape, dtype=np.int64))
        return np.frombuffer(self.shm.buf, self.dtype, length).reshape(self.shape)

    def __len__(self) -> int:
        """The first dimension."""
        return int(self.shape[0])

    def __getitem__(self, index: Any) -> Any:
        """As of a NumPy array; a part of it is a view."""
        return self.numpy()[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.numpy()[index] = value
