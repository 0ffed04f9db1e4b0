"""Converts arrays for the extension module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

import numpy as np

from shardmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray


def int64_bytes(values: ArrayLike) -> bytes:
    """Converts one-dimensional integers to little-endian int64."""
    array = np.asarray(values)
    if array.size == 0:
        return b''
    if array.ndim != 1:
        raise UsageError(f'{array.ndim} dimensions where one is expected', 'config-value')
    return array.astype('<i8', casting='same_kind', copy=False).tobytes()


def int64_array(data: bytearray, shape: Optional[Sequence[int]] = None) -> NDArray[np.int64]:
    """Returns a writable array over little-endian int64; one dimension of `shape` may be -1."""
    array: NDArray[np.int64] = np.frombuffer(data, np.int64)
    return array if shape is None else array.reshape(shape)
