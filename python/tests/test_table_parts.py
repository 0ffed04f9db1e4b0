"""Row groups that are divided: their parts are shards, and a part is read without the pages of the others."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.bucket import Bucket
from support.tables import ids, write_log

import shardmill
from shardmill import StreamingDataset

ROWS = 60_000
# The row group has 370 MB before compression, and is divided into three parts.
BLOB = 6_144


def text(row: int) -> str:
    return f'row {row} ' + 'x' * (row * 7919 % 400)


@pytest.fixture(scope='module')
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a large row group and a small one, and one without an index of its pages."""
    folder = tmp_path_factory.mktemp('parts')
    rest = bytes(BLOB - 8)
    numbers = np.arange(ROWS)
    data = pa.table(
        {
            'id': numbers,
            'text': [text(row) for row in range(ROWS)],
            'raw': [row.to_bytes(8, 'little') + rest for row in range(ROWS)],
            'label': [('cat', 'dog')[row % 2] for row in range(ROWS)],
            'tokens': pa.array(
                [list(range(row % 5 + 1)) for row in range(ROWS)], pa.list_(pa.int64())
            ),
            'flag': numbers % 2 == 0,
        }
    )
    for name, has_index in (('a', True), ('b', False)):
        with pq.ParquetWriter(
            folder / f'{name}.parquet',
            data.schema,
            compression='zstd',
            use_dictionary=['label'],
            data_page_size=200_000,
            write_page_index=has_index,
        ) as out:
            out.write_table(data, row_group_size=ROWS)
            out.write_table(data.slice(0, 100))
    return folder


def opened(table: Path, cache: Path, **options: Any) -> StreamingDataset[Any]:
    given: dict[str, Any] = {'format': 'parquet', 'batch_size': 1, **options}
    return StreamingDataset(remote=str(table), local=str(cache), **given)


@pytest.fixture(scope='module')
def one(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file with an index alone."""
    folder = tmp_path_factory.mktemp('one')
    shutil.copy(table / 'a.parquet', folder)
    return folder


def test_large_row_groups_are_divided_into_shards(table: Path, tmp_path: Path) -> None:
    cache = tmp_path / 'cache'
    sizes = list(opened(table, cache, columns=['id']).samples_per_shard)
    assert len(sizes) == 3 + 1 + 2
    assert sum(sizes[:3]) == ROWS
    assert min(sizes[:3]) > ROWS // 4
    assert sizes[3:] == [100, ROWS, 100]
    for columns in (['text'], ['label', 'tokens']):
        assert list(opened(table, cache, columns=columns).samples_per_shard) == sizes
    assert ids(opened(table, cache, columns=['id'])) == [*range(ROWS), *range(100)] * 2


def test_row_group_parts_have_correct_values(one: Path, tmp_path: Path) -> None:
    dataset = opened(one, tmp_path / 'cache')
    for number, sample in enumerate(dataset):
        row = number % ROWS
        assert int(sample['id']) == row
        assert sample['text'] == text(row)
        assert int.from_bytes(sample['raw'][:8], 'little') == row
        assert sample['label'] == ('cat', 'dog')[row % 2]
        assert sample['tokens'].tolist() == list(range(row % 5 + 1))
    assert number == ROWS + 99


def test_state_resumes_on_converted_shards(one: Path, tmp_path: Path) -> None:
    shardmill.convert(one, tmp_path / 'shards', columns=['id'], keep_row_groups=True)
    options: dict[str, Any] = {'batch_size': 64, 'shuffle': True, 'num_canonical_nodes': 2}
    here = opened(one, tmp_path / 'cache', columns=['id'], **options)
    shards = StreamingDataset(local=str(tmp_path / 'shards'), **options)
    assert list(here.samples_per_shard) == list(shards.samples_per_shard)
    whole = ids(here)
    assert ids(shards) == whole
    begun = opened(one, tmp_path / 'cache', columns=['id'], **options)
    first = [int(sample['id']) for _, sample in zip(range(6400), begun)]
    resumed = StreamingDataset(local=str(tmp_path / 'shards'), **options)
    resumed.load_state_dict(begun.state_dict(6400, False))
    assert first + ids(resumed) == whole


def test_row_group_parts_respect_where_and_deleted_rows(one: Path, tmp_path: Path) -> None:
    some = opened(one, tmp_path / 'some', columns=['id'], where='id % 1000 = 7')
    assert ids(some) == [*range(7, ROWS, 1000), 7]
    folder = tmp_path / 'delta'
    folder.mkdir()
    columns = ['id', 'text', 'raw', 'label', 'flag']
    data = pq.read_table(one / 'a.parquet', columns=columns).slice(0, ROWS)
    with pq.ParquetWriter(
        folder / 'a.parquet', data.schema, compression='zstd', write_page_index=True
    ) as out:
        out.write_table(data, row_group_size=ROWS)
    deleted = [0, *range(18_000, 22_000), ROWS - 1]
    write_log(folder, deleted)
    left = sorted(set(range(ROWS)) - set(deleted))
    delta = opened(folder, tmp_path / 'left', format='delta', columns=['id', 'text'])
    assert len(delta.samples_per_shard) == 3
    assert [(int(sample['id']), sample['text']) for sample in delta] == [
        (row, text(row)) for row in left
    ]
    shardmill.convert(folder, tmp_path / 'shards', columns=['id', 'text'], keep_row_groups=True)
    shards = StreamingDataset(local=str(tmp_path / 'shards'), batch_size=1)
    assert list(shards.samples_per_shard) == list(delta.samples_per_shard)
    assert ids(shards) == left


def test_row_group_part_is_fetched_alone(
    one: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = Bucket()
    for key, value in bucket.environment.items():
        monkeypatch.setenv(key, value)
    bucket.objects['parts/a.parquet'] = (one / 'a.parquet').read_bytes()

    def fetched() -> list[int]:
        """The lengths of the ranges that were asked for since the last call."""
        given = [request.headers.get('range', '') for request in bucket.requests]
        bucket.requests.clear()
        ranges = [re.fullmatch(r'bytes=(\d+)-(\d+)', text) for text in given]
        return [int(found[2]) - int(found[1]) + 1 for found in ranges if found]

    options: dict[str, Any] = {'columns': ['text'], 'cache_limit': '100mb'}
    remote: Any = 's3://bucket/parts'
    dataset = opened(remote, tmp_path / 'cache', **options)
    fetched()
    chunk = pq.read_metadata(one / 'a.parquet').row_group(0).column(1).total_compressed_size
    assert dataset[ROWS // 2]['text'] == text(ROWS // 2)
    assert 0 < sum(fetched()) < chunk / 2
    # The whole epoch: each part once.
    assert [sample['text'] for sample in opened(remote, tmp_path / 'new', **options)][:ROWS] == [
        text(row) for row in range(ROWS)
    ]
    # The end of the file twice, for the first file and for all.
    lengths = fetched()
    assert len(lengths) <= 2 + 4
    assert sum(lengths) < chunk * 1.1 + (256 << 10)
    shardmill.convert(remote, tmp_path / 'shards', columns=['text'], keep_row_groups=True)
    shards = StreamingDataset(local=str(tmp_path / 'shards'), batch_size=1)
    assert len(shards.samples_per_shard) == 4
    assert shards[ROWS - 1]['text'] == text(ROWS - 1)
    bucket.close()
