"""Rows of tables in place that meet a condition."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from deltalake import write_deltalake
from support.tables import FILES, ids, write_delta, write_shards, write_table

import shardmill
from shardmill import StreamingDataset
from shardmill.errors import ConflictError, DataError, UsageError

if TYPE_CHECKING:
    from support.store import Store


@pytest.fixture(scope='module')
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_table(tmp_path_factory.mktemp('tables') / 'table', FILES)


CONDITIONS = [
    "label = 'cat' AND id > 5",
    'id % 7 = 3',
    'length(raw) > 2 OR flag',
    "nested['a'] BETWEEN 8 AND 20",
    'id >= 23',
    '__sample__ % 2 = 1',
]


def chosen_ids(table: pa.Table, condition: str) -> list[int]:
    """Returns the ids of the rows that meet a condition, without SQL."""
    tests: dict[str, Callable[[dict[str, Any]], bool]] = {
        CONDITIONS[0]: lambda row: row['label'] == 'cat' and row['id'] > 5,
        CONDITIONS[1]: lambda row: row['id'] % 7 == 3,
        CONDITIONS[2]: lambda row: len(row['raw']) > 2 or row['flag'],
        CONDITIONS[3]: lambda row: 8 <= row['nested']['a'] <= 20,
        CONDITIONS[4]: lambda row: row['id'] >= 23,
        CONDITIONS[5]: lambda row: row['id'] % 2 == 1,
    }
    return [row['id'] for row in table.to_pylist() if tests[condition](row)]


@pytest.mark.parametrize('condition', CONDITIONS)
def test_where_selects_rows(table: Path, tmp_path: Path, condition: str) -> None:
    def opened(**options: Any) -> StreamingDataset[Any]:
        return StreamingDataset(
            remote=str(table),
            local=str(tmp_path / 'cache'),
            format='parquet',
            batch_size=1,
            **options,
        )

    expected = chosen_ids(pq.read_table(table), condition)
    dataset = opened(where=condition, columns=['id'])
    assert ids(dataset) == expected
    # The order is that of a view of shards of the same sizes.
    write_shards(tmp_path / 'mds', FILES)
    view = shardmill.select(tmp_path / 'mds', samples=expected)
    for options in ({'shuffle_seed': 7}, {'shuffle_algo': 'py1br', 'num_canonical_nodes': 2}):
        given: dict[str, Any] = {'shuffle': True, **options}
        shards = StreamingDataset(local=str(tmp_path / 'mds'), view=view, batch_size=1, **given)
        assert ids(opened(where=condition, columns=['id'], **given)) == ids(shards)
    # It is evaluated once, also for other columns, and resumes.
    found = list((tmp_path / 'cache').parent.rglob('where-*.view'))
    assert len(found) == 1
    whole = opened(where=condition, shuffle=True)
    order = ids(whole)
    state = whole.state_dict(2, False)
    again = opened(where=condition, shuffle=True)
    again.load_state_dict(state)
    assert ids(again) == order[2:]
    other = opened(where='id < 12', shuffle=True)
    with pytest.raises(ConflictError):
        other.load_state_dict(state)
        ids(other)


def test_row_groups_without_selected_rows_are_not_fetched(table: Path, tmp_path: Path) -> None:
    dataset = StreamingDataset(
        remote=str(table),
        local=str(tmp_path / 'cache'),
        format='parquet',
        where='id >= 12 AND id < 20',
        batch_size=1,
    )
    workers = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=2)
    assert sorted(int(sample['id']) for sample in workers) == list(range(12, 20))
    assert ids(dataset) == list(range(12, 20))
    assert len(list((tmp_path / 'cache').glob('row-group.*'))) == 1
    # A view of the same table can be given as well.
    view = shardmill.select(table, where='id % 2 = 0')
    both = StreamingDataset(
        remote=str(table),
        local=str(tmp_path / 'cache'),
        format='parquet',
        where='id >= 12 AND id < 20',
        view=view,
        batch_size=1,
    )
    assert ids(both) == [12, 14, 16, 18]


def test_invalid_where_conditions_are_errors(table: Path, tmp_path: Path) -> None:
    def fails(where: Any, **options: Any) -> str:
        with pytest.raises((UsageError, ConflictError)) as caught:
            StreamingDataset(
                remote=str(table),
                local=str(tmp_path / 'cache'),
                where=where,
                batch_size=1,
                **{'format': 'parquet', **options},
            )
        return caught.value.id

    assert fails('id >') == 'sql-syntax'
    assert fails('nothing = 1') == 'source-column'
    assert fails('id + 1') == 'sql-plan'
    assert fails(3) == 'config-type'
    assert fails('id = 1', format=None) == 'config-streams'
    # A changed table is evaluated again.
    folder = write_table(tmp_path / 'table', FILES)
    options: dict[str, Any] = {'format': 'parquet', 'where': 'id < 3', 'batch_size': 1}
    options.update(remote=str(folder), local=str(tmp_path / 'own'))
    assert ids(StreamingDataset(**options)) == [0, 1, 2]
    write_table(folder, [[2, 2], [1]])
    assert ids(StreamingDataset(**options)) == [0, 1, 2]
    view = shardmill.select(folder, where='id = 4')
    write_table(folder, FILES)
    with pytest.raises(ConflictError) as caught:
        StreamingDataset(**{**options, 'where': None, 'view': view})
    assert caught.value.id == 'view-dataset'


def test_where_selects_rows_of_delta_table(tmp_path: Path) -> None:
    deleted = [0, 3, 4, 9, 10, 11, 12, 13, 14, 19]
    table = write_delta(tmp_path / 'table', [10, 5, 5], deleted)
    live = [row for row in range(20) if row not in deleted]

    def opened(where: str, **options: Any) -> StreamingDataset[Any]:
        return StreamingDataset(
            remote=str(table),
            local=str(tmp_path / 'cache'),
            format='delta',
            where=where,
            batch_size=1,
            **options,
        )

    assert ids(opened('id % 2 = 0')) == [row for row in live if row % 2 == 0]
    assert ids(opened("day = '2026-01-31' AND id > 15")) == [16, 17, 18]
    assert list(opened('id > 15', columns=['id']).samples_per_shard) == [0, 3]
    versions = tmp_path / 'versions'
    for first in (0, 10):
        part = pa.table({'id': range(first, first + 10), 'part': ['ab'[first // 10]] * 10})
        write_deltalake(versions, part, mode='append', partition_by=['part'])
    for version, expected in ((0, [7, 8, 9]), (1, [7, 8, 9, *range(10, 20)]), (None, 13)):
        dataset = StreamingDataset(
            remote=str(versions),
            local=str(tmp_path / 'pinned'),
            format='delta',
            version=version,
            where="id >= 7 AND part >= 'a'",
            batch_size=1,
        )
        found = sorted(ids(dataset))
        assert found == expected or len(found) == expected


def test_where_selects_rows_of_remote_table(
    store: Store, served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in store.environment.items():
        monkeypatch.setenv(key, value)
    write_table(served / 'filtered', FILES)
    dataset = StreamingDataset(
        remote='s3://bucket/filtered',
        local=str(tmp_path / 'cache'),
        format='parquet',
        columns=['text'],
        where='id BETWEEN 12 AND 15',
        batch_size=2,
    )
    assert [sample['text'].split()[1] for sample in dataset] == ['12', '13', '14', '15']


def test_where_ignores_index_file_of_other_library(table: Path, tmp_path: Path) -> None:
    """LitData keeps its index beside the Parquet files."""
    shutil.copytree(table, tmp_path / 'table')
    index = {'chunks': [{'filename': 'part-000.parquet'}], 'config': {'item_loader': 'Parquet'}}
    (tmp_path / 'table' / 'index.json').write_text(json.dumps(index))
    dataset = StreamingDataset(
        remote=str(tmp_path / 'table'),
        local=str(tmp_path / 'cache'),
        format='parquet',
        columns=['id'],
        where='id BETWEEN 12 AND 15',
        batch_size=2,
    )
    assert ids(dataset) == [12, 13, 14, 15]
    view = shardmill.select(tmp_path / 'table', where='id < 3', source_kind='parquet')
    assert len(view) == 3
    with pytest.raises(DataError, match=r'index-missing-field.*such as parquet'):
        shardmill.select(tmp_path / 'table', where='id < 3')
