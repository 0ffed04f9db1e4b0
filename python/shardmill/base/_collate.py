"""Merges samples into batches as torch does, also samples with different fields, and pickles batches compactly."""

from __future__ import annotations

import copy
import sys
from collections.abc import Sequence
from typing import Any

__all__ = ['PartialSample', 'collate', 'has_none', 'packed', 'partial_samples', 'union_of']


class PartialSample(dict[str, Any]):
    """A sample of a dataset whose samples have different fields.

    torch's ``default_collate`` takes the fields from the first sample, and merges samples of this class by `collate`.
    """

    __slots__ = ()


def partial_samples() -> type[PartialSample]:
    """Returns the class of samples with different fields, which torch can merge from now on."""
    if 'torch.utils.data' in sys.modules:
        from torch.utils.data._utils.collate import default_collate_fn_map

        default_collate_fn_map.setdefault(PartialSample, _merged)
    return PartialSample


def union_of(samples: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """Returns the values of each field that a sample has, with ``None`` for samples without it."""
    names = dict.fromkeys(name for sample in samples for name in sample)
    return {name: [sample.get(name) for sample in samples] for name in names}


def collate(batch: Any) -> Any:
    """Builds what torch's ``default_collate`` returns for the samples of a batch.

    The batch has all fields that one of its samples has, and so have dicts inside of samples. ``default_collate`` takes
    the fields of the first sample.

    Args:
        batch: Columns by name, each a `Block`, an array or a list of values; or a list of samples.

    Returns:
        Tensors sharing the memory of the columns for numbers, lists for text and bytes, and lists for columns with a
        ``None``, also inside of values. A value that a sample lacks is ``None``.
    """
    if isinstance(batch, dict):
        return {name: _column(values) for name, values in batch.items()}
    return _torch_collate(batch)


def _column(values: Any) -> Any:
    if isinstance(values, list):
        return values if has_none(values) else _torch_collate(values)
    import numpy as np
    import torch

    return torch.from_numpy(np.asarray(values))


def _torch_collate(values: Any) -> Any:
    from torch.utils.data._utils import collate as of_torch

    known = {**of_torch.default_collate_fn_map, dict: _merged}
    return of_torch.collate(values, collate_fn_map=known)


def _merged(samples: Sequence[dict[str, Any]], *, collate_fn_map: Any = None) -> dict[str, Any]:
    """Merges dicts, keeping the class and the attributes of the first one as torch does."""
    made: dict[str, Any] = collate(union_of(samples))
    if type(samples[0]) in (dict, PartialSample):
        return made
    whole: dict[str, Any] = copy.copy(samples[0])
    whole.update(made)
    return whole


def has_none(value: Any) -> bool:
    """Returns whether a value is ``None``, or has one inside."""
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list):
        return value is None
    return any(map(has_none, value))


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
