"""The values of windows of neighbouring samples."""

from __future__ import annotations

from typing import Any

from shardmill.base._training_batches import array_of


def stacked(values: list[Any]) -> Any:
    """Returns the values of a window as an array; as a list if they are no numbers or arrays of one shape."""
    array = array_of(values)
    return values if array.dtype == object else array
