"""Nulls of tables in place: None in samples, lists in batches, and masks."""

from __future__ import annotations

import datetime
import decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from support.tables import same

import shardmill
from shardmill import Stream, StreamingDataLoader, StreamingDataset
from shardmill.errors import DataError, UsageError
from shardmill.tables import TableStream


def write_nulls(folder: Path) -> list[dict[str, Any]]:
    """Writes two row groups of which the second has nulls, and returns their rows."""
    rows: list[dict[str, Any]] = [
        {
            'id': number,
            'number': number + 1,
            'real': number / 2,
            'flag': True,
            'text': f'text {number}',
            'raw': b'raw',
            'vector': [1.0, 2.0],
            'tokens': [number, 1],
            'nested': {'a': None, 'b': ['x', None]},
            'words': ['x', None],
            'day': datetime.date(2026, 1, 31),
            'price': decimal.Decimal('1.50'),
            'full': number,
        }
        for number in range(8)
    ]
    for name in set(rows[0]) - {'id', 'full'}:
        rows[5][name] = None
    schema = pa.schema(
        {
            'id': pa.int64(),
            'number': pa.int32(),
            'real': pa.float64(),
            'flag': pa.bool_(),
            'text': pa.string(),
            'raw': pa.binary(),
            'vector': pa.list_(pa.float32(), 2),
            'tokens': pa.list_(pa.int64()),
            'nested': pa.struct({'a': pa.int64(), 'b': pa.list_(pa.string())}),
            'words': pa.list_(pa.string()),
            'day': pa.date32(),
            'price': pa.decimal128(9, 2),
            'full': pa.int64(),
        }
    )
    folder.mkdir()
    table = pa.Table.from_pylist(rows, schema).append_column('nothing', pa.nulls(8))
    pq.write_table(table, folder / 'a.parquet', row_group_size=4)
    return rows


def test_null_table_values_are_none_in_samples(tmp_path: Path) -> None:
    rows = write_nulls(tmp_path / 'table')

    def opened(**options: Any) -> StreamingDataset[Any]:
        return StreamingDataset(
            remote=str(tmp_path / 'table'),
            local=str(tmp_path / 'cache'),
            format='parquet',
            batch_size=4,
            **options,
        )

    dataset = opened()
    names = {*rows[0], 'nothing'}
    for samples in (list(dataset), [dataset[number] for number in range(8)]):
        assert all(sample.keys() == names for sample in samples)
        for name in names - {'id', 'full'}:
            assert samples[5][name] is None, name
        assert [sample['full'] for sample in samples] == list(range(8))
        assert samples[4]['nested'] == {'a': None, 'b': ['x', None]}
        assert samples[4]['words'] == ['x', None]
        assert (samples[4]['day'], str(samples[4]['price'])) == ('2026-01-31', '1.50')
        np.testing.assert_array_equal(samples[4]['vector'], np.array([1, 2], np.float32))
        assert samples[4]['nothing'] is None
    assert set(dataset.columns) == names
    # The schema is that of the samples, and says which columns may have nulls.
    assert list(dataset.schema) == list(dataset.columns)
    never = {'id', 'full'}
    nullable = {name for name, each in dataset.schema.items() if each.nullable}
    assert not nullable & never
    assert {'number', 'text', 'vector', 'price'} <= nullable
    assert '__is_null' not in repr(dataset)
    shown = dataset.preview(8)
    assert list(shown.schema) == list(dataset.schema)
    assert all(sample.keys() == names for sample in shown.samples)
    assert (shown.samples[4]['number'], shown.samples[5]['number']) == (5, None)
    assert '__is_null' not in shown._repr_html_()
    only = dataset.batches(columns=['text', 'id'], batch_size=4)
    assert [batch['text'][1] for batch in only] == ['text 1', None]
    with pytest.raises(UsageError):
        dataset.batches(columns=['text__is_null'], batch_size=4)

    # As with `convert --nulls mask`.
    shardmill.convert(tmp_path / 'table', tmp_path / 'shards', nulls='mask')
    converted = StreamingDataset(local=str(tmp_path / 'shards'), batch_size=4)
    masked = opened(nulls='mask')
    assert list(masked.schema) == list(masked.columns) == list(converted.schema)
    for number in range(8):
        assert masked[number].keys() == converted[number].keys()
        assert all(same(masked[number][name], value) for name, value in converted[number].items())
    # Columns of a mix keep what their stream says.
    streams = [
        Stream(local=str(tmp_path / 'shards')),
        TableStream(remote=str(tmp_path / 'table'), local=str(tmp_path / 'cache')),
    ]
    mixed = StreamingDataset(streams=streams, batch_size=4)
    assert list(mixed.schema) == list(mixed.columns) == list(converted.columns)
    assert mixed.schema['number__is_null'].nullable
    assert (mixed[5]['number'], mixed[5]['number__is_null']) == (0, 1)
    assert mixed[13]['number'] is None
    # Arrow tables have nulls.
    assert dataset.to_arrow(columns=['number'])['number'].to_pylist() == [
        row['number'] for row in rows
    ]


@pytest.mark.parametrize('workers', [0, 2])
def test_null_table_values_become_none_in_batch_lists(tmp_path: Path, workers: int) -> None:
    write_nulls(tmp_path / 'table')

    def loaded(*columns: str, **options: Any) -> list[Any]:
        dataset = StreamingDataset(
            remote=str(tmp_path / 'table'),
            local=str(tmp_path / 'cache'),
            format='parquet',
            columns=columns,
            batch_size=4,
            **options,
        )
        return list(StreamingDataLoader(dataset, batch_size=4, num_workers=workers))

    first, second = loaded('id', 'text', 'raw', 'words', 'day', 'tokens')
    assert first['text'] == [f'text {number}' for number in range(4)]
    assert second['text'] == ['text 4', None, 'text 6', 'text 7']
    assert second['raw'] == [b'raw', None, b'raw', b'raw']
    assert second['day'][1] is second['words'][1] is second['tokens'][1] is None
    assert second['tokens'][2].tolist() == [6, 1]
    assert second['id'].tolist() == [4, 5, 6, 7]
    for name in ('number', 'real', 'flag', 'vector'):
        with pytest.raises(DataError) as caught:
            loaded('id', name)
        assert 'value-null' in (getattr(caught.value, 'id', None), *str(caught.value).split())
        assert f'sample 5: column `{name}` is null' in str(caught.value)
        assert "nulls='mask'" in str(caught.value.hint)
    masked = loaded('number', nulls='mask')
    assert masked[1]['number'].tolist() == [5, 0, 7, 8]
    assert masked[1]['number__is_null'].tolist() == [0, 1, 0, 0]
    dataset = StreamingDataset(
        remote=str(tmp_path / 'table'),
        local=str(tmp_path / 'cache'),
        format='parquet',
        columns=['number', 'text'],
        batch_size=4,
    )
    numbers = StreamingDataLoader(
        dataset,
        batch_size=4,
        num_workers=workers,
        collate_fn=partial(map_numbers, -1),
    )
    assert list(numbers) == [[1, 2, 3, 4], [5, -1, 7, 8]]


def map_numbers(fill: int, samples: list[Any]) -> list[int]:
    """Collates numbers with a value in place of nulls."""
    return [fill if sample['number'] is None else int(sample['number']) for sample in samples]


def test_nulls_in_number_lists_are_errors_without_mask(tmp_path: Path) -> None:
    (tmp_path / 'table').mkdir()
    pq.write_table(pa.table({'v': [[1, 2], [3, None]]}), tmp_path / 'table' / 'a.parquet')

    def opened(**options: Any) -> StreamingDataset[Any]:
        return StreamingDataset(
            remote=str(tmp_path / 'table'),
            local=str(tmp_path / 'cache'),
            format='parquet',
            batch_size=1,
            **options,
        )

    for read in (lambda: opened()[1], lambda: list(opened())):
        with pytest.raises(DataError) as caught:
            read()
        assert caught.value.id == 'value-null'
        assert 'has a null inside' in str(caught.value)
    found = opened(nulls='mask')[1]
    assert (found['v'].tolist(), found['v__is_null']) == ([3, 0], 2)
    with pytest.raises(UsageError):
        opened(nulls='zero')
    # A column that was added to a Delta table is null in older files.
    delta = tmp_path / 'delta'
    write_deltalake(delta, pa.table({'id': [1, 2]}))
    write_deltalake(delta, pa.table({'id': [3], 'late': ['x']}), mode='append', schema_mode='merge')
    dataset = StreamingDataset(
        remote=str(delta), local=str(tmp_path / 'late'), format='delta', batch_size=1
    )
    assert {int(sample['id']): sample['late'] for sample in dataset} == {1: None, 2: None, 3: 'x'}
