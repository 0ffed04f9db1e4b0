"""Sinks and sources for Ray Data.

Write with a sink, and read with a source:

    frame.write_datasink(MDSDatasink('/data/tokens', compression='zstd:3'))
    ray.data.read_datasource(MDSDatasource('/data/tokens'))

Every write task writes a part, and the driver commits all parts. Parts are numbered in the order in which Ray starts
the tasks. With ``ray.data.DataContext.get_current().execution_options.preserve_order = True`` this is the order of the
dataset, and writing the same dataset again produces the same bytes.
"""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any, Optional, Union

from ray.data.block import BlockAccessor, BlockMetadata
from ray.data.datasource import Datasink, Datasource, ReadTask

from shardmill import _tables, parts
from shardmill.base import _arguments as check
from shardmill.base._signatures import renamed
from shardmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from ray.data._internal.execution.interfaces import TaskContext
    from ray.data.datasource import WriteResult

__all__ = [
    'MDSDatasink',
    'MDSDatasource',
    'WebDatasetDatasink',
    'WebDatasetDatasource',
]


class _Sink(Datasink):
    """A sink that writes parts."""

    def __init__(
        self,
        out: str,
        to: str,
        mode: str,
        shard_pattern: Optional[str],
        storage_options: Optional[Mapping[str, str]],
        options: dict[str, Any],
    ) -> None:
        self.begun: dict[str, Any] = {
            'to': to,
            'mode': mode,
            'shard_pattern': shard_pattern,
            'storage_options': storage_options,
        }
        self.staging = parts.begin(out, **self.begun)
        self.options = options
        self.committed: Optional[parts.Committed] = None
        # Report invalid options now.
        parts.PartWriter(self.staging, 0, **options)
        self._is_new = '://' not in out and not os.path.exists(self.staging.out)

    def on_write_start(self, schema: Optional[pa.Schema] = None) -> None:
        """Checks the columns before any task starts. Runs in the driver."""
        if self.committed is not None and self.begun['mode'] == 'error':
            # This sink already published a dataset: `begin` raises the error.
            parts.begin(self.staging.out, **self.begun)
        # Blocks of pandas have another kind of schema, and empty blocks have none.
        if schema is not None and hasattr(schema, 'empty_table') and len(schema):
            table = schema.empty_table()
            _tables.check_part(self.staging, self._options_for(table), _plain(table))

    def write(self, blocks: Iterable[Any], ctx: TaskContext) -> str:
        """Writes a part and returns its manifest. Runs in a task."""
        tables = (BlockAccessor.for_block(block).to_arrow() for block in blocks)
        # Blocks without rows may also lack columns.
        tables = (table for table in tables if table.num_rows)
        first = next(tables, None)
        options = self.options
        if first is not None:
            options = self._options_for(first)
            # The driver may not have known the schema.
            _tables.check_part(self.staging, options, _plain(first))
        every = chain([] if first is None else [first], tables)
        return parts.write_part(map(_plain, every), self.staging, ctx.task_idx, **options)

    def _options_for(self, table: pa.Table) -> dict[str, Any]:
        """Returns the options, with encodings for ragged tensors, whose Arrow list type has no dtype and shape."""
        columns = self.options['columns']
        encodings = {
            each.name: f'ndarray:{_dtype(each.type.value_type)}'
            for each in table.schema
            if _is_ragged(each.type)
        }
        if not encodings or self.is_tar():
            return self.options
        if columns is None:
            columns = table.column_names
        if isinstance(columns, str):
            return self.options
        chosen = dict(columns) if hasattr(columns, 'items') else dict.fromkeys(columns)
        chosen = {name: chosen[name] or encodings.get(name) for name in chosen}
        return {**self.options, 'columns': chosen}

    def is_tar(self) -> bool:
        """Returns whether the sink writes tar files."""
        return str(self.begun['to']) != 'mds'

    def on_write_complete(self, write_result: WriteResult[str]) -> None:
        """Publishes the dataset. Runs in the driver."""
        self.committed = parts.commit(write_result.write_returns, self.staging)
        if self.begun['mode'] != 'error':
            # Using the sink again starts another job.
            self.staging = parts.begin(self.staging.out, **self.begun)

    def on_write_failed(self, error: Exception) -> None:
        """Removes what the tasks have written."""
        parts.abort(self.staging)
        if self._is_new:
            # Fails if another process has written files to the folder meanwhile.
            with suppress(OSError):
                os.rmdir(self.staging.out)


class MDSDatasink(_Sink):
    """Writes a dataset in the MDS format. Arguments that are not listed are as in `shardmill.parts.PartWriter`.

    Args:
        out: A folder, or the URL of a prefix in a store, that all workers can access.
        mode: How to treat an existing dataset: ``error``, ``append`` or ``overwrite``.
        storage_options: Store settings that are not in the environment.

    Attributes:
        committed: The published dataset, after the write.

    Raises:
        ConflictError: A dataset exists, and the mode is ``error``.
    """

    @renamed(dest='out')
    def __init__(
        self,
        out: str,
        *,
        mode: str = 'error',
        columns: Optional[parts.Columns] = None,
        compression: Optional[str] = None,
        hashes: Union[str, Sequence[str]] = (),
        size_limit: Optional[Union[int, str]] = parts.SIZE_LIMIT,
        samples_per_shard: Optional[Union[int, str]] = None,
        storage_options: Optional[Mapping[str, str]] = None,
    ) -> None:
        options = {
            'columns': columns,
            'compression': compression,
            'hashes': hashes,
            'size_limit': size_limit,
            'samples_per_shard': samples_per_shard,
        }
        super().__init__(out, 'mds', mode, None, storage_options, options)


class WebDatasetDatasink(_Sink):
    """Writes a dataset in the WebDataset format. Arguments that are not listed are as in `shardmill.parts.PartWriter`.

    Args:
        out: A folder, or the URL of a prefix in a store, that all workers can access.
        mode: How to treat an existing dataset: ``error``, ``append`` or ``overwrite``.
        columns: The columns to write as fields: their names, or their field extensions by column name.
        key: The column with the sample keys. By default keys are numbers, prefixed with the part number.
        shard_pattern: The pattern of shard names, such as ``shard-%06d.tar``.
        compression: ``gz`` or ``zstd``, optionally with a level; none by default.
        storage_options: Store settings that are not in the environment.

    Attributes:
        committed: The published dataset, after the write.

    Raises:
        ConflictError: A dataset exists, and the mode is ``error``.
    """

    @renamed(dest='out', pattern='shard_pattern')
    def __init__(
        self,
        out: str,
        *,
        mode: str = 'error',
        columns: Optional[parts.Columns] = None,
        key: Optional[str] = None,
        shard_pattern: Optional[str] = None,
        compression: Optional[str] = None,
        hashes: Union[str, Sequence[str]] = (),
        size_limit: Optional[Union[int, str]] = parts.SIZE_LIMIT,
        samples_per_shard: Optional[Union[int, str]] = None,
        storage_options: Optional[Mapping[str, str]] = None,
    ) -> None:
        options = {
            'columns': columns,
            'compression': compression,
            'hashes': hashes,
            'key': key,
            'size_limit': size_limit,
            'samples_per_shard': samples_per_shard,
        }
        super().__init__(out, 'webdataset', mode, shard_pattern, storage_options, options)


def _plain(table: pa.Table) -> pa.Table:
    """Replaces types that only Ray knows: tensors become lists."""
    import pyarrow as pa

    for place, column in enumerate(table.schema):
        if isinstance(column.type, pa.BaseExtensionType):
            plain = _storage(column.name, table.column(place))
            table = table.set_column(place, column.name, plain)
    return table


def _is_ragged(data_type: pa.DataType) -> bool:
    """Returns whether this is the type of tensors with different shapes."""
    return 'shape' in _fields(getattr(data_type, 'storage_type', None))


def _dtype(data_type: pa.DataType) -> str:
    import numpy as np

    return np.dtype(_stored(data_type).to_pandas_dtype()).name


def _fields(data_type: Any) -> list[str]:
    import pyarrow as pa

    if data_type is None or not pa.types.is_struct(data_type):
        return []
    return [data_type.field(place).name for place in range(data_type.num_fields)]


def _storage(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Converts a tensor column to lists."""
    import pyarrow as pa

    if column.null_count:
        text = f'column {name}: a tensor is null'
        raise UsageError(text, 'value-null', name, 'fill or drop nulls before')
    if _is_ragged(column.type):
        return _ragged(name, column)
    shape = getattr(column.type, 'shape', None)
    if shape is None:
        text = f'column {name}: {column.type} cannot be stored'
        raise UsageError(text, 'type-unsupported', name)
    if 0 in shape:
        text = f'column {name}: tensors of the shape {tuple(shape)} have no elements'
        raise UsageError(text, 'array-empty', name)
    value = _stored(column.type.storage_type.value_type)
    for length in reversed(shape):
        value = pa.list_(value, length)
    chunks = []
    for chunk in column.chunks:
        # The storage of a tensor is one flat list of its numbers.
        array = chunk.storage.flatten()
        array = array.cast(_stored(array.type))
        for length in reversed(shape):
            array = pa.FixedSizeListArray.from_arrays(array, length)
        chunks.append(array)
    return pa.chunked_array(chunks, value)


def _ragged(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Converts tensors of different shapes to lists; all must have the same number of axes."""
    import numpy as np
    import pyarrow as pa

    value = inner = _stored(column.type.storage_type.field('data').type.value_type)
    for _ in range(column.type.ndim):
        value = pa.list_(value)
    chunks = []
    for chunk in column.chunks:
        data, shapes = chunk.storage.field('data'), chunk.storage.field('shape')
        if chunk.null_count or data.null_count or shapes.null_count:
            text = f'column {name}: a tensor is null'
            raise UsageError(text, 'value-null', name, 'fill or drop nulls before')
        lengths = np.array(shapes.to_pylist(), np.int64).reshape(len(chunk), column.type.ndim)
        if not lengths.all():
            text = f'column {name}: a tensor has no elements'
            raise UsageError(text, 'array-empty', name)
        array = data.flatten().cast(inner)
        for axis in range(lengths.shape[1] - 1, -1, -1):
            counts = np.repeat(lengths[:, axis], lengths[:, :axis].prod(axis=1))
            offsets = np.zeros(len(counts) + 1, np.int64)
            np.cumsum(counts, out=offsets[1:])
            if offsets[-1] > np.iinfo(np.int32).max:
                text = (
                    f'column {name}: a block has {offsets[-1]} numbers, more than a list can hold'
                )
                raise UsageError(text, 'config-value', name, 'repartition into smaller blocks')
            array = pa.ListArray.from_arrays(offsets.astype(np.int32), array)
        chunks.append(array.cast(value))
    return pa.chunked_array(chunks, value)


def _stored(data_type: pa.DataType) -> pa.DataType:
    """Returns the type that numbers are stored with: booleans become ``uint8``."""
    import pyarrow as pa

    return pa.uint8() if pa.types.is_boolean(data_type) else data_type


class _Source(Datasource):
    """A source that reads shards."""

    @renamed(dest='location')
    def __init__(
        self,
        location: str,
        *,
        columns: Optional[Sequence[str]] = None,
        batch_size: int = 1024,
        storage_options: Optional[Mapping[str, str]] = None,
    ) -> None:
        super().__init__()
        self._table, self._shards = _tables.open_table(location, storage_options)
        if self._table.is_tar != self._is_tar and self._shards:
            text = f'{location} is not a dataset of {self._name}'
            raise UsageError(text, 'config-format', location)
        self._columns = (
            None if columns is None else check.texts('columns', columns, 'a list of names')
        )
        self._batch_size = batch_size
        self._schema = _schema(self._table, self._columns)

    _is_tar = False
    _name = 'MDS'

    def get_name(self) -> str:
        """Returns the name of the tasks."""
        return self._name

    def estimate_inmemory_data_size(self) -> Optional[int]:
        """Returns the uncompressed size of all shards in bytes."""
        return sum(shard.raw_bytes for shard in self._shards)

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: Optional[int] = None, *_: Any, **__: Any
    ) -> list[ReadTask]:
        """Returns tasks that each read a run of consecutive shards, dividing the shards evenly."""
        shards = [shard for shard in self._shards if shard.samples]
        count = max(1, min(parallelism, len(shards))) if shards else 0
        bounds = [number * len(shards) // count for number in range(count + 1)] if count else [0]
        groups = [shards[start:end] for start, end in zip(bounds, bounds[1:])]
        return [self._task(group, per_task_row_limit) for group in groups]

    def _task(self, shards: list[_tables.Shard], limit: Optional[int]) -> ReadTask:
        table, columns, batch_size = self._table, self._columns, self._batch_size
        metadata = BlockMetadata(
            num_rows=sum(shard.samples for shard in shards),
            size_bytes=sum(shard.raw_bytes for shard in shards),
            exec_stats=None,
            input_files=tuple(name for shard in shards for name in shard.files),
        )

        def read() -> Iterator[pa.Table]:
            import pyarrow as pa

            for shard in shards:
                for batch in _tables.read_shard(
                    table, shard, columns, batch_size=batch_size, tensors=_tensors
                ):
                    yield pa.Table.from_batches([batch])

        return ReadTask(read, metadata, schema=self._schema, per_task_row_limit=limit)


def _tensors(values: list[Any]) -> pa.Array:
    """Converts arrays of equal or different shapes to a Ray tensor column."""
    import numpy as np
    from ray.data.extensions import ArrowTensorArray

    if len({value.shape for value in values}) == 1:
        return ArrowTensorArray.from_numpy(np.stack(values))
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return ArrowTensorArray.from_numpy(column)


def _schema(table: _tables.Table, columns: Optional[Sequence[str]]) -> Optional[pa.Schema]:
    """Returns the schema of the blocks; ``None`` if the shapes of arrays are known only from their values."""
    import numpy as np
    import pyarrow as pa

    schema = _tables.schema_of(table, columns)
    for place, each in enumerate(schema):
        if not pa.types.is_list(each.type):
            continue
        _, dtype, *shape = table.columns[each.name].split(':')
        if not shape:
            return None
        empty = np.zeros((1, *map(int, shape[0].split(','))), dtype)
        schema = schema.set(place, pa.field(each.name, _tensors(list(empty)).type))
    return schema


class MDSDatasource(_Source):
    """Reads an MDS dataset. The number of rows is known before reading.

    Args:
        location: The folder or URL of the dataset.
        columns: The columns to read; ``None`` for all.
        batch_size: Maximum samples per block.
        storage_options: Store settings that are not in the environment.

    Raises:
        MissingIndexError: The dataset has no index.
    """


class WebDatasetDatasource(_Source):
    """Reads a WebDataset dataset that has an index. The number of rows is known before reading.

    Fields are bytes, except that text extensions give text and class extensions give integers. The key is the column
    ``__key__``. The arguments are those of `MDSDatasource`.
    """

    _is_tar = True
    _name = 'WebDataset'
