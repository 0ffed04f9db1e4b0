"""The functions `convert`, `inspect`, `verify` and `plan` of the package: commands of the ``shardmill`` program."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Union

from shardmill._runs import in_keywords, options_of, run
from shardmill._streams import is_stream, record_batches
from shardmill.base import _arguments as check
from shardmill.reports import (
    ConvertReport,
    DatasetCheck,
    DatasetGroupReport,
    DatasetReport,
    PlanReport,
    SourceReport,
    VerifyReport,
)

if TYPE_CHECKING:
    from shardmill.base._typing import ArrowStream, Path
    from shardmill.mixtures import Mixture
    from shardmill.reports import InspectReport


class Column(NamedTuple):
    """A column to write.

    Attributes:
        encoding: Its encoding; ``None`` for the default of its type.
        expression: The SQL expression that computes it; ``None`` for the column of the same name.
    """

    encoding: Optional[str] = None
    expression: Optional[str] = None


def convert(
    source: Union[Path, Sequence[Path], ArrowStream, Iterable[Any]],
    out: Path,
    *,
    columns: Union[Mapping[str, Union[str, Column, None]], Sequence[str], None] = None,
    to: str = 'mds',
    source_kind: str = 'auto',
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    select: Optional[str] = None,
    where: Optional[str] = None,
    sql: Optional[str] = None,
    delta_version: Optional[int] = None,
    delta_timestamp: Optional[str] = None,
    key: Optional[str] = None,
    schema: str = 'widen',
    group: str = 'stem',
    follow_links: bool = False,
    csv_delimiter: Optional[str] = None,
    csv_nulls: Sequence[str] = (),
    csv_header: bool = True,
    infer_rows: int = 100_000,
    variables: Sequence[str] = (),
    window: Optional[Mapping[str, int]] = None,
    stride: Optional[Mapping[str, int]] = None,
    raw_values: bool = False,
    nulls: str = 'error',
    null_as: Optional[Mapping[str, Any]] = None,
    lengths: Sequence[str] = (),
    tokenize: Optional[Path] = None,
    text: Optional[str] = None,
    tokens: Optional[str] = None,
    special_tokens: bool = False,
    prepend: Optional[str] = None,
    append: Optional[str] = None,
    keep_text: bool = False,
    video: Sequence[str] = (),
    shuffle: Optional[int] = None,
    split: Optional[Mapping[str, float]] = None,
    split_key: Optional[str] = None,
    compression: Optional[str] = None,
    hashes: Union[str, Sequence[str]] = 'sha256',
    size_limit: Union[int, str, None] = '64MiB',
    row_group_size: Union[int, str, None] = None,
    samples_per_shard: Optional[int] = None,
    keep_row_groups: bool = False,
    shard_pattern: Optional[str] = None,
    names: str = 'portable',
    index_for: Sequence[str] = (),
    jobs: Optional[int] = None,
    memory_limit: Union[int, str, None] = None,
    overwrite: bool = False,
    incremental: bool = False,
    with_deleted: bool = False,
    view: Optional[Path] = None,
    temp_dir: Optional[Path] = None,
    takeover_after: Optional[float] = None,
    single_writer: bool = False,
    storage_options: Optional[Mapping[str, str]] = None,
    progress: Optional[bool] = None,
) -> ConvertReport:
    """Converts tables or a tree of files to shards.

    The same source and options give the same bytes, whatever the number of jobs. Ctrl-C stops the conversion at a
    point from which the same call continues. A call for a finished conversion writes nothing.

    Args:
        source: A file, a directory or a prefix in a store, or several of them, which are read in this order. Or rows:
            anything with ``__arrow_c_stream__``, such as a table of pyarrow, polars or DuckDB, or an iterable of record
            batches or of dicts. Rows are kept in ``temp_dir`` until they are converted, and need pyarrow.
        out: The directory or the prefix in a store that receives the shards and ``index.json``.
        columns: The columns to write: their names, or their encodings by name. `Column` also takes an SQL expression.
            ``'*'`` stands for all columns that are not named, as in ``{'*': None, 'image': 'jpeg'}``; a column of that
            name is ``'"*"'``. By default all columns are written, in the default encodings of their types.
        to: The format: ``mds``, ``webdataset`` or ``parquet``.
        source_kind: The kind of the source, such as ``parquet`` or ``delta``; ``auto`` detects it.
        include: Patterns of the files to read, relative to the source. Defaults to all files.
        exclude: Patterns of files to leave out, relative to the source; they win over ``include``.
        select: SQL expressions to read, as between SELECT and FROM.
        where: Keeps the rows for which this SQL expression is true.
        sql: A whole SQL query; the table is called ``source``.
        delta_version: The version of a Delta table; defaults to the latest.
        delta_timestamp: Reads the latest version of a Delta table at this time, such as ``2026-01-31T12:00:00Z``.
        key: The column with the keys of the samples. Defaults to ``__key__``.
        schema: What to do if Parquet or Arrow files have different columns: ``widen``, ``union`` or ``strict``.
        group: Which files of a tree form a sample: ``stem``, ``key`` or ``file``.
        follow_links: Whether to follow symbolic links in a tree.
        csv_delimiter: The character between two values of CSV. Defaults to a comma, in ``.tsv`` files to a tab.
        csv_nulls: Unquoted texts of CSV that mean null. Defaults to an empty text.
        csv_header: Whether the first line of CSV has the names of the columns.
        infer_rows: The rows from which types are inferred, in CSV, JSON lines and TFRecord files above 64 MiB.
        variables: The arrays of a Zarr store whose windows become columns; ``source_kind`` is ``zarr``.
        window: The size of a window along dimensions of a Zarr store, such as ``{'time': 24, 'lat': 64}``.
        stride: How far windows move along dimensions. Defaults to their size.
        raw_values: Whether to keep the stored numbers of a Zarr store. By default they are decoded as by xarray.
        nulls: What to do with nulls: ``error``, ``mask``, ``drop``, or ``omit`` for WebDataset.
        null_as: The values to store for nulls, by column.
        lengths: The columns whose lengths are kept beside the index, for `shardmill.lengths`.
        tokenize: A ``tokenizer.json`` of Hugging Face, to replace a column of text with its tokens.
        text: The column to tokenize. Defaults to the only column of text.
        tokens: The name of the column of tokens. Defaults to ``tokens``.
        special_tokens: Whether to add the special tokens that the tokenizer adds for a model.
        prepend: A token of the vocabulary before each text.
        append: A token of the vocabulary after each text, such as ``<|endoftext|>``.
        keep_text: Whether to write the text as well.
        video: The columns whose MP4 files are indexed beside the index, for `shardmill.index_videos`.
        shuffle: Writes the rows in a random order that depends only on this number and the source.
        split: The shares of subdirectories, which add up to 1, such as ``{'train': 0.9, 'val': 0.1}``.
        split_key: Rows with the same value in this column go to the same split.
        compression: The compression, such as ``zstd:3``, or ``none``. Defaults to ``zstd:3``, for WebDataset to none.
        hashes: The names of the hashes to record; ``none`` or an empty list for none.
        size_limit: The maximum raw bytes per shard, as a number or as text such as ``64MiB``; ``None`` for no limit.
        row_group_size: The maximum raw bytes of a row group of ``parquet``. Defaults to ``64MiB``.
        samples_per_shard: The maximum number of samples per shard.
        keep_row_groups: Whether each row group of the source is a shard, so that the samples have the order of the
            table in place.
        shard_pattern: The names of tar files. Defaults to ``shard-%06d.tar``.
        names: The keys and fields that are allowed in tar files: ``portable`` or ``any``.
        index_for: Other readers of WebDataset whose indexes are also written: ``wids``, ``dali``,
            ``open_clip``.
        jobs: The number of threads. Defaults to one for each core.
        memory_limit: The memory for waiting samples and for queries, in bytes or as text such as ``2GiB``. Defaults
            to what the shards of all jobs need.
        overwrite: Whether to replace an existing dataset. It stays until the new one is published.
        incremental: Whether to bring the dataset up to date with its Delta table.
        with_deleted: Whether to also convert samples of a dataset that were deleted from its table.
        view: The file of a view, to convert only its samples.
        temp_dir: The directory for temporary files of uploads and downloads. Defaults to that of the system.
        takeover_after: Seconds without a heartbeat after which the lease of another writer is taken over. Defaults
            to 15.
        single_writer: Whether to write also where nothing keeps a second writer out, because no other process writes
            to ``out``.
        storage_options: Store settings that are not in the environment, such as ``{'AWS_REGION': 'eu-west-1'}``.
        progress: Whether to show a progress bar. Defaults to terminals and notebooks.

    Returns:
        What was written.

    Raises:
        UsageError: An argument is invalid.
        NotFoundError: The source does not exist.
        DataError: A row cannot be stored.
        ConflictError: The destination holds another dataset, or another conversion is running.
        KeyboardInterrupt: It was interrupted; the same call continues.
    """
    options = options_of(
        to=to,
        select=select,
        where=where,
        sql=sql,
        delta_version=delta_version,
        delta_timestamp=delta_timestamp,
        key_column=key,
        schema=schema,
        csv_delimiter=csv_delimiter,
        csv_no_header=not check.flag('csv_header', csv_header),
        infer_rows=infer_rows,
        window=_by_name(window),
        stride=_by_name(stride),
        raw_values=check.flag('raw_values', raw_values),
        nulls=nulls,
        tokenize=check.path_or_none('tokenize', tokenize),
        text=text,
        tokens=tokens,
        special_tokens=check.flag('special_tokens', special_tokens),
        prepend=prepend,
        append=append,
        keep_text=check.flag('keep_text', keep_text),
        shuffle=shuffle,
        split=_by_name(split),
        split_key=split_key,
        compression=compression,
        hashes=_listed(hashes) or 'none',
        size_limit='none' if size_limit is None else size_limit,
        row_group_size=row_group_size,
        samples_per_shard=samples_per_shard,
        keep_row_groups=check.flag('keep_row_groups', keep_row_groups),
        shard_pattern=shard_pattern,
        names=names,
        index_for=_listed(index_for) or None,
        jobs=jobs,
        memory_limit=memory_limit,
        overwrite=check.flag('overwrite', overwrite),
        incremental=check.flag('incremental', incremental),
        with_deleted=check.flag('with_deleted', with_deleted),
        view=check.path_or_none('view', view),
        temp_dir=check.path_or_none('temp_dir', temp_dir),
        takeover_after=takeover_after,
        single_writer=check.flag('single_writer', single_writer),
    )
    options.append(f'--from={source_kind}')
    options += _files(include, exclude, group, follow_links)
    options += [f'--column={_column(name, column)}' for name, column in _pairs(columns)]
    options += [f'--csv-null={text}' for text in check.texts('csv_nulls', csv_nulls)]
    options += [f'--variable={name}' for name in check.texts('variables', variables)]
    options += [f'--lengths={column}' for column in check.texts('lengths', lengths)]
    options += [f'--video={column}' for column in check.texts('video', video)]
    options += [f'--null-as={_quoted(name)}={value}' for name, value in (null_as or {}).items()]
    place = check.path('out', out)
    rows = record_batches(source) if is_stream(source) else None
    sources = ['-'] if rows is not None else _places('source', source)
    done = run(
        'convert',
        options,
        [*sources, place],
        storage_options=storage_options,
        progress=progress,
        rows=rows,
    )
    return ConvertReport.from_json(done.only())


def _by_name(numbers: Optional[Mapping[str, float]]) -> Optional[str]:
    """Returns numbers by name as text."""
    return ','.join(f'{name}={number}' for name, number in (numbers or {}).items()) or None


def _files(
    include: Sequence[str], exclude: Sequence[str], group: str, follow_links: bool
) -> list[str]:
    """Returns the options that select and group the files of a source."""
    return [
        *(f'--include={pattern}' for pattern in check.texts('include', include)),
        *(f'--exclude={pattern}' for pattern in check.texts('exclude', exclude)),
        *options_of(group=group, follow_links=check.flag('follow_links', follow_links)),
    ]


def inspect(
    location: Path,
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    group: str = 'stem',
    follow_links: bool = False,
    delta_version: Optional[int] = None,
    delta_timestamp: Optional[str] = None,
    with_deleted: bool = False,
    view: Optional[Path] = None,
    storage_options: Optional[Mapping[str, str]] = None,
) -> InspectReport:
    """Describes a dataset, a folder of datasets, or a source of a conversion.

    Only indexes, footers and, for tar files without an index, headers are read.

    Args:
        location: A dataset, a folder of datasets or a source, in a directory or in a store.
        include: Patterns of the files of a source to read, relative to it. Defaults to all files.
        exclude: Patterns of files to leave out, relative to the source; they win over ``include``.
        group: Which files of a tree form a sample: ``stem``, ``key`` or ``file``.
        follow_links: Whether to follow symbolic links in a tree.
        delta_version: The version of a Delta table; defaults to the latest.
        delta_timestamp: Inspects the latest version of a Delta table at this time, such as ``2026-01-31T12:00:00Z``.
        with_deleted: Whether to also count deleted samples.
        view: The file of a view, to count only its samples.
        storage_options: Store settings that are not in the environment.

    Returns:
        A `DatasetReport` for a dataset, a `DatasetGroupReport` for a folder of datasets, a `SourceReport` for a source.

    Raises:
        NotFoundError: Nothing exists there.
        DataError: The index is damaged.
    """
    options = options_of(
        delta_version=delta_version,
        delta_timestamp=delta_timestamp,
        with_deleted=check.flag('with_deleted', with_deleted),
        view=check.path_or_none('view', view),
    )
    options += _files(include, exclude, group, follow_links)
    place = check.path('location', location)
    done = run('inspect', options, [place], storage_options=storage_options)
    found = done.reports[0]
    if 'datasets' in found:
        datasets = {each['name']: DatasetReport.from_json(each) for each in found['datasets']}
        return DatasetGroupReport(place, found['samples'], datasets, tuple(done.errors))
    found = done.only()
    return (SourceReport if 'source' in found else DatasetReport).from_json(found)


def verify(
    location: Path,
    *,
    deep: bool = False,
    strict: bool = False,
    readers: Sequence[str] = (),
    view: Optional[Path] = None,
    jobs: Optional[int] = None,
    expect_index: Optional[str] = None,
    storage_options: Optional[Mapping[str, str]] = None,
    progress: Optional[bool] = None,
) -> VerifyReport:
    """Checks the structure, lengths and hashes of a dataset, or of all datasets in a folder.

    A damaged dataset is not an exception, but a report whose ``ok`` is false. `VerifyReport.raise_for_problems` raises
    an exception.

    Args:
        location: A dataset, a folder of datasets or a tar file, in a directory or in a store.
        deep: Whether to also decode every sample, and to compare them with the content hash of the conversion.
        strict: Whether a dataset with a warning is not ok.
        readers: Readers whose rules tar shards must also meet: ``webdataset``, ``hf``, ``dali``, ``energon``, ``wids``,
            ``open_clip``. What some reader changes or skips is a warning then.
        view: The file of a view, to check only its samples and their shards.
        jobs: The number of threads. Defaults to one for each core.
        expect_index: The hash that ``index.json`` must have: ``sha256:`` and 64 hexadecimal digits.
        storage_options: Store settings that are not in the environment.
        progress: Whether to show a progress bar. Defaults to terminals and notebooks.

    Raises:
        NotFoundError: There is no dataset.
        DataError: The index is damaged, or is not the expected one.
        KeyboardInterrupt: It was interrupted.
    """
    options = options_of(
        deep=check.flag('deep', deep),
        strict=check.flag('strict', strict),
        view=check.path_or_none('view', view),
        jobs=jobs,
        expect_index=expect_index,
        **{'for': _listed(readers) or None},
    )
    place = check.path('location', location)
    done = run('verify', options, [place], storage_options=storage_options, progress=progress)
    datasets = tuple(DatasetCheck.from_json(each) for each in done.reports)
    is_ok = not done.errors and all(each.ok for each in datasets)
    return VerifyReport(is_ok, datasets, tuple(done.errors))


def plan(
    location: Union[Path, Sequence[Path]],
    *,
    epochs: int = 3,
    cache_limit: Union[int, str, None] = None,
    peers: bool = False,
    bandwidth: Union[int, str] = '1GB/s',
    latency: Union[float, str] = 0.03,
    connections: int = 64,
    step_time: Union[float, str] = 0.1,
    num_nodes: int = 1,
    ranks_per_node: int = 1,
    num_workers: int = 1,
    batch_size: int = 32,
    replication: Optional[int] = None,
    epoch_size: Optional[int] = None,
    shuffle: bool = False,
    shuffle_algo: str = 'py1e',
    shuffle_seed: int = 9176,
    shuffle_block_size: Optional[int] = None,
    num_canonical_nodes: Optional[int] = None,
    batching_method: str = 'random',
    sampling_method: str = 'balanced',
    sampling_granularity: int = 1,
    mixture: Optional[Mixture] = None,
    partition_algo: str = 'relaxed',
    with_deleted: bool = False,
    view: Optional[Path] = None,
    storage_options: Optional[Mapping[str, str]] = None,
) -> PlanReport:
    """Predicts what a training run fetches, keeps in its caches and waits for. Only indexes are read.

    Arguments that are not listed are as in `StreamingDataset`.

    Args:
        location: A dataset, or several datasets that are mixed.
        epochs: The number of epochs.
        cache_limit: The maximum size of the cache of a node, in bytes or as text such as ``500GB``; ``None`` for no
            limit.
        peers: Whether the nodes share their caches, as with ``peers`` of `StreamingDataset`.
        bandwidth: The network bandwidth of a node, in bytes per second or as text such as ``1GB/s``.
        latency: The time from a request to its first byte, in seconds or as text such as ``30ms``.
        connections: The number of shards that a node fetches at a time.
        step_time: The duration of a training step without waiting for data, in seconds or as text such as ``100ms``.
        num_nodes: The number of nodes.
        ranks_per_node: The number of training processes per node.
        num_workers: The number of loader processes per rank.
        batch_size: Samples per rank and step.
        with_deleted: Whether to also count deleted samples.
        view: The file of a view, to count only its samples.
        storage_options: Store settings that are not in the environment.

    Raises:
        UsageError: An argument is invalid.
        NotFoundError: There is no dataset.
    """
    options = options_of(
        epochs=epochs,
        cache_limit=cache_limit,
        peers=check.flag('peers', peers),
        bandwidth=bandwidth,
        latency=latency,
        connections=connections,
        step_time=step_time,
        nodes=num_nodes,
        ranks_per_node=ranks_per_node,
        workers_per_rank=num_workers,
        batch_size=batch_size,
        replication=replication,
        epoch_size=epoch_size,
        shuffle=check.flag('shuffle', shuffle),
        shuffle_algo=shuffle_algo,
        shuffle_seed=shuffle_seed,
        shuffle_block_size=shuffle_block_size,
        num_canonical_nodes=num_canonical_nodes,
        batching_method=batching_method,
        sampling_method=sampling_method,
        sampling_granularity=sampling_granularity,
        partition_algo=partition_algo,
        with_deleted=check.flag('with_deleted', with_deleted),
        view=check.path_or_none('view', view),
    )
    places = _places('location', location)
    with tempfile.TemporaryDirectory() as folder:
        if mixture is not None:
            file = os.path.join(folder, 'mixture.json')
            mixture.save(file)
            options += options_of(mixture=file)
        found = run('plan', options, places, storage_options=storage_options).only()
    advice = tuple(in_keywords(line) for line in found['advice'])
    return PlanReport.from_json(found, advice=advice)


def _listed(names: Union[str, Sequence[str]]) -> str:
    return names if isinstance(names, str) else ','.join(names)


def _places(name: str, given: Any) -> list[str]:
    if isinstance(given, Sequence) and not isinstance(given, str):
        return [check.path(f'{name}[{at}]', each) for at, each in enumerate(given)]
    return [check.path(name, given)]


def _pairs(columns: Any) -> list[tuple[str, Any]]:
    if columns is None:
        return []
    if isinstance(columns, Mapping):
        return list(check.mapping('columns', columns).items())
    return [(name, None) for name in check.texts('columns', columns)]


def _column(name: str, column: Union[str, Column, None]) -> str:
    if not isinstance(column, Column):
        column = Column(None if column is None else check.text(f'columns[{name!r}]', column))
    encoding = '' if column.encoding is None else f':{column.encoding}'
    expression = '' if column.expression is None else f'={column.expression}'
    # The star is all other columns; in double quotes it is a column of that name.
    quoted = name if name in ('*', '"*"') else _quoted(name)
    return f'{quoted}{encoding}{expression}'


def _quoted(name: str) -> str:
    """Quotes the name of a column, which may contain characters that have a meaning."""
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
