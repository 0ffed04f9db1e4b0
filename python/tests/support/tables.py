"""Writes Parquet files and Delta tables for tests, and compares their samples."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shardmill import MDSWriter, StreamingDataset
from shardmill.base.util import merge_index


def rows(first: int, count: int) -> pa.Table:
    numbers = np.arange(first, first + count)
    return pa.table(
        {
            'id': numbers,
            'text': [f'row {number} ' + 'ä' * (number % 9) for number in numbers],
            'raw': [bytes([number % 256]) * (number % 5) for number in numbers],
            'label': [
                ('cat', 'dog', 'a long name of a rare animal')[number % 3] for number in numbers
            ],
            'vector': pa.array(
                [[number, -number, 0.5] for number in numbers], pa.list_(pa.float32(), 3)
            ),
            'tokens': pa.array(
                [list(range(number % 4 + 1)) for number in numbers], pa.list_(pa.int64())
            ),
            'flag': numbers % 2 == 0,
            'nested': [{'a': int(number), 'b': [None, 'x']} for number in numbers],
        }
    )


def write_table(folder: Path, files: list[list[int]], **options: Any) -> Path:
    """Writes a table: for each file, the rows of each of its row groups."""
    folder.mkdir(parents=True, exist_ok=True)
    first = 0
    for number, groups in enumerate(files):
        schema = rows(0, 1).schema
        with pq.ParquetWriter(folder / f'part-{number:03}.parquet', schema, **options) as writer:
            for count in groups:
                writer.write_table(
                    rows(first, max(count, 1)).slice(0, count), row_group_size=max(count, 1)
                )
                first += count
    return folder


def write_shards(folder: Path, files: list[list[int]]) -> Path:
    """Writes the ids of the same rows as MDS shards of the same sizes."""
    first = 0
    for number, count in enumerate(count for groups in files for count in groups if count):
        with MDSWriter(out=str(folder / f'{number:03}'), columns={'id': 'int64'}) as writer:
            for row in range(first, first + count):
                writer.write({'id': np.int64(row)})
        first += count
    merge_index(str(folder), keep_local=True)
    return folder


def ids(dataset: StreamingDataset[Any]) -> list[int]:
    return [int(sample['id']) for sample in dataset]


FILES = [[7, 5], [11], [3, 0, 9, 1]]


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, np.ndarray):
        return bool(np.array_equal(found, expected, equal_nan=expected.dtype.kind == 'f'))
    return bool(found == expected) or bool(found != found and expected != expected)


def with_nulls(sample: dict[str, Any]) -> dict[str, Any]:
    """Returns a sample of ``convert(nulls='mask')`` with ``None`` for its nulls."""
    return {
        name: None if sample.get(f'{name}__is_null') == 1 else value
        for name, value in sample.items()
        if not name.endswith('__is_null')
    }


def deletion_vector(rows: list[int]) -> str:
    """Encodes row numbers below 65,536 as an inline deletion vector of the Delta protocol."""
    roaring = struct.pack('<IIHHI', 12346, 1, 0, len(rows) - 1, 16)
    roaring += struct.pack(f'<{len(rows)}H', *sorted(rows))
    data = struct.pack('<iQI', 1681511377, 1, 0) + roaring
    data += bytes(-len(data) % 4)
    letters = (
        '0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#'
    )
    python = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~'
    return base64.b85encode(data).decode().translate(str.maketrans(python, letters))


def write_delta(folder: Path, groups: list[int], deleted: list[int]) -> Path:
    """Writes a table of one file, with a partition column and deleted rows."""
    folder.mkdir(parents=True)
    with pq.ParquetWriter(folder / 'a.parquet', rows(0, 1).schema.remove(7)) as writer:
        first = 0
        for count in groups:
            writer.write_table(rows(first, count).drop(['nested']))
            first += count
    return write_log(folder, deleted)


def write_log(folder: Path, deleted: list[int]) -> Path:
    """Writes the log of a table whose only file is ``a.parquet``."""
    (folder / '_delta_log').mkdir()
    simple = {'id': 'long', 'text': 'string', 'raw': 'binary', 'label': 'string', 'flag': 'boolean'}
    fields = [{'name': name, 'type': of, 'nullable': True} for name, of in simple.items()]
    fields.append({'name': 'day', 'type': 'date', 'nullable': True})
    for field in fields:
        field['metadata'] = {}
    vector = {
        'storageType': 'i',
        'pathOrInlineDv': deletion_vector(deleted),
        'sizeInBytes': 36 + 2 * len(deleted),
        'cardinality': len(deleted),
    }
    actions: list[dict[str, Any]] = [
        {
            'protocol': {
                'minReaderVersion': 3,
                'minWriterVersion': 7,
                'readerFeatures': ['deletionVectors'],
                'writerFeatures': ['deletionVectors'],
            }
        },
        {
            'metaData': {
                'id': '5fba94ed-9794-4965-ba6e-6ee3c0d22af9',
                'format': {'provider': 'parquet', 'options': {}},
                'schemaString': json.dumps({'type': 'struct', 'fields': fields}),
                'partitionColumns': ['day'],
                'configuration': {'delta.enableDeletionVectors': 'true'},
                'createdTime': 1,
            }
        },
        {
            'add': {
                'path': 'a.parquet',
                'partitionValues': {'day': '2026-01-31'},
                'size': (folder / 'a.parquet').stat().st_size,
                'modificationTime': 1,
                'dataChange': True,
                'deletionVector': vector,
            }
        },
    ]
    log = folder / '_delta_log' / f'{0:020}.json'
    log.write_text(''.join(json.dumps(action) + '\n' for action in actions))
    return folder
