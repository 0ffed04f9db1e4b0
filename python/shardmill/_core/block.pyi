"""Numbers that NumPy and torch use without a copy."""

from typing import Any

class Block:
    """Numbers of one type in row-major order. ``numpy.asarray(block)`` is an array over the same memory."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def nbytes(self) -> int: ...
