"""Reads how long the values of a column are, from the file of lengths beside the index of a dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Union

import numpy as np

from shardmill import _core
from shardmill.base import _arguments as check
from shardmill.base._live import given_view

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from shardmill.base._typing import Path
    from shardmill.views import View

__all__ = ['lengths']


def lengths(
    location: Path,
    column: str,
    *,
    with_deleted: bool = False,
    view: Union[View, Path, None] = None,
    storage_options: Optional[Mapping[str, str]] = None,
) -> NDArray[np.uint32]:
    """Returns the length of a column in every sample of a dataset, in order.

    The length of an array is its number of elements, and of text and other values their number of bytes. The lengths
    are read from a file beside the index, which ``convert(lengths=...)`` and ``shardmill index lengths`` write.

    Args:
        location: The dataset, in a directory or in a store.
        column: The column.
        with_deleted: Whether to also return the lengths of deleted samples.
        view: Only the samples of this view: a `View`, or the path of its file.
        storage_options: Store settings that are not in the environment.

    Raises:
        NotFoundError: There is no dataset, or it has no lengths of the column.
        ConflictError: The lengths or the view belong to another index.
        DataError: The file is damaged.
    """
    settings = check.storage_options(storage_options)
    place, name = check.path('location', location), check.text('column', column)
    chosen = given_view(view)
    selected = None if chosen is None else chosen._view
    found = _core.lengths(place, name, check.flag('with_deleted', with_deleted), settings, selected)
    return np.frombuffer(found, '<u4').astype(np.uint32, copy=False)
