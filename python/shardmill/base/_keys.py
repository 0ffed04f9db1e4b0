"""Samples of WebDataset by their keys."""

from __future__ import annotations

from types import GenericAlias
from typing import TYPE_CHECKING, Any, Protocol

from shardmill.base import _arguments as check

if TYPE_CHECKING:
    from shardmill import _core

__all__ = ['KeyAccess']


class _Numbered(Protocol):
    """A dataset whose samples have numbers."""

    @property
    def num_samples(self) -> int: ...

    def _here(self) -> _core.Reader: ...

    def get_item(self, sample_id: int, /) -> Any: ...

    def number_of(self, key: str, /) -> int: ...


class KeyAccess:
    """What datasets that may hold tar files have besides numbers."""

    if not TYPE_CHECKING:
        # A type of samples, as in `StreamingDataset[int]`, is for type checkers.
        __class_getitem__ = classmethod(GenericAlias)

    def number_of(self: _Numbered, key: str, /) -> int:
        """The number of the sample of a tar file that has a key.

        The first call in a process reads the headers of all tar files, which takes of a store about as long as
        fetching shards of small samples, and keeps 16 bytes for each sample.

        Args:
            key: The whole key, with its folders.

        Raises:
            KeyError: No sample has this key.
            ValueError: Several samples have it, or there are no tar files.
        """
        number = self._here().find_key(check.text('key', key))
        if number is None:
            raise KeyError(key)
        return number

    def key_of(self: _Numbered, number: int) -> str:
        """The key of a sample of a tar file.

        Args:
            number: Its number, from 0.

        Raises:
            IndexError: There is no such sample.
            KeyError: It has no key, as it is in no tar file.
        """
        number = check.sample_number(number, self.num_samples)
        key = self._here().key_of(number)
        if key is None:
            raise KeyError(f'sample {number} is in no tar file, and has no key')
        return key

    def get_by_key(self: _Numbered, key: str) -> Any:
        """One sample by its key: that of `number_of`.

        Args:
            key: The whole key, with its folders.

        Raises:
            KeyError: No sample has this key.
            ValueError: Several samples have it, or there are no tar files.
        """
        return self.get_item(self.number_of(key))
