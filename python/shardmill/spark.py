"""A data source for PySpark 4 and later, in classic sessions and with Spark Connect.

Register the data source once per session, then write and read:

    spark.dataSource.register(ShardmillDataSource)
    frame.write.format('shardmill').option('to', 'mds').mode('append').save('/data/tokens')
    spark.read.format('shardmill').load('/data/tokens')

Every task writes its partition as a part, and the driver commits all parts. Spark itself rejects the modes ``error``
and ``ignore`` for Python data sources. Use the mode ``append`` with the option ``exists=error`` or ``exists=ignore``
instead.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from shardmill import _tables, parts
from shardmill.errors import ConflictError, InternalError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

__all__ = ['ShardmillDataSource']

#: The prefix of store options.
_STORAGE = 'storage.'
_READING = frozenset(('batch_size', 'path'))
_WRITING = frozenset(
    (
        'columns',
        'compression',
        'exists',
        'hashes',
        'key',
        'path',
        'samples_per_shard',
        'shard_pattern',
        'size_limit',
        'to',
    )
)
#: The default of rows per batch.
_ROWS = 1024
#: Maximum rows per batch.
_MAX_ROWS = (1 << 31) - 1
#: Wider types for Arrow types that Spark does not support.
_WIDER = {
    'halffloat': 'float',
    'uint8': 'int16',
    'uint16': 'int32',
    'uint32': 'int64',
}


class ShardmillDataSource(DataSource):
    """The data source ``shardmill``.

    Write options: ``to`` (``mds`` or ``webdataset``), ``columns`` (names separated by commas, or JSON with encodings by
    name), ``compression``, ``hashes`` (separated by commas), ``size_limit``, ``samples_per_shard``, ``key``,
    ``shard_pattern``, ``exists`` (``append``, ``error`` or ``ignore``). Read option: ``batch_size``. For both:
    ``storage.NAME`` for settings of the store.
    """

    @classmethod
    def name(cls) -> str:
        """Returns the name of the format."""
        return 'shardmill'

    def schema(self) -> StructType:
        """Returns the columns of the dataset with their Spark types."""
        from pyspark.sql.pandas.types import from_arrow_schema

        table, _ = _tables.open_table(self._path(), self._storage())
        schema: StructType = from_arrow_schema(_spark_schema(_tables.schema_of(table)))
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """Returns a reader with one partition per shard."""
        options = _checked(self.options, _READING)
        batch_size = parts.count_of('batch_size', options.get('batch_size', _ROWS)) or _ROWS
        if batch_size > _MAX_ROWS:
            text = f'batch_size: {batch_size} is above {_MAX_ROWS}'
            raise UsageError(text, 'config-value', 'batch_size')
        from pyspark.sql.pandas.types import to_arrow_schema

        table, shards = _tables.open_table(self._path(), self._storage())
        columns = _tables.matching(table, schema.names) if shards else list(schema.names)
        requested = to_arrow_schema(schema)
        return _Reader(self._path(), self._storage(), columns, requested, batch_size)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Returns a writer. Only its tasks write data."""
        options = _checked(self.options, _WRITING)
        exists = options.get('exists', 'append')
        if exists not in ('append', 'error', 'ignore'):
            text = f'exists: {exists!r} is none of append, error and ignore'
            raise UsageError(text, 'config-value')
        is_ignored = exists == 'ignore' and not overwrite
        if is_ignored:
            exists = 'error'
        try:
            staging = parts.begin(
                self._path(),
                to=options.get('to', 'mds'),
                mode='overwrite' if overwrite else exists,
                shard_pattern=options.get('shard_pattern'),
                storage_options=self._storage(),
            )
        except ConflictError:
            if is_ignored:
                return _Ignoring()
            raise
        layout: dict[str, Any] = {
            name: options[name] for name in parts.PartOptions.__annotations__ if name in options
        }
        layout['columns'] = _columns(options.get('columns'))
        from pyspark.sql.pandas.types import to_arrow_schema

        # Report unsupported columns before any task starts.
        _tables.check_part(staging, layout, to_arrow_schema(schema).empty_table())
        return _ArrowWriter(staging, layout)

    def _path(self) -> str:
        path: str = self.options.get('path', '')
        if not path:
            raise UsageError('name a place: .save(PLACE) or .load(PLACE)', 'config-value')
        # Hadoop writes `file:/` with one slash.
        return path[len('file:') :] if path.startswith('file:/') and path[6:7] != '/' else path

    def _storage(self) -> Optional[dict[str, str]]:
        pairs = self.options.items()
        # Spark changes option names to lower case.
        settings = {
            name[len(_STORAGE) :].upper(): value
            for name, value in pairs
            if name.lower().startswith(_STORAGE)
        }
        return settings or None


def _checked(options: Any, there: frozenset[str]) -> dict[str, str]:
    """Returns the options with names in lower case."""
    known = {name.lower(): value for name, value in options.items()}
    unknown = sorted(name for name in known if name not in there and not name.startswith(_STORAGE))
    if 'pattern' in unknown and 'shard_pattern' in there:
        text = '`pattern` has another name now: `shard_pattern`'
        hint = 'write `shard_pattern`'
        raise UsageError(text, 'config-argument', 'pattern', hint)
    if unknown:
        text = f'there is no option {", ".join(unknown)}'
        hint = f'use some of {", ".join(sorted(there))}, {_STORAGE}NAME'
        raise UsageError(text, 'config-argument', None, hint)
    return known


def _columns(text: Optional[str]) -> Any:
    """Parses the option ``columns``."""
    if not text:
        return None
    if text.lstrip().startswith('{'):
        try:
            columns = json.loads(text)
        except ValueError as error:
            raise UsageError(f'columns: no JSON: {error}', 'config-value', 'columns') from None
        if not all(value is None or isinstance(value, str) for value in columns.values()):
            text = f'columns: {text} has something else than names of encodings and null'
            raise UsageError(text, 'config-value', 'columns')
        return columns
    return [name.strip() for name in text.split(',')]


@dataclass
class _Message(WriterCommitMessage):
    """The result of a task, sent to the driver."""

    manifest: str


@dataclass
class _ArrowWriter(DataSourceArrowWriter):
    """Writes partitions as parts, which the driver commits."""

    staging: parts.Staging
    layout: dict[str, Any]

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Writes a partition. Runs in a task."""
        context = TaskContext.get()
        if context is None:
            raise InternalError('this runs in a task of Spark only')
        attempt = f'{context.taskAttemptId():x}'
        manifest = parts.write_part(
            iterator, self.staging, context.partitionId(), attempt, **self.layout
        )
        return _Message(manifest)

    def commit(self, messages: Sequence[Optional[WriterCommitMessage]]) -> None:
        """Publishes the dataset. Runs in the driver."""
        manifests = [each.manifest for each in messages if isinstance(each, _Message)]
        parts.commit(manifests, self.staging, parts=len(messages))

    def abort(self, messages: Sequence[Optional[WriterCommitMessage]]) -> None:
        """Removes what the tasks have written."""
        parts.abort(self.staging)


class _Ignoring(DataSourceArrowWriter):
    """Ignores all rows and leaves an existing dataset unchanged."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Ignores the rows."""
        return _Message('')

    def commit(self, messages: Sequence[Optional[WriterCommitMessage]]) -> None:
        """Does nothing."""

    def abort(self, messages: Sequence[Optional[WriterCommitMessage]]) -> None:
        """Does nothing."""


@dataclass
class _Partition(InputPartition):
    """One shard to read."""

    table: _tables.Table
    shard: _tables.Shard


@dataclass
class _Reader(DataSourceReader):
    """Reads shards."""

    location: str
    settings: Optional[dict[str, str]]
    columns: list[str]
    schema: pa.Schema
    batch_size: int

    def partitions(self) -> Sequence[InputPartition]:
        """Returns one partition per shard."""
        table, shards = _tables.open_table(self.location, self.settings)
        return [_Partition(table, shard) for shard in shards if shard.samples]

    def read(self, partition: Optional[InputPartition]) -> Iterator[pa.RecordBatch]:
        """Yields the samples of a shard as batches."""
        if not isinstance(partition, _Partition):
            # Spark calls this without a partition if there are none.
            return
        for batch in _tables.read_shard(
            partition.table, partition.shard, self.columns, batch_size=self.batch_size
        ):
            yield _cast(batch, self.schema)


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Converts a batch to the requested names and types."""
    import pyarrow as pa

    columns = []
    for column, field in zip(batch.columns, schema):
        try:
            columns.append(column if column.type == field.type else column.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            text = f'column {field.name}: {column.type} cannot be read as {field.type}: {error}'
            hint = 'leave the schema to the dataset, and cast in the query'
            raise UsageError(text, 'type-unsupported', field.name, hint) from None
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _spark_schema(schema: pa.Schema) -> pa.Schema:
    """Replaces the types that Spark does not support."""
    import pyarrow as pa

    fields = [pa.field(each.name, _spark_type(each.type), each.nullable) for each in schema]
    return pa.schema(fields)


def _spark_type(data_type: Any) -> Any:
    import pyarrow as pa

    if pa.types.is_list(data_type):
        return pa.list_(_spark_type(data_type.value_type))
    if pa.types.is_uint64(data_type):
        return pa.decimal128(20, 0)
    wider = _WIDER.get(str(data_type))
    return pa.type_for_alias(wider) if wider else data_type
