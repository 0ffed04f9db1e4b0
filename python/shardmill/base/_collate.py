"""Merges samples into batches as torch does, also samples with different fields."""

from __future__ import annotations

import copy
import sys
from collections.abc import Sequence
from typing import Any

__all__ = ['PartialSample', 'collate', 'has_none', 'partial_samples', 'union_of']


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
