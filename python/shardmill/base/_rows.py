"""Batches of samples on their way from a worker process to the training process."""

from __future__ import annotations

from typing import Any

__all__ = ['packed']

#: NumPy's types of numbers, as they stand in `numpy.dtype`: each takes many times as long to pickle as its bytes do.
_CODES = '?bhilqBHILQefd'


class _Rows:
    """Dicts of the same keys: pickled column by column, and a list of dicts again when they are loaded."""

    def __init__(self, names: list[Any], columns: list[Any]) -> None:
        self._names = names
        self._columns = columns

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpacked, (self._names, self._columns)


def packed(batch: Any) -> Any:
    """What to pickle in the place of a batch.

    Args:
        batch: What a ``collate_fn`` has made.

    Returns:
        The batch itself, or, for a list of dicts with numbers of NumPy, an object that is loaded as the same list.
    """
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
