"""An array in shared memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Union

import numpy as np

from shardmill.base.shared.memory import SharedMemory

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ['SharedArray']


class SharedArray:
    """An array in shared memory. The first process that uses its name creates it with zeros; others attach to it.

    Args:
        shape: The shape.
        dtype: The type, such as `numpy.int64`.
        name: The name of the shared memory.

    Attributes:
        shape: The shape as a tuple.
    """

    def __init__(self, shape: Union[int, tuple[int, ...]], dtype: type[Any], name: str) -> None:
        self.shape: tuple[int, ...] = (shape,) if isinstance(shape, int) else tuple(shape)
        self.dtype = dtype
        self.name = name
        size = int(np.prod(self.shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        self.shm = SharedMemory(name=name, size=size)

    def numpy(self) -> NDArray[Any]:
        """Returns a writable NumPy array. The memory stays mapped as long as such an array exists."""
        # Not np.ndarray(buffer=...), which would not prevent unmapping.
        length = int(np.prod(self.shape, dtype=np.int64))
        return np.frombuffer(self.shm.buf, self.dtype, length).reshape(self.shape)

    def __len__(self) -> int:
        """Returns the first dimension."""
        return int(self.shape[0])

    def __getitem__(self, index: Any) -> Any:
        """Indexes the array like NumPy; slices are views."""
        return self.numpy()[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.numpy()[index] = value
