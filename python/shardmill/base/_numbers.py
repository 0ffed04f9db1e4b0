"""Checked numbers and arrays on their way to and from the extension module."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Optional

import numpy as np

from shardmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

_MOST = (1 << 63) - 1


def whole(name: str, value: Any, least: int = 0) -> int:
    """An integer from `least` to 2^63 - 1.

    Raises:
        TypeError: It is no integer.
        ValueError: It is another one.
    """
    number = operator.index(value)
    if not least <= number <= _MOST:
        kind = 'positive' if least else 'non-negative'
        raise UsageError(
            f'{name} is {number}, which is not a {kind} 64-bit integer', 'config-value'
        )
    return number


def whole_or_none(name: str, value: Any, least: int = 0) -> Optional[int]:
    """As `whole`; None stays None."""
    return None if value is None else whole(name, value, least)


def int64_bytes(values: ArrayLike) -> bytes:
    """One-dimensional integers as little-endian int64."""
    array = np.asarray(values)
    if array.size == 0:
        return b''
    if array.ndim != 1:
        raise UsageError(f'{array.ndim} dimensions where one is expected', 'config-value')
    return array.astype('<i8', casting='same_kind', copy=False).tobytes()


def int64_array(data: bytearray, shape: Optional[Sequence[int]] = None) -> NDArray[np.int64]:
    """A writable array over little-endian int64; one dimension of `shape` may be -1."""
    array: NDArray[np.int64] = np.frombuffer(data, np.int64)
    return array if shape is None else array.reshape(shape)
