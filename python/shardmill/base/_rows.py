"""Compact pickles for batches that a worker process sends to the training process."""

from __future__ import annotations

from typing import Any

#: NumPy's number types, as codes for `numpy.dtype`. PERF: pickling one scalar takes much longer than copying its bytes.
_CODES = '?bhilqBHILQefd'


class _Rows:
    """Dicts with the same keys, which are pickled by column and unpickled as a list of dicts."""

    def __init__(self, names: list[Any], columns: list[Any]) -> None:
        self._names = names
        self._columns = columns

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpacked, (self._names, self._columns)


def packed(batch: Any) -> Any:
    """Returns the object to pickle in place of a batch: a list of dicts with NumPy numbers is pickled by column."""
    if type(batch) is not list or not batch or type(batch[0]) is not dict:
        return batch
    names = list(batch[0])
    if any(type(row) is not dict or list(row) != names for row in batch):
        return batch
    import numpy as np

    numbers = {np.dtype(code).type for code in _CODES}
    columns: list[Any] = []
    for column in zip(*map(dict.values, batch)):
        kind = type(column[0])
        if kind in numbers and all(type(value) is kind for value in column):
            columns.append(np.fromiter(column, kind, len(column)))
        else:
            columns.append(column)
    if not any(isinstance(column, np.ndarray) for column in columns):
        return batch
    return _Rows(names, columns)


def _unpacked(names: list[Any], columns: list[Any]) -> list[dict[Any, Any]]:
    return [dict(zip(names, row)) for row in zip(*columns)]
