"""Samples that a reader reads by number."""

from __future__ import annotations

import threading
from functools import cached_property
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Optional

from shardmill.base.array import Array
from shardmill.schema import Schema

if TYPE_CHECKING:
    from shardmill import _core


class Ready(threading.local):
    """A sample that the iteration of this thread has read, and its number."""

    sample: Optional[tuple[int, Any]] = None


class Stored(Array):
    """Samples that a reader reads by number."""

    if not TYPE_CHECKING:
        # The sample type in `StreamingDataset[int]` exists only for type checkers.
        __class_getitem__ = classmethod(GenericAlias)

    num_samples: int
    #: The names of the encodings that the program had registered when the dataset was opened, here or in the parent.
    _registered: frozenset[str] = frozenset()

    def _known_encodings(self) -> set[str]:
        """Returns `_registered` with the encodings that the program has registered since."""
        from shardmill.base.format.mds.encodings import registered_names

        self._registered |= registered_names()
        return set(self._registered)

    def _here(self) -> _core.Reader:
        """Returns the reader of this process."""
        raise NotImplementedError

    @cached_property
    def _columns(self) -> Schema:
        """The columns of the shards, with those that mark nulls."""
        return Schema.of_shards(self._here().schemas(), is_stored=True)

    @cached_property
    def _sample_columns(self) -> Schema:
        """The columns of the samples."""
        return Schema.of_shards(self._here().schemas())

    def _make_local(self, start: int, stop: int, /) -> None:
        """Makes the shards of samples available, if the reader does not fetch them itself."""

    def _is_local(self, sample_id: int, /) -> bool:
        """Returns whether a sample can be read without fetching or decompressing its shard."""
        return self._here().is_here(sample_id)
