"""Parquet files that a data frame is nothing but a scan of: the tasks read them, rather than Spark.

What Spark reads it carries to Python as rows, value by value, which takes most of the time of a conversion. Where a
data frame is a scan and nothing else, it is enough that Spark says which rows of which files a task has. It still
splits the files and gives out the tasks, and it says so of every single row: partitions and their order are its own.

That a data frame is a scan is never guessed. A scan of the same files is made, and Spark is asked whether the two have
the same plan (``DataFrame.sameSemantics``). Only types for which reading a file leaves nothing to decide are taken, and
only files that hold just these types under just these names. Everything else goes by Spark.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, NamedTuple, Optional

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ['SETTING', 'UnfitError', 'batches_of', 'rows_of']

logger = logging.getLogger(__name__)

#: The setting of a session that says whether files may be read so.
SETTING = 'spark.shardmill.readFiles'

#: The scheme of files that Python can open as Spark does.
_SCHEME = 'file:'
#: Most files that are named one by one when a scan of them is made.
_MOST_NAMED = 1000
#: Most files of a folder that is listed again, some times, to find out how it was named.
_MOST_LISTED = 20_000
#: Bytes of a row, at least, in a file. PERF: what Spark says of each row takes as long as it takes to carry about 150.
_LEAST_ROW_BYTES = 512
#: Files that are looked at for one with rows.
_FIRST_FILES = 10
#: Bytes of a batch, about, and most rows of one. PERF: larger ones take twice as long, for fresh memory.
_BATCH_BYTES = 4 << 20
_BATCH_ROWS = 8192

_SIMPLE: dict[type[DataType], str] = {
    BinaryType: 'binary',
    BooleanType: 'bool',
    ByteType: 'int8',
    DoubleType: 'float64',
    FloatType: 'float32',
    IntegerType: 'int32',
    LongType: 'int64',
    ShortType: 'int16',
    StringType: 'string',
}


class UnfitError(Exception):
    """A file is not what its data frame says, without a conversion that is for Spark to make."""


# In the driver.


def rows_of(dataframe: DataFrame, columns: Iterable[str]) -> Optional[DataFrame]:
    """The file and the number in it of every row of a data frame, in the same partitions and the same order.

    Returns:
        ``None`` where the data frame is something else than a scan of Parquet files, where that cannot be shown, or
        where one of the columns cannot be read without Spark.
    """
    try:
        if str(dataframe.sparkSession.conf.get(SETTING, 'true')).lower() != 'true':
            return None
        columns = list(columns)
        level = dataframe.storageLevel
        # What was cached counts, whatever the files are now.
        if level.useMemory or level.useDisk or not _are_plain(dataframe.schema, columns):
            return None
        # A plan of its own, which names no files where something that it takes from was cached meanwhile.
        files = [_path_of(uri) for uri in dataframe.select('*').inputFiles()]
        paths = sorted(path for path in files if path is not None)
        if not paths or len(paths) != len(files) or len(paths) > _MOST_LISTED:
            return None
        if not _are_wide(paths, _wanted(dataframe.schema, columns)):
            return None
        if not _is_scan(dataframe, paths):
            return None
        rows = dataframe.select('_metadata.file_path', '_metadata.row_index')
        types = [field.dataType for field in rows.schema]
        return rows if types == [StringType(), LongType()] else None
    except Exception as error:
        # Whatever Spark has against it: it can do the work itself.
        logger.debug('the files of the data frame are left to Spark: %s', error)
        return None


def _are_plain(schema: StructType, columns: Iterable[str]) -> bool:
    """Whether columns can be read without Spark, as far as their types say so."""
    names = [name.lower() for name in schema.names]
    # The names of parts of a column have dots between them.
    if len(set(names)) != len(names) or '_metadata' in names or any('.' in name for name in names):
        return False
    # Fields with numbers are not found by their names, those of fixed width are filled up.
    if any(field.metadata for field in schema.fields):
        return False
    return all(_arrow_type(schema[name].dataType) is not None for name in columns)


def _wanted(schema: StructType, columns: Iterable[str]) -> pa.Schema:
    """Columns as Arrow has them from Spark."""
    import pyarrow as pa

    return pa.schema([pa.field(name, _arrow_type(schema[name].dataType)) for name in columns])


def _are_wide(paths: list[str], wanted: pa.Schema) -> bool:
    """Whether rows are so large that it pays, by the first file that has any.

    Raises:
        UnfitError: That file cannot be read without Spark.
    """
    for path in paths[:_FIRST_FILES]:
        metadata = _metadata(path, wanted)
        size = 0
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            chunks = map(group.column, range(group.num_columns))
            size += sum(
                chunk.total_uncompressed_size
                for chunk in chunks
                if chunk.path_in_schema.split('.')[0] in wanted.names
            )
        if metadata.num_rows:
            return bool(size >= _LEAST_ROW_BYTES * metadata.num_rows)
    return False


def _is_scan(dataframe: DataFrame, paths: list[str]) -> bool:
    """Whether Spark says that a data frame has the plan of a scan of these Parquet files."""
    session = dataframe.sparkSession
    roots = _roots(paths)
    if any(_same(dataframe, each, dataframe.schema) for each in roots):
        return True
    # Or of some of their columns.
    whole = session.read.parquet(_SCHEME + paths[0]).schema
    if whole.names == dataframe.columns or not set(dataframe.columns) <= set(whole.names):
        return False
    return any(_same(dataframe, each, whole, dataframe.columns) for each in roots)


def _same(
    dataframe: DataFrame,
    roots: list[str],
    schema: StructType,
    columns: Optional[list[str]] = None,
) -> bool:
    """Whether a data frame is the scan of these roots.

    INVARIANT: Spark compares columns by their places and not by their names. Those of the scan are the names in the
    files, and stand at the same places.
    """
    try:
        scan = dataframe.sparkSession.read.schema(schema).parquet(*roots)
        chosen = scan.select(*map(_quoted, columns)) if columns else scan
        return bool(dataframe.sameSemantics(chosen))
    except Exception as error:
        # A spelling that Spark does not take.
        logger.debug('%s: %s', roots, error)
        return False


def _roots(paths: list[str]) -> list[list[str]]:
    """What a scan of files may have been told to read. How a single path was spelled is part of the plan of a scan."""
    found = []
    folders = {os.path.dirname(path) for path in paths}
    if len(folders) == 1:
        (folder,) = folders
        for path in [*(paths if len(paths) == 1 else ()), folder]:
            near = os.path.relpath(path)
            spellings = [path, _SCHEME + path, f'{_SCHEME}//{path}']
            spellings += [f'{path}/'] if path == folder else []
            spellings += [] if near.startswith('..') else [near]
            found += [[spelling] for spelling in spellings]
    if 1 < len(paths) <= _MOST_NAMED:
        found.append(paths)
    return found


def _quoted(name: str) -> str:
    return '`' + name.replace('`', '``') + '`'


def _path_of(uri: str) -> Optional[str]:
    """The path of a file on this machine; ``None`` for others, and for names that a URI has in another spelling."""
    if not uri.startswith(_SCHEME) or '%' in uri:
        return None
    path = uri[len(_SCHEME) :]
    if path.startswith('//'):
        path = path[2:]
    return path if path.startswith('/') and not path.startswith('//') else None


def _arrow_type(data_type: DataType) -> Optional[pa.DataType]:
    """What Spark makes of a type; ``None`` where how a file is read depends on settings."""
    import pyarrow as pa

    if isinstance(data_type, ArrayType):
        value = _arrow_type(data_type.elementType)
        return None if value is None or pa.types.is_list(value) else pa.list_(value)
    if isinstance(data_type, DecimalType):
        return pa.decimal128(data_type.precision, data_type.scale)
    alias = _SIMPLE.get(type(data_type))
    return alias and pa.type_for_alias(alias)


# In the tasks.


class _Piece(NamedTuple):
    """Row groups of a file that a task has."""

    path: str
    metadata: pa.FileMetaData
    row_groups: list[int]


def batches_of(
    rows: Iterable[pa.RecordBatch], schema: StructType, columns: Iterable[str]
) -> tuple[int, Iterator[pa.RecordBatch]]:
    """The rows of a partition, how many there are and their batches, from what :func:`rows_of` says of it.

    Raises:
        UnfitError: This has to be done by Spark. Then there is no batch.
    """
    wanted = _wanted(schema, columns)
    runs = _runs(rows)
    pieces = [_piece(path, spans, wanted) for path, spans in runs]
    count = sum(end - start for _, spans in runs for start, end in spans)
    return count, _read(pieces, wanted)


def _runs(rows: Iterable[pa.RecordBatch]) -> list[tuple[str, list[tuple[int, int]]]]:
    """Files, each with the first row and the end of every run of rows, in order."""
    import numpy as np

    runs: list[tuple[str, list[tuple[int, int]]]] = []
    for batch in rows:
        if not batch.num_rows:
            continue
        names = batch.column(0).dictionary_encode()
        files = names.indices.to_numpy(zero_copy_only=False)
        numbers = batch.column(1).to_numpy(zero_copy_only=False)
        breaks = np.flatnonzero((np.diff(numbers) != 1) | (np.diff(files) != 0)) + 1
        starts = [0, *breaks.tolist()]
        for start, end in zip(starts, [*starts[1:], batch.num_rows]):
            uri = names.dictionary[int(files[start])].as_py()
            first, last = int(numbers[start]), int(numbers[end - 1])
            if not runs or runs[-1][0] != uri:
                runs.append((uri, []))
            spans = runs[-1][1]
            if spans and spans[-1][1] == first:
                spans[-1] = (spans[-1][0], last + 1)
            else:
                spans.append((first, last + 1))
    return runs


def _metadata(path: str, wanted: pa.Schema) -> pa.FileMetaData:
    """The footer of a file, which has to hold what is wanted."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            metadata, schema = file.metadata, file.schema_arrow
    except (OSError, pa.ArrowException) as error:
        raise UnfitError(f'{path}: {error}') from error
    for field in wanted:
        alike = [each for each in schema if each.name.lower() == field.name.lower()]
        if len(alike) != 1 or alike[0].name != field.name:
            raise UnfitError(f'{path} has not just one column {field.name}')
        if _plain(alike[0].type) != field.type:
            raise UnfitError(f'{path}: column {field.name} is {alike[0].type}, not {field.type}')
    return metadata


def _piece(uri: str, spans: list[tuple[int, int]], wanted: pa.Schema) -> _Piece:
    """Looks at a file: it has to hold what is wanted, and the rows have to be all of some of its row groups."""
    path = _path_of(uri)
    if path is None:
        raise UnfitError(f'{uri} is no file that can be opened here')
    metadata = _metadata(path, wanted)
    ends = [0]
    for number in range(metadata.num_row_groups):
        ends.append(ends[-1] + metadata.row_group(number).num_rows)
    row_groups = []
    for start, end in spans:
        covered = [
            number
            for number, (first, last) in enumerate(zip(ends, ends[1:]))
            if start <= first < last <= end
        ]
        if sum(ends[number + 1] - ends[number] for number in covered) != end - start:
            raise UnfitError(f'{path}: rows {start} to {end} are not whole row groups')
        row_groups += covered
    return _Piece(path, metadata, row_groups)


def _plain(data_type: pa.DataType) -> pa.DataType:
    """A type without what only says how its values lie in memory."""
    import pyarrow as pa

    types = pa.types
    if types.is_dictionary(data_type):
        return _plain(data_type.value_type)
    if types.is_large_string(data_type):
        return pa.string()
    if types.is_large_binary(data_type):
        return pa.binary()
    if (
        types.is_list(data_type)
        or types.is_large_list(data_type)
        or types.is_fixed_size_list(data_type)
    ):
        return pa.list_(_plain(data_type.value_type))
    return data_type


def _read(pieces: list[_Piece], wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of pieces, in order. Done in this thread: Spark has given the other cores to other tasks."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for piece in pieces:
        with pq.ParquetFile(piece.path, metadata=piece.metadata, memory_map=True) as file:
            for number in piece.row_groups:
                group = piece.metadata.row_group(number)
                rows = _BATCH_BYTES * group.num_rows // max(1, group.total_byte_size)
                batches = file.iter_batches(
                    batch_size=max(1, min(rows, _BATCH_ROWS)),
                    row_groups=[number],
                    columns=wanted.names,
                    use_threads=False,
                )
                left = group.num_rows
                for batch in batches:
                    left -= batch.num_rows
                    arrays = [
                        batch.column(field.name)
                        if batch.schema.field(field.name).type == field.type
                        else batch.column(field.name).cast(field.type)
                        for field in wanted
                    ]
                    yield pa.RecordBatch.from_arrays(arrays, schema=wanted)
                if left:
                    raise OSError(f'{piece.path}: row group {number} lacks {left} of its rows')
