"""Samples that a reader reads by number: by key, as tables and as videos."""

from __future__ import annotations

from functools import cached_property
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Optional

from shardmill.base import _arguments as check
from shardmill.base._representation import dataset_representation
from shardmill.base.array import Array

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from shardmill import _core
    from shardmill._viewer import Viewer
    from shardmill.base._fields import FieldDecoder
    from shardmill.base._preview import Preview
    from shardmill.base._typing import Path
    from shardmill.schema import Schema
    from shardmill.videos import Clip, VideoIndex
    from shardmill.views import View
    from shardmill.windows import Window


class Stored(Array):
    """Samples that a reader reads by number.

    Tables and previews contain what is stored: a subclass that overrides ``get_item``, ``transform`` and ``decode``
    have no effect. Shards that are not cached are fetched.
    """

    if not TYPE_CHECKING:
        # The sample type in `StreamingDataset[int]` exists only for type checkers.
        __class_getitem__ = classmethod(GenericAlias)

    num_samples: int
    window: Optional[Window]
    _reader: _core.Reader
    #: The process that opened the reader.
    _process: int
    _decode_field: Optional[FieldDecoder]
    #: The first samples of the episodes of each stream, once they are found.
    _episodes: Optional[list[Optional[View]]]
    #: The names of the encodings that the program had registered when the dataset was opened, here or in the parent.
    _registered: frozenset[str] = frozenset()

    @property
    def size(self) -> int:
        """The number of samples of all streams, each counted once."""
        return self.num_samples

    def __repr__(self) -> str:
        return dataset_representation(self)

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
        from shardmill.schema import Schema

        return Schema.of_shards(self._here().schemas(), is_stored=True)

    @cached_property
    def _sample_columns(self) -> Schema:
        """The columns of the samples."""
        from shardmill.schema import Schema

        return Schema.of_shards(self._here().schemas())

    def _make_local(self, start: int, stop: int, /) -> None:
        """Makes the shards of samples available, if the reader does not fetch them itself."""

    def _is_local(self, sample_id: int, /) -> bool:
        """Returns whether a sample can be read without fetching or decompressing its shard."""
        return self._here().is_here(sample_id)

    # By key.

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

    # Videos.

    def video(
        self, sample_id: int, column: Optional[str] = None, *, videos: Optional[VideoIndex] = None
    ) -> Clip:
        """Returns the video of a sample, whose frames are decoded when they are requested.

        Args:
            sample_id: The number of the sample, from 0.
            column: The column. May be omitted with an index.
            videos: Where the videos are stored, as `index_videos` returns. Only the header and the needed parts of the
                video are then read. Without an index, the shard or sample is read whole.

        Raises:
            ConflictError: The index is of another dataset.
            DataError: The video is damaged.
            IndexError: The sample does not exist.
            UnsupportedError: The value is not an MP4 file, or the shard is compressed.
            UsageError: The sample does not have the column.
        """
        from shardmill.videos import clip_of

        return clip_of(self, sample_id, column, videos)

    # Tables.

    # Not plain properties: subclasses may assign attributes with these names.

    @cached_property
    def schema(self) -> Schema:
        """The columns of the samples, with their encodings and types."""
        return self._sample_columns

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self._sample_columns)

    def iter_arrow(
        self,
        start: Optional[int] = None,
        stop: Optional[int] = None,
        columns: Optional[Sequence[str]] = None,
        *,
        batch_size: Optional[int] = None,
        apply_null_masks: bool = True,
    ) -> pa.RecordBatchReader:
        """Returns a reader of record batches, which reads samples when they are requested.

        Memory holds one record batch at a time. The next shards of a store are fetched meanwhile.

        Args:
            start: The number of the first sample, as in a slice.
            stop: The number after the last sample, as in a slice.
            columns: The names of the columns; by default all columns.
            batch_size: Samples per record batch. Defaults to about 16 MiB of stored samples.
            apply_null_masks: Whether a value is null where the column ``NAME__is_null`` of ``convert(nulls='mask')``
                says so. These columns are then left out, unless ``columns`` names them.

        Raises:
            ImportError: pyarrow is not installed.
            UsageError: A column does not exist.
            UnsupportedError: A column has no Arrow type, or a type that differs between its arrays.
        """
        from shardmill.base._columns import record_batches

        return record_batches(self, start, stop, columns, batch_size, apply_null_masks)

    def to_arrow(
        self,
        start: Optional[int] = None,
        stop: Optional[int] = None,
        columns: Optional[Sequence[str]] = None,
        *,
        apply_null_masks: bool = True,
    ) -> pa.Table:
        """Returns samples as an Arrow table. Arguments and errors are those of `iter_arrow`."""
        reader = self.iter_arrow(start, stop, columns, apply_null_masks=apply_null_masks)
        return reader.read_all()

    def to_pandas(
        self,
        start: Optional[int] = None,
        stop: Optional[int] = None,
        columns: Optional[Sequence[str]] = None,
        *,
        apply_null_masks: bool = True,
    ) -> pd.DataFrame:
        """Returns samples as a pandas data frame. Arguments and errors are those of `iter_arrow`."""
        return self.to_arrow(start, stop, columns, apply_null_masks=apply_null_masks).to_pandas()

    def to_polars(
        self,
        start: Optional[int] = None,
        stop: Optional[int] = None,
        columns: Optional[Sequence[str]] = None,
        *,
        apply_null_masks: bool = True,
    ) -> pl.DataFrame:
        """Returns samples as a Polars data frame. Arguments and errors are those of `iter_arrow`."""
        import polars as pl

        table = self.to_arrow(start, stop, columns, apply_null_masks=apply_null_masks)
        frame = pl.from_arrow(table)
        assert isinstance(frame, pl.DataFrame)
        return frame

    def preview(self, samples: int = 5) -> Preview:
        """Reads the first samples for display, fetching what is not cached. Notebooks show images as thumbnails.

        Args:
            samples: The maximum number of samples.
        """
        from shardmill.base._preview import read_preview

        return read_preview(self, min(check.whole('samples', samples), self.num_samples))

    def view(
        self,
        stream: int = 0,
        *,
        height: int = 720,
        tokenizer: Optional[Path] = None,
        cache: Optional[Path] = None,
        metrics: Optional[str] = None,
    ) -> Viewer:
        """Starts a server that shows the dataset in the browser, as `shardmill.view` does. Notebooks show the page.

        Args:
            stream: The number of the stream to show, in a mix.
            height: The height of the frame in a notebook, in pixels.
            tokenizer: A tokenizer file (``tokenizer.json``) that shows columns of token ids as text.
            cache: The ``local`` folder of a run. The page shows which shards are in it.
            metrics: The address of `shardmill.metrics.serve` in a running job, whose metrics the page shows.
        """
        from shardmill._viewer import view

        location, with_deleted, samples, settings = self._place_of(stream)
        return view(
            location,
            height=height,
            with_deleted=with_deleted,
            view=samples,
            tokenizer=tokenizer,
            cache=cache,
            metrics=metrics,
            storage_options=settings,
        )

    def _place_of(self, stream: int) -> tuple[str, bool, Optional[View], Optional[dict[str, str]]]:
        """Returns the location of a stream, whether it has its deleted samples, its view, and its store settings."""
        streams = getattr(self, 'streams', [self])
        chosen = streams[check.whole('stream', stream, 0, len(streams) - 1)]
        location = getattr(chosen, 'remote', None) or chosen.local
        split = chosen.split or ''
        if split:
            location = f'{location.rstrip("/")}/{split}'
        # Of a dataset of one stream, `view` is the method.
        view = getattr(chosen, '_view' if chosen is self else 'view')
        settings = getattr(chosen, 'storage_options', None)
        return location, bool(chosen.with_deleted), view, settings

    def _repr_html_(self) -> str:
        """Returns a table of facts, columns and first samples.

        Samples are shown only if the first shard is on this machine: nothing is fetched or decompressed.
        """
        from shardmill.base._preview import preview_html

        return preview_html(self)


def given_window(given: Optional[Window]) -> Optional[Window]:
    """Checks the window of an argument."""
    if given is None:
        return None
    from shardmill.windows import Window

    return given if isinstance(given, Window) else check.refuse_type('window', given, 'a `Window`')
