"""Reads datasets as Arrow tables, shard by shard, for Spark and Ray.

Each shard is downloaded to a temporary folder of the task, checked, and read there.
"""

from __future__ import annotations

import json
import os
import tempfile
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Optional

from shardmill import _core, parts
from shardmill.base._columns import Column, depth_of, record_batch, stored_value
from shardmill.errors import (
    ConflictError,
    MissingIndexError,
    UnsupportedError,
    UsageError,
)
from shardmill.schema import LISTS, ColumnSchema, field_encoding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

_INDEX = 'index.json'
#: The column with the key of a WebDataset sample.
_KEY = '__key__'


class Shard(NamedTuple):
    """A shard of a table.

    Attributes:
        samples: The number of samples, without deleted ones.
        first: The number of the first one in the table.
        live: The ranges of samples that are not deleted, by their positions in the shard.
        raw_bytes: The size in bytes before compression.
        entry: The shard's entry in the index.
        files: The names of its files.
    """

    samples: int
    first: int
    live: list[tuple[int, int]]
    raw_bytes: int
    entry: dict[str, Any]
    files: list[str]


@dataclass(frozen=True)
class Table:
    """A dataset as described by its index. Tasks are pickled with it, without its shards.

    Attributes:
        dest: The folder or URL of the dataset.
        columns: The encoding of each column, by name.
        is_tar: Whether the format is WebDataset.
        nullable: Columns that may be missing in samples.
        storage_options: Store settings that are not in the environment.
    """

    dest: str
    columns: dict[str, str]
    is_tar: bool
    nullable: frozenset[str] = frozenset()
    storage_options: Optional[dict[str, str]] = field(default=None, repr=False)


def open_table(
    dest: str, storage_options: Optional[Mapping[str, str]] = None
) -> tuple[Table, list[Shard]]:
    """Reads the index of a dataset."""
    settings = dict(storage_options) if storage_options else None
    if _is_local(dest):
        dest = os.path.abspath(dest)
    place = _location_of(dest, _INDEX)
    with tempfile.TemporaryDirectory(prefix='shardmill-') as folder:
        path = os.path.join(folder, _INDEX)
        try:
            _core.download(place, path, settings)
        except FileNotFoundError as error:
            raise MissingIndexError(f'there is no {place}', 'index-missing', place) from error
        # The reader validates the index. File names matter most, because files are written under them.
        stream = _core.StreamOptions(remote=dest, local=folder, settings=settings or {})
        deleted = _core.Reader([stream], _core.ReaderOptions()).deleted_samples(0)
        with open(path, encoding='utf-8') as file:
            index = json.load(file)
    is_tar = index.get('format') == 'webdataset'
    shards = _shards(index['shards'], deleted, is_tar)
    columns: dict[str, str] = {}
    nullable: set[str] = set()
    for number, shard in enumerate(shards):
        if is_tar:
            always, sometimes = shard.entry['fields'], shard.entry['optional_fields']
            names = {_KEY: 'str', **{name: field_encoding(name) for name in [*always, *sometimes]}}
            nullable.update(sometimes)
            nullable.update(set(columns).symmetric_difference(names) if number else ())
        else:
            if shard.entry['format'] != 'mds':
                text = f'{dest}: a shard of {shard.entry["format"]} cannot be read as a table'
                raise UnsupportedError(text, 'format-unsupported', dest)
            names = dict(zip(shard.entry['column_names'], shard.entry['column_encodings']))
            if number and names != columns:
                text = f'{dest}: its shards do not have the same columns'
                raise UnsupportedError(text, 'index-columns', dest)
        columns.update(names)
    return Table(dest, columns, is_tar, frozenset(nullable), settings), shards


def _shards(
    entries: list[dict[str, Any]], deleted: list[tuple[int, int]], is_tar: bool
) -> list[Shard]:
    """Returns the shards of an index. Deleted samples are ranges of stored numbers, in order."""
    starts, ends = zip(*deleted) if deleted else ((), ())
    shards: list[Shard] = []
    first = begin = 0
    for entry in entries:
        end = begin + entry['samples']
        gaps = deleted[bisect_right(ends, begin) : bisect_left(starts, end)]
        edges = [begin, *(min(max(edge, begin), end) for gap in gaps for edge in gap), end]
        live = [(a - begin, b - begin) for a, b in zip(edges[::2], edges[1::2]) if a < b]
        samples = sum(b - a for a, b in live)
        stored = [entry.get('zip_data') or entry['raw_data']]
        beside = entry.get('offsets') if is_tar else entry.get('zip_meta') or entry.get('raw_meta')
        if beside:
            stored.append(beside)
        files = [file['basename'] for file in stored]
        shards.append(Shard(samples, first, live, entry['raw_data']['bytes'], entry, files))
        begin, first = end, first + samples
    return shards


def _is_local(dest: str) -> bool:
    return '://' not in dest and not dest.startswith('dbfs:')


def _location_of(dest: str, name: str) -> str:
    return os.path.join(dest, name) if _is_local(dest) else f'{dest.rstrip("/")}/{name}'


def schema_of(table: Table, columns: Optional[Sequence[str]] = None) -> pa.Schema:
    """Returns the Arrow schema of a table."""
    import pyarrow as pa

    names = list(table.columns) if columns is None else list(columns)
    # A dataset without shards has no columns.
    unknown = next((name for name in names if name not in table.columns), None)
    if unknown is not None:
        raise _no_column(table, unknown)
    fields = [
        pa.field(name, _type_of(name, table.columns[name]), name in table.nullable)
        for name in names
    ]
    return pa.schema(fields)


def _no_column(table: Table, name: str) -> UsageError:
    text = f'there is no column `{name}`, only {", ".join(table.columns)}'
    return UsageError(text, 'config-columns', name)


def matching(table: Table, names: Sequence[str]) -> list[str]:
    """Finds columns by name, ignoring case unless a name matches exactly."""
    found = []
    for name in names:
        alike = [each for each in table.columns if each.lower() == name.lower()]
        if name in table.columns:
            alike = [name]
        if not alike:
            raise _no_column(table, name)
        if len(alike) > 1:
            text = f'column `{name}` may be {" or ".join(alike)}'
            raise UsageError(text, 'config-columns', name)
        found.append(alike[0])
    return found


def check_part(staging: parts.Staging, options: Mapping[str, Any], rows: pa.Table) -> None:
    """Checks that a job can write such rows, and append them to an existing dataset. Writes nothing there."""
    columns = dict(parts.PartWriter(staging, 0, **options)._core.check(rows))
    said = json.loads(staging.text)
    if said['mode'] != 'append' or said['base'] is None or said['names'] != 'mds':
        return
    table, shards = open_table(staging.out, staging.storage_options)
    if shards and (table.is_tar or columns != table.columns):
        text = f'the dataset has {_listed(table.columns)}, the job writes {_listed(columns)}'
        hint = 'append shards of the same format and columns, or overwrite'
        raise ConflictError(text, 'dest-format', staging.out, hint)


def _listed(columns: Mapping[str, str]) -> str:
    return ', '.join(f'{name} ({encoding})' for name, encoding in columns.items())


def _type_of(name: str, encoding: str) -> Any:
    """Returns the Arrow type of a column: arrays are lists of variable lengths."""
    import pyarrow as pa

    if encoding == 'ndarray' or encoding in LISTS:
        text = f'column {name}: values of {encoding} have no type in a table'
        raise UnsupportedError(text, 'type-unsupported', name, 'choose other columns')
    depth, data_type = depth_of(ColumnSchema(name, encoding).arrow_type())
    for _ in range(depth):
        data_type = pa.list_(data_type)
    return data_type


def read_shard(
    table: Table,
    shard: Shard,
    columns: Optional[Sequence[str]] = None,
    *,
    batch_size: int = 1024,
    tensors: Optional[Callable[[list[Any]], Any]] = None,
) -> Iterator[pa.RecordBatch]:
    """Yields the samples of a shard as batches, in order. `tensors` makes the columns of arrays."""
    schema = schema_of(table, columns)
    if shard.samples == 0:
        return
    with tempfile.TemporaryDirectory(prefix='shardmill-') as folder:
        for name in shard.files:
            path = os.path.join(folder, *name.split('/'))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            _core.download(_location_of(table.dest, name), path, table.storage_options)
        index: dict[str, Any] = {'shards': [shard.entry], 'version': 1 if table.is_tar else 2}
        if table.is_tar:
            index['format'] = 'webdataset'
        with open(os.path.join(folder, _INDEX), 'w', encoding='utf-8') as file:
            json.dump(index, file, sort_keys=True)
        stored = shard.entry.get('zip_data') or shard.entry['raw_data']
        hashes = sorted(stored.get('hashes') or ())
        stream = _core.StreamOptions(local=folder, validate_hash=hashes[0] if hashes else None)
        ranges = _core.Reader([stream], _core.ReaderOptions()).ranges(stored_value)
        made = [Column(ColumnSchema(it.name, table.columns[it.name]), it, None) for it in schema]
        first = shard.first
        for begin, end in shard.live:
            for start in range(begin, end, batch_size):
                stop = min(start + batch_size, end)
                samples, batch = ranges.read(start, stop, set(schema.names))
                yield record_batch(made, batch, samples, first, schema, tensors)
                first += samples
