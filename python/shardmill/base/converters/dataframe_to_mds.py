"""Converts a Spark data frame to an MDS dataset: each task writes a partition, then the driver writes one index.

A task writes its partition into a folder for its attempt. When all tasks have succeeded, the driver renames the folders
of the successful attempts, and writes the index of the whole dataset last. Readers need that index, so they never see
failed or superfluous attempts.

If a data frame is only a scan of Parquet files, Spark just reports which rows a task has, and the task reads them.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
import uuid
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Optional

from pyspark import TaskContext
from pyspark.sql import types as sql

from shardmill.base import _arguments as check
from shardmill.base.converters import _scan
from shardmill.base.format import MDSWriter
from shardmill.base.format.index import get_index_basename
from shardmill.base.format.mds.encodings import is_mds_encoding
from shardmill.base.storage.upload import CloudUploader
from shardmill.base.util import merge_index as merge_indexes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = [
    'SPARK_TO_MDS',
    'dataframe_to_mds',
    'infer_dataframe_schema',
    'is_json_compatible',
]

logger = logging.getLogger(__name__)

#: The encoding of each type; ``None`` for unsupported types.
SPARK_TO_MDS: dict[sql.DataType, Optional[str]] = {
    sql.ByteType(): 'uint8',
    sql.ShortType(): 'uint16',
    sql.IntegerType(): 'int32',
    sql.LongType(): 'int64',
    sql.FloatType(): 'float32',
    sql.DoubleType(): 'float64',
    sql.DecimalType(): 'str_decimal',
    sql.StringType(): 'str',
    sql.BinaryType(): 'bytes',
    sql.BooleanType(): 'uint8',
    sql.TimestampType(): 'str',
    sql.TimestampNTZType(): 'str',
    sql.DateType(): 'str',
    sql.DayTimeIntervalType(): None,
    sql.ArrayType(sql.IntegerType()): 'ndarray:int32',
    sql.ArrayType(sql.ShortType()): 'ndarray:int16',
    sql.ArrayType(sql.LongType()): 'ndarray:int64',
    sql.ArrayType(sql.FloatType()): 'ndarray:float32',
    sql.ArrayType(sql.DoubleType()): 'ndarray:float64',
}

#: The prefix of attempt folders.
_ATTEMPT = '.attempt-'
#: The columns of a task's result.
_RESULT = 'partition int, folder string, rows long, seconds double, writing double, unfit string'
_EMPTY = 'Input dataframe is None or Empty!'
#: Encodings that store binary columns unchanged.
_OF_BYTES = frozenset(('bytes', 'jpeg', 'pil', 'pkl', 'png'))


def is_json_compatible(data_type: Any) -> bool:
    """Returns whether values of a Spark type can be stored as JSON without loss."""
    if isinstance(data_type, sql.StructType):
        return all(is_json_compatible(field.dataType) for field in data_type.fields)
    if isinstance(data_type, sql.ArrayType):
        return is_json_compatible(data_type.elementType)
    if isinstance(data_type, sql.MapType):
        # Keys of JSON objects are text.
        return isinstance(data_type.keyType, sql.StringType) and is_json_compatible(
            data_type.valueType
        )
    plain = (
        sql.StringType,
        sql.IntegerType,
        sql.LongType,
        sql.FloatType,
        sql.DoubleType,
        sql.BooleanType,
        sql.NullType,
    )
    return isinstance(data_type, plain)


def _encoding_of(data_type: sql.DataType) -> Optional[str]:
    """Returns the encoding of a type, if it has one."""
    if isinstance(data_type, sql.DecimalType):
        return 'str_decimal'
    if isinstance(data_type, sql.ArrayType):
        # Nulls in arrays are detected when they are written.
        data_type = sql.ArrayType(data_type.elementType)
    known = SPARK_TO_MDS.get(data_type)
    if known is None and isinstance(data_type, (sql.ArrayType, sql.MapType, sql.StructType)):
        return 'json' if is_json_compatible(data_type) else None
    return known


def infer_dataframe_schema(
    dataframe: DataFrame, user_defined_cols: Optional[dict[str, Any]] = None
) -> Optional[dict[str, str]]:
    """Infers the encodings of the columns of a data frame, or checks the encodings given by the user.

    Args:
        dataframe: The data frame.
        user_defined_cols: Encodings by column name.

    Returns:
        Encodings by column name; ``None`` with ``user_defined_cols``.

    Raises:
        ValueError: Columns do not exist, have no encoding, or do not fit the given one. The error lists all of them.
    """
    types = {field.name: field.dataType for field in dataframe.schema.fields}
    if user_defined_cols is None:
        encodings = {name: _encoding_of(data_type) for name, data_type in types.items()}
        _refuse(
            f'column `{name}`: {types[name].simpleString()} is not supported by dataframe_to_mds'
            for name, encoding in encodings.items()
            if encoding is None
        )
        return {name: encoding for name, encoding in encodings.items() if encoding is not None}
    problems = (_unfit(name, encoding, types) for name, encoding in user_defined_cols.items())
    _refuse(problem for problem in problems if problem)
    return None


def _is_native(dataframe: DataFrame, columns: dict[str, str]) -> bool:
    """Returns whether columns can be stored from Arrow, without creating Python values."""
    for name, encoding in columns.items():
        data_type = dataframe.schema[name].dataType
        if encoding == 'json':
            # A text column stored as JSON becomes a JSON string, without being parsed.
            if not isinstance(data_type, (sql.ArrayType, sql.MapType, sql.StructType)):
                return False
        elif encoding in _OF_BYTES - {'bytes'}:
            return False
    return True


def _refuse(problems: Iterable[str]) -> None:
    """Raises one error for all problems."""
    found = list(problems)
    if found:
        raise ValueError('; '.join(found))


def _unfit(name: str, encoding: str, types: dict[str, sql.DataType]) -> Optional[str]:
    """Returns why a column cannot have an encoding, or ``None`` if it can."""
    if name not in types:
        return f'{name} is not a column of input dataframe: {list(types)}'
    if not is_mds_encoding(encoding):
        return f'{encoding} is not supported by dataframe_to_mds: column `{name}`'
    data_type = types[name]
    if encoding in _OF_BYTES:
        if isinstance(data_type, sql.BinaryType):
            return None
        if encoding != 'bytes':
            return f'Non-binary col {name} cannot encode as {encoding}.'
    if encoding == 'json':
        return None if is_json_compatible(data_type) else f'{name} can not be encoded by MDS JSON.'
    fits = _encoding_of(data_type)
    # The user may add the shape of an array, which Spark types do not have.
    wanted = ':'.join(encoding.split(':')[:2]) if encoding.startswith('ndarray:') else encoding
    if fits is None:
        return f'column `{name}`: {data_type.simpleString()} is not supported by dataframe_to_mds'
    if fits != wanted:
        return f'Mismatched types: column name `{name}` is `{fits}` in DataFrame but `{encoding}` in user_defined_cols'
    return None


class _TaskResult(NamedTuple):
    """The result of a task, for the driver."""

    partition: int
    #: The folder of this attempt; empty if there was nothing to write.
    folder: str
    #: The number of input rows.
    rows: int
    #: The duration of the task since it could begin, and how much of it was spent in the writer.
    seconds: float
    writing: float
    #: Why the data must be read in another way, if so.
    unfit: Optional[str]


class _Output:
    """The output of a task. The writer is created with the first rows; without rows nothing is written."""

    def __init__(self, task: _Task) -> None:
        context = TaskContext.get()
        if context is None:
            raise RuntimeError('this runs in a task of Spark only')
        self.task = task
        self.partition: int = context.partitionId()
        self.attempt: int = context.taskAttemptId()
        self.folder = ''
        self.rows = 0
        self.unfit: Optional[str] = None
        self.begun = time.perf_counter()
        self.writing = 0.0
        self._writer: Optional[MDSWriter] = None

    @property
    def writer(self) -> MDSWriter:
        """The writer, created on first use."""
        if self._writer is None:
            self._writer, self.folder = self.task.open(self.partition, self.attempt)
        return self._writer

    def add(self, batch: pa.RecordBatch) -> None:
        """Writes an Arrow batch."""
        self.rows += batch.num_rows
        if batch.num_rows:
            start = time.perf_counter()
            self.writer.write_batch(batch)
            self.writing += time.perf_counter() - start

    def write(self, sample: dict[str, Any]) -> None:
        """Writes a sample."""
        start = time.perf_counter()
        self.writer.write(sample)
        self.writing += time.perf_counter() - start

    def __enter__(self) -> _Output:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        start = time.perf_counter()
        if self._writer is not None:
            self._writer.__exit__(kind, error, trace)
        self.writing += time.perf_counter() - start

    def result(self) -> dict[str, list[Any]]:
        """Returns the result as a table with one row."""
        seconds = time.perf_counter() - self.begun
        result = _TaskResult(
            self.partition, self.folder, self.rows, seconds, self.writing, self.unfit
        )
        return {name: [value] for name, value in result._asdict().items()}


class _Task(NamedTuple):
    """The settings of all tasks."""

    local: str
    remote: str
    #: The id of this run, which is part of the attempt folders.
    run: str
    #: The arguments of the writer, without ``out``.
    arguments: dict[str, Any]
    #: Whether all columns are stored directly from Arrow.
    native: bool
    #: The schema of the data frame as JSON.
    schema: str
    udf: Optional[Callable[..., Iterable[dict[str, Any]]]]
    udf_arguments: dict[str, Any]

    def open(self, partition: int, attempt: int) -> tuple[MDSWriter, str]:
        """Creates the writer of a partition; also returns its folder."""
        folder = f'{_ATTEMPT}{self.run}-{partition:05}-{attempt}'
        out: Any = os.path.join(self.local, folder)
        if self.remote:
            # Uploaded folders cannot be renamed.
            folder = f'{partition:05}-{attempt}'
            out = (os.path.join(self.local, folder), os.path.join(self.remote, folder))
        return MDSWriter(out=out, **self.arguments), folder

    def write_scan(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Reads the partition's rows from files and writes them."""
        output = _Output(self)
        schema = sql.StructType.fromJson(json.loads(self.schema))
        with output:
            try:
                count, batches = _scan.batches_of(rows, schema, self.arguments['columns'])
            except _scan.UnfitError as error:
                output.unfit = str(error)
            else:
                for batch in batches:
                    output.add(batch)
                if output.rows != count:
                    raise RuntimeError(f'{output.rows} rows were read of {count}')
        yield self.result(output)

    def write_arrow(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Writes the batches of a partition."""
        output = _Output(self)
        with output:
            for batch in batches:
                batch = batch.rename_columns(list(self.arguments['columns']))
                if self.native:
                    output.add(batch)
                    continue
                output.rows += batch.num_rows
                for sample in _with_texts(batch).to_pylist():
                    output.write(self.prepared(sample, batch.schema))
        yield self.result(output)

    def result(self, output: _Output) -> pa.RecordBatch:
        """Returns the result of a task as a batch."""
        import pyarrow as pa

        types = (pa.int32(), pa.string(), pa.int64(), pa.float64(), pa.float64(), pa.string())
        return pa.RecordBatch.from_pydict(
            output.result(), pa.schema(zip(_TaskResult._fields, types))
        )

    def prepared(self, sample: dict[str, Any], schema: pa.Schema) -> dict[str, Any]:
        """Converts a sample from Arrow for the writer: lists to arrays, maps to dicts."""
        import numpy as np

        for name, encoding in self.arguments['columns'].items():
            if encoding.startswith('ndarray:'):
                sample[name] = np.array(sample[name], encoding.split(':')[1])
            elif encoding == 'json':
                sample[name] = _plain(sample[name], schema.field(name).type)
        return sample

    def write_frames(self, frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """Writes the samples that the user's function returns for the frames of a partition."""
        import pandas as pd

        assert self.udf is not None
        output = _Output(self)
        with output:
            for frame in frames:
                output.rows += len(frame)
                for sample in self.udf(frame, **self.udf_arguments):
                    output.write(sample)
        yield pd.DataFrame(output.result())


def _plain(value: Any, data_type: pa.DataType) -> Any:
    """Converts the maps in an Arrow value, which are lists of pairs, to dicts."""
    import pyarrow as pa

    if value is None:
        return None
    if pa.types.is_map(data_type):
        return {key: _plain(each, data_type.item_type) for key, each in value}
    if pa.types.is_list(data_type):
        return [_plain(each, data_type.value_type) for each in value]
    if pa.types.is_struct(data_type):
        return {name: _plain(each, data_type.field(name).type) for name, each in value.items()}
    return value


def _with_texts(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Replaces dates and times by the texts that direct storage from Arrow would write."""
    import pyarrow as pa

    for place, field in enumerate(batch.schema):
        if pa.types.is_date(field.type) or pa.types.is_timestamp(field.type):
            texts = pa.array(_texts(batch.column(place)), pa.string())
            batch = batch.set_column(place, field.name, texts)
    return batch


def _texts(moments: pa.Array) -> list[Optional[str]]:
    """Formats dates and times as ISO 8601, with 0, 3 or 6 digits of a second, and zones rounded to the minute."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_date(moments.type):
        return [None if day is None else day.isoformat() for day in moments.to_pylist()]
    micros = pa.timestamp('us')
    here = moments if moments.type.tz is None else pc.local_timestamp(moments)
    # Python has no times in the year 0, which early times of the year 1 have in some zones.
    numbers = np.asarray(here.cast(micros).cast(pa.int64()).fill_null(0))
    texts = np.datetime_as_string(numbers.astype('datetime64[us]'), unit='us').tolist()
    texts = [_digits(text) for text in texts]
    if moments.type.tz is not None:
        there = moments.cast(pa.timestamp('us', moments.type.tz)).cast(pa.int64()).fill_null(0)
        offsets = (numbers - np.asarray(there)).tolist()
        texts = [text + _zone(offset) for text, offset in zip(texts, offsets)]
    return [text if known else None for text, known in zip(texts, moments.is_valid().to_pylist())]


def _digits(text: str) -> str:
    """Removes zero digits of a second from a time, three at a time."""
    for zeros in ('.000000', '000'):
        if text.endswith(zeros):
            return text[: -len(zeros)]
    return text


def _zone(micros: int) -> str:
    """Formats the offset of a zone from UTC, to the minute."""
    minutes = (abs(micros) + 30_000_000) // 60_000_000
    if not micros:
        return 'Z'
    return f'{"-" if micros < 0 else "+"}{minutes // 60:02}:{minutes % 60:02}'


def dataframe_to_mds(
    dataframe: DataFrame,
    merge_index: bool = True,
    mds_kwargs: Optional[dict[str, Any]] = None,
    udf_iterable: Optional[Callable[..., Iterable[dict[str, Any]]]] = None,
    udf_kwargs: Optional[dict[str, Any]] = None,
) -> tuple[str, str]:
    """Writes a data frame as MDS in Spark tasks.

    Every partition with rows becomes a folder with its own index. In a local dataset, the name of the folder is the
    number of the partition, and the same partitions produce the same bytes. In an upload, the name is the number of
    the partition and of the attempt.

    The query of the data frame runs once. If it is only a scan of Parquet files that the tasks can open, the tasks
    read the files directly; ``spark.conf.set('spark.shardmill.readFiles', 'false')`` disables this.

    Args:
        dataframe: The data frame.
        merge_index: Whether to write one index of all partitions at the end.
        mds_kwargs: The arguments of :class:`MDSWriter`, with ``out``. ``columns`` defaults to the types of the data
            frame, and ``compression`` to ``zstd``.
        udf_iterable: A function that returns samples for a pandas data frame. It requires ``columns``.
        udf_kwargs: Additional arguments of that function.

    Returns:
        The local folder, and the URL of the upload or ``''``.

    Raises:
        ValueError: There are no rows or no ``out``, or columns do not fit. The error lists all such columns.
        FileExistsError: The folder is not empty.
        Exception: A task failed permanently. Leftovers of its attempts have names that begin with ``.attempt``.
    """
    if dataframe is None:
        raise ValueError(_EMPTY)
    arguments = check.mapping('mds_kwargs', mds_kwargs or {})
    merge_index = check.flag('merge_index', merge_index)
    udf_iterable = check.function('udf_iterable', udf_iterable)
    udf_kwargs = check.mapping('udf_kwargs', udf_kwargs or {})
    if 'out' not in arguments:
        raise ValueError('`out` and `columns` need to be specified in `mds_kwargs`')
    arguments.setdefault('compression', 'zstd')
    if udf_iterable is not None:
        if 'columns' not in arguments:
            raise ValueError(
                'If udf_iterable is specified, user must provide correct `columns` in the mds_kwargs'
            )
    elif arguments.get('columns') is None:
        arguments['columns'] = infer_dataframe_schema(dataframe)
        logger.info('columns by the types of the data frame: %s', arguments['columns'])
    else:
        infer_dataframe_schema(dataframe, arguments['columns'])

    if not arguments['columns']:
        raise ValueError('`columns` names no column')

    out = check.place_to_write('out', arguments.pop('out'))
    # COMPAT: as in streaming, local files are kept unless `keep_local` is False.
    keep_local = check.flag('keep_local', arguments.get('keep_local', True))
    uploader = CloudUploader.get(out, keep_local=keep_local, exist_ok=True)
    _check_empty(uploader.local)
    local, remote = uploader.local, uploader.remote or ''
    if merge_index or not remote:
        # Merging reads the indexes of the partitions.
        arguments['keep_local'] = True
    task = _Task(
        local=local,
        remote=remote,
        run=uuid.uuid4().hex[:12],
        arguments=arguments,
        native=udf_iterable is None and _is_native(dataframe, arguments['columns']),
        schema=dataframe.schema.json(),
        udf=udf_iterable,
        udf_arguments=udf_kwargs,
    )
    try:
        results = _run(task, dataframe)
        if not any(each.rows for each in results):
            raise ValueError(_EMPTY)
        folders = [_settle(task, each.partition, each.folder) for each in results if each.folder]
    finally:
        if not remote:
            _sweep(local, task.run)
    if merge_index:
        indexes = [
            (_index_of(local, folder), _index_of(remote, folder) if remote else '')
            for folder in folders
        ]
        merge_indexes(indexes, out, keep_local=keep_local or not remote, download_timeout=60)
    if remote and not keep_local:
        shutil.rmtree(local, ignore_errors=True)
    return local, remote


def _run(task: _Task, dataframe: DataFrame) -> list[_TaskResult]:
    """Runs the Spark tasks that write a data frame; returns the results of successful attempts, by partition."""
    columns = list(task.arguments['columns'])
    results = []
    scan = _scan.rows_of(dataframe, columns) if task.native else None
    if scan is not None:
        results = _collected(scan.mapInArrow(task.write_scan, _RESULT))
        unfit = [each.unfit for each in results if each.unfit is not None]
        if unfit:
            logger.info('the files are left to Spark: %s', unfit[0])
            results = []
    if not results and task.udf is not None:
        results = _collected(dataframe.mapInPandas(task.write_frames, _RESULT))
    elif not results:
        # `mapInArrow` resolves columns by name and misinterprets dots and backticks, so rename them.
        names = (f'{_scan.quoted(name)} AS c{number}' for number, name in enumerate(columns))
        chosen = dataframe.selectExpr(*names)
        results = _collected(chosen.mapInArrow(task.write_arrow, _RESULT))
    seconds = sum(each.seconds for each in results)
    share = sum(each.writing for each in results) / seconds if seconds else 0.0
    rows = sum(each.rows for each in results)
    logger.info('%d rows, %.1f s in tasks, %.0f %% of it writing', rows, seconds, 100 * share)
    return results


def _collected(written: DataFrame) -> list[_TaskResult]:
    return sorted(_TaskResult(*row) for row in written.collect())


def _index_of(place: str, folder: str) -> str:
    return os.path.join(place, folder, get_index_basename())


def _settle(task: _Task, partition: int, folder: str) -> str:
    """Renames the folder of a successful attempt to the number of its partition."""
    if task.remote:
        return folder
    name = f'{partition:05}'
    os.rename(os.path.join(task.local, folder), os.path.join(task.local, name))
    return name


def _check_empty(local: str) -> None:
    """Raises an error if a folder contains anything except leftovers of attempts."""
    if any(not name.startswith(_ATTEMPT) for name in os.listdir(local)):
        raise FileExistsError(f'{local} is not empty: name another folder, or empty this one')


def _sweep(local: str, run: str) -> None:
    """Removes the folders of this run's unsuccessful attempts.

    An attempt that is still running may leave more files. No index names them, and later runs ignore them.
    """
    for name in os.listdir(local):
        if name.startswith(f'{_ATTEMPT}{run}-'):
            shutil.rmtree(os.path.join(local, name), ignore_errors=True)
