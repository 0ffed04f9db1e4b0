"""Access to the samples of a dataset as Arrow, pandas and Polars tables, and previews in notebooks."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Optional

from shardmill import _core
from shardmill.base import _arguments as check
from shardmill.base._columns import Column, record_batch, stored_value
from shardmill.base._preview import Preview, preview_html, read_preview
from shardmill.base._stored import Stored

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from shardmill._viewer import Viewer
    from shardmill.base._typing import Path
    from shardmill.schema import Schema
    from shardmill.views import View

#: Bytes of samples in a record batch, by their average size.
_BATCH_BYTES = 16 << 20
_MAX_SAMPLES = 1 << 16
#: How many shards are fetched ahead.
_SHARDS_AHEAD = 4


class TableAccess(Stored):
    """Tables of stored samples, in the order of their numbers.

    The tables contain what is stored: a subclass that overrides ``get_item``, ``transform`` and ``decode`` have no
    effect. Shards that are not cached are fetched.
    """

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
        import pyarrow as pa

        size = self.num_samples
        begin, end, _ = slice(start, stop).indices(size)
        end = max(begin, end)
        known = self._columns
        chosen = known.select(columns, apply_null_masks=apply_null_masks)
        reader = self._here()
        ranges = reader.ranges(stored_value)
        like: dict[str, Any] = {}
        unknown = [each.name for each in chosen if each.is_array and each.shape is None]
        if unknown and size:
            # The encodings do not say how many dimensions these arrays have.
            at = min(begin, size - 1)
            self._make_local(at, at + 1)
            like = _first(ranges.read(at, at + 1, set(unknown))[1])
        names = [each.name for each in chosen]
        schema = known.to_arrow(names, like=like, apply_null_masks=apply_null_masks)
        made = [
            Column(each, field, known.null_mask(each.name) if apply_null_masks else None)
            for each, field in zip(chosen, schema)
        ]
        if batch_size is None:
            average = max(1, reader.raw_bytes // max(1, size))
            batch_size = max(1, min(_BATCH_BYTES // average, _MAX_SAMPLES))
        step = check.whole('batch_size', batch_size, 1)
        only = {*names, *(column.mask for column in made if column.mask is not None)}

        def batches() -> Iterator[pa.RecordBatch]:
            ahead = _Ahead(reader, begin, end)
            for at in range(begin, end, step):
                last = min(at + step, end)
                ahead.move_to(last)
                self._make_local(at, last)
                samples, batch = ranges.read(at, last, only)
                yield record_batch(made, batch, samples, at, schema)

        return pa.RecordBatchReader.from_batches(schema, batches())

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
        count = min(check.whole('samples', samples), self.num_samples)
        return read_preview(self, count)

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
        return preview_html(self)


def _first(batch: Any) -> dict[str, Any]:
    """Returns the values of the first sample of a batch."""
    import numpy as np

    if not isinstance(batch, dict):
        return {name: value for name, value in batch[0].items() if value is not None}
    return {
        name: (values if isinstance(values, list) else np.asarray(values))[0]
        for name, values in batch.items()
    }


class _Ahead:
    """Fetches the next shards of a range in the background."""

    def __init__(self, reader: _core.Reader, start: int, stop: int) -> None:
        import numpy as np

        sizes = np.concatenate([np.frombuffer(each, np.int64) for each in reader.shard_sizes()])
        firsts = (np.cumsum(sizes) - sizes)[sizes > 0]
        self._reader = reader
        self._firsts = [int(first) for first in firsts if start < first < stop]
        self._requested = 0

    def move_to(self, stop: int) -> None:
        """Requests the shards after a sample, unless they were requested before."""
        import bisect

        wanted = bisect.bisect_left(self._firsts, stop) + _SHARDS_AHEAD
        ahead = self._firsts[self._requested : wanted]
        if ahead:
            self._reader.preload(ahead)
            self._requested += len(ahead)
