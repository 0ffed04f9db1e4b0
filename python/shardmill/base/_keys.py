"""Access to WebDataset samples by key."""

from __future__ import annotations

from typing import Any

from shardmill.base import _arguments as check
from shardmill.base._stored import Stored


class KeyAccess(Stored):
    """Access by key, for datasets that may contain tar files."""

    def number_of(self, key: str, /) -> int:
        """Returns the number of the sample with a key, for samples in tar files.

        The first call in a process reads the headers of all tar files. For a store this takes about as long as
        fetching shards of small samples. The result takes 16 bytes of memory per sample.

        Args:
            key: The complete key, including folders.

        Raises:
            KeyError: No sample has this key.
            ValueError: Several samples have it, or the dataset has no tar files.
        """
        number = self._here().find_key(check.text('key', key))
        if number is None:
            raise KeyError(key)
        return number

    def key_of(self, sample_id: int) -> str:
        """Returns the key of a sample in a tar file.

        Args:
            sample_id: The number of the sample, from 0.

        Raises:
            IndexError: The sample does not exist.
            KeyError: The sample is not in a tar file, so it has no key.
        """
        number = check.sample_number(sample_id, self.num_samples)
        key = self._here().key_of(number)
        if key is None:
            raise KeyError(f'sample {number} is in no tar file, and has no key')
        return key

    def get_by_key(self, key: str) -> Any:
        """Returns the sample with a key. Argument and errors are those of `number_of`."""
        return self.get_item(self.number_of(key))
