"""Reads the Parquet files of a data frame directly in tasks, if the data frame is only a scan of them.

Spark passes rows to Python value by value, which takes most of the time of a conversion. For a plain scan, Spark only
needs to report which rows of which files a task has. Spark still splits the files and schedules the tasks, and reports
every row, so partitions and their order are unchanged.

Whether a data frame is a scan is never guessed. This module creates a scan of the same files and asks Spark whether
both have the same plan (``DataFrame.sameSemantics``). It supports only types that are read the same under all settings,
and only files with exactly these column types and names. Spark reads everything else.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, NamedTuple, Optional

from pyspark.sql import types as sql

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

#: The session setting that enables reading files directly.
SETTING = 'spark.shardmill.readFiles'

#: The scheme of files that Python can open at the same path as Spark.
_SCHEME = 'file:'
#: Maximum files that are listed individually when creating a scan.
_MAX_NAMED = 1000
#: Maximum files in a folder that is listed repeatedly to find the spelling of its path.
_MAX_LISTED = 20_000
#: Minimum bytes per row in a file. PERF: the report about each row costs as much as passing about 150 bytes.
_LEAST_ROW_BYTES = 512
#: How many files are inspected to find one with rows.
_FIRST_FILES = 10
#: Approximate bytes per batch, and maximum rows. PERF: larger ones take twice as long, because of fresh memory.
_BATCH_BYTES = 4 << 20
_BATCH_ROWS = 8192

_SIMPLE: dict[type[sql.DataType], str] = {
    sql.BinaryType: 'binary',
    sql.BooleanType: 'bool',
    sql.ByteType: 'int8',
    sql.DoubleType: 'float64',
    sql.FloatType: 'float32',
    sql.IntegerType: 'int32',
    sql.LongType: 'int64',
    sql.ShortType: 'int16',
    sql.StringType: 'string',
}


class UnfitError(Exception):
    """A file does not match its data frame without a conversion that only Spark can make."""


# In the driver.


def rows_of(dataframe: DataFrame, columns: Iterable[str]) -> Optional[DataFrame]:
    """Returns the file and row number of every row of a data frame, in the same partitions and order.

    Returns:
        ``None`` if the data frame is not provably a scan of Parquet files, or if a column can be read only by Spark.
    """
    try:
        if str(dataframe.sparkSession.conf.get(SETTING, 'true')).lower() != 'true':
            return None
        columns = list(columns)
        level = dataframe.storageLevel
        # A cached data frame keeps its rows even if the files change.
        if level.useMemory or level.useDisk or not _are_plain(dataframe.schema, columns):
            return None
        # `select` creates a new plan, which names no files if one of its inputs was cached meanwhile.
        files = [_path_of(uri) for uri in dataframe.select('*').inputFiles()]
        paths = sorted(path for path in files if path is not None)
        if not paths or len(paths) != len(files) or len(paths) > _MAX_LISTED:
            return None
        if not _are_wide(paths, _wanted(dataframe.schema, columns)):
            return None
        if not _is_scan(dataframe, paths):
            return None
        rows = dataframe.select('_metadata.file_path', '_metadata.row_index')
        types = [field.dataType for field in rows.schema]
        return rows if types == [sql.StringType(), sql.LongType()] else None
    except Exception as error:
        # Spark can do the work itself, whatever the error is.
        logger.debug('the files of the data frame are left to Spark: %s', error)
        return None


def _are_plain(schema: sql.StructType, columns: Iterable[str]) -> bool:
    """Returns whether the types and names of columns allow reading without Spark."""
    names = [name.lower() for name in schema.names]
    # Dots separate the names of nested columns.
    if len(set(names)) != len(names) or '_metadata' in names or any('.' in name for name in names):
        return False
    # Metadata can select columns by field id or pad values to a fixed width.
    if any(field.metadata for field in schema.fields):
        return False
    return all(_arrow_type(schema[name].dataType) is not None for name in columns)


def _wanted(schema: sql.StructType, columns: Iterable[str]) -> pa.Schema:
    """Returns the Arrow schema that Spark uses for columns."""
    import pyarrow as pa

    return pa.schema([pa.field(name, _arrow_type(schema[name].dataType)) for name in columns])


def _are_wide(paths: list[str], wanted: pa.Schema) -> bool:
    """Returns whether rows are large enough for reading files directly, judged by the first file with rows.

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
    """Returns whether Spark considers a data frame equal to a scan of these Parquet files."""
    session = dataframe.sparkSession
    roots = _roots(paths)
    if any(_same(dataframe, each, dataframe.schema) for each in roots):
        return True
    # The data frame may select only some columns.
    whole = session.read.parquet(_SCHEME + paths[0]).schema
    if whole.names == dataframe.columns or not set(dataframe.columns) <= set(whole.names):
        return False
    return any(_same(dataframe, each, whole, dataframe.columns) for each in roots)


def _same(
    dataframe: DataFrame,
    roots: list[str],
    schema: sql.StructType,
    columns: Optional[list[str]] = None,
) -> bool:
    """Returns whether a data frame is the scan of these roots.

    INVARIANT: Spark compares columns by position, not by name. The scan uses the names in the files, at the same
    positions.
    """
    try:
        scan = dataframe.sparkSession.read.schema(schema).parquet(*roots)
        chosen = scan.select(*map(quoted, columns)) if columns else scan
        return bool(dataframe.sameSemantics(chosen))
    except Exception as error:
        # Spark does not accept this spelling.
        logger.debug('%s: %s', roots, error)
        return False


def _roots(paths: list[str]) -> list[list[str]]:
    """Returns possible arguments of the scan. The spelling of a single path is part of the plan of a scan."""
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
    if 1 < len(paths) <= _MAX_NAMED:
        found.append(paths)
    return found


def quoted(name: str) -> str:
    """Quotes the name of a column."""
    return '`' + name.replace('`', '``') + '`'


def _path_of(uri: str) -> Optional[str]:
    """Returns the path of a local file; ``None`` for other files, and for names that a URI must escape."""
    if not uri.startswith(_SCHEME) or '%' in uri:
        return None
    path = uri[len(_SCHEME) :]
    if path.startswith('//'):
        path = path[2:]
    return path if path.startswith('/') and not path.startswith('//') else None


def _arrow_type(data_type: sql.DataType) -> Optional[pa.DataType]:
    """Returns the Arrow type that Spark uses; ``None`` if reading the type depends on settings."""
    import pyarrow as pa

    if isinstance(data_type, sql.ArrayType):
        value = _arrow_type(data_type.elementType)
        return None if value is None or pa.types.is_list(value) else pa.list_(value)
    if isinstance(data_type, sql.DecimalType):
        return pa.decimal128(data_type.precision, data_type.scale)
    alias = _SIMPLE.get(type(data_type))
    return alias and pa.type_for_alias(alias)


# In the tasks.


class _Piece(NamedTuple):
    """The row groups of a file that a task reads."""

    path: str
    metadata: pa.FileMetaData
    row_groups: list[int]


def batches_of(
    rows: Iterable[pa.RecordBatch], schema: sql.StructType, columns: Iterable[str]
) -> tuple[int, Iterator[pa.RecordBatch]]:
    """Returns the number of rows in a partition and their batches, from the result of :func:`rows_of`.

    Raises:
        UnfitError: Spark must read the partition. No batch was returned before.
    """
    wanted = _wanted(schema, columns)
    runs = _runs(rows)
    pieces = [_piece(path, spans, wanted) for path, spans in runs]
    count = sum(end - start for _, spans in runs for start, end in spans)
    return count, _read(pieces, wanted)


def _runs(rows: Iterable[pa.RecordBatch]) -> list[tuple[str, list[tuple[int, int]]]]:
    """Returns the files in order, each with its runs of rows as start and exclusive end."""
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
    """Returns the footer of a file, which must contain the wanted columns."""
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
    """Checks that a file contains the wanted columns, and that the rows are whole row groups."""
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
    """Removes differences of a type that only affect its layout in memory."""
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
    """Yields the rows of pieces in order. Uses only this thread, because Spark uses the other cores for other tasks."""
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
