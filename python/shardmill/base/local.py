"""Random access to a dataset on a local disk."""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING, Any, Optional, Union

from shardmill import _core, _torch
from shardmill.base import _arguments as check
from shardmill.base._fields import FieldDecoder, field_decoder
from shardmill.base._live import given_view
from shardmill.base._stored import Stored, given_window
from shardmill.base.format.index import get_index_basename

if TYPE_CHECKING:
    from torch.utils.data import Dataset as _Dataset

    from shardmill.base._typing import Path, SampleT
    from shardmill.base.format.base.reader import Reader
    from shardmill.base.spanner import Spanner
    from shardmill.views import View
    from shardmill.windows import Window
else:
    _Dataset, SampleT = _torch.Placeholder, Any

__all__ = ['LocalDataset']


class LocalDataset(Stored, _Dataset[SampleT]):
    """A map-style dataset for torch: samples by number.

    For type checkers it is generic in the sample type, which defaults to ``Any``.

    Args:
        local: The folder of the dataset, a tar file, or a pattern of tar files, such as ``data/train-{000..146}.tar``.
        split: A subfolder, such as ``train``.
        decode: How to decode fields of WebDataset samples, as in ``StreamingDataset``.
        with_deleted: Whether to also read samples that were deleted from the dataset's table.
        view: The samples to read: a `View`, or the path of its file. Defaults to all.
        window: The neighbours that are returned with each sample: a `Window`.

    Attributes:
        num_samples: The number of samples.
        shards: The shards, with their files, sizes and hashes.

    Raises:
        FileNotFoundError: The dataset has no index.
        ValueError: The index is damaged or has an unsupported version.
    """

    def __init__(
        self,
        local: Path,
        split: Optional[str] = None,
        *,
        decode: Union[str, bool, FieldDecoder, None] = None,
        with_deleted: bool = False,
        view: Union[View, Path, None] = None,
        window: Optional[Window] = None,
    ) -> None:
        _torch.adopt(LocalDataset, 'Dataset', load=True)
        self.local = check.path('local', local)
        self.split = check.path_or_none('split', split) or ''
        self.with_deleted = check.flag('with_deleted', with_deleted)
        self._view = given_view(view)
        self.window = given_window(window)
        self._episodes = None
        self._decode_field = field_decoder(decode)
        self._open()

    def _open(self) -> None:
        stream = _core.StreamOptions(
            local=self.local,
            split=self.split,
            with_deleted=self.with_deleted,
            view=None if self._view is None else self._view._view,
        )
        encodings = self._known_encodings()
        options = _core.ReaderOptions(encodings=encodings)
        if self.window is not None:
            if self._episodes is None:
                self._episodes = self.window._episodes_of([stream], options)
            window = self.window._to_core(self._episodes)
            options = _core.ReaderOptions(encodings=encodings, window=window)
        self._reader = _core.Reader([stream], options, decode_field=self._decode_field)
        self._process = os.getpid()
        self.num_samples = self._reader.samples

    @cached_property
    def shards(self) -> list[Reader]:
        """The shards listed in the index."""
        import json

        from shardmill.base.format import reader_from_json
        from shardmill.base.format.base.reader import leave_out

        path = os.path.join(self.local, self.split, get_index_basename())
        with open(path, encoding='utf-8') as file:
            infos = json.load(file)['shards']
        shards = [reader_from_json(self.local, self.split, info) for info in infos]
        leave_out(shards, self._here().deleted_samples(0))
        return shards

    @cached_property
    def spanner(self) -> Spanner:
        """Maps a sample number to its shard and its position in the shard."""
        import numpy as np

        from shardmill.base.spanner import Spanner

        return Spanner(np.frombuffer(self._reader.shard_sizes()[0], np.int64))

    def __len__(self) -> int:
        """Returns the number of samples."""
        return self.num_samples

    def get_item(self, sample_id: int) -> dict[str, Any]:
        """Returns the values of a sample by column. Samples are numbered from 0.

        Raises:
            IndexError: The sample does not exist.
        """
        number = check.sample_number(sample_id, self.num_samples)
        sample: dict[str, Any] = self._here().sample(number)
        return sample

    def _here(self) -> _core.Reader:
        """Returns the reader of this process; a forked child opens its own."""
        if self._process != os.getpid():
            self._open()
        return self._reader

    def __getstate__(self) -> dict[str, Any]:
        own = ('_reader', 'shards', 'spanner')
        return {name: value for name, value in self.__dict__.items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()


_torch.adopt(LocalDataset, 'Dataset')
