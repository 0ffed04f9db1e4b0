"""Delta tables in place: values, deleted rows, versions."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional, Union

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from deltalake import DeltaTable, write_deltalake
from support.tables import FILES, ids, same, with_nulls, write_delta, write_table

import shardmill
from shardmill import StreamingDataset
from shardmill.errors import ConflictError, NotFoundError, ShardmillError, UsageError

if TYPE_CHECKING:
    from support.store import Store


@pytest.fixture(scope='module')
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_table(tmp_path_factory.mktemp('tables') / 'table', FILES)


DELTA = Path(__file__).parents[2] / 'fixtures' / 'delta'


def assert_same_samples(table: Path, folder: Path, version: int, columns: list[str]) -> None:
    """Compares a version of a table in place with its conversion."""
    shardmill.convert(
        table, folder / 'shards', columns=columns, delta_version=version, nulls='mask'
    )
    converted = StreamingDataset(local=str(folder / 'shards'))
    dataset = StreamingDataset(
        remote=str(table),
        local=str(folder / 'cache'),
        format='delta',
        version=version,
        columns=columns,
    )
    assert len(dataset) == len(converted)
    for number in range(len(converted)):
        found, expected = dataset[number], with_nulls(converted[number])
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert same(found[name], value), (number, name, found[name], value)


@pytest.mark.parametrize('name', ['versions', 'types', 'evolved'])
def test_delta_table_values_equal_converted_values(name: str, tmp_path: Path) -> None:
    newest = DeltaTable(DELTA / name).version()
    compared = 0
    for version in range(newest + 1):
        frame = DeltaTable(DELTA / name, version=version).to_pyarrow_table()
        if frame.num_rows:
            assert_same_samples(DELTA / name, tmp_path / str(version), version, frame.column_names)
            compared += 1
    assert compared > 0


@pytest.mark.skipif('SHARDMILL_DELTA_GOLDEN' not in os.environ, reason='fixtures/delta/README.md')
def test_golden_delta_tables_match_conversion_or_its_error(tmp_path: Path) -> None:
    """Reads each column of each table alone."""
    equal = 0
    for number, log in enumerate(Path(os.environ['SHARDMILL_DELTA_GOLDEN']).rglob('_delta_log')):
        try:
            report: Any = shardmill.inspect(log.parent)
            names = [column.name for column in report.columns]
        except ShardmillError as error:
            with pytest.raises(ShardmillError) as caught:
                StreamingDataset(
                    remote=str(log.parent), local=str(tmp_path / 'none'), format='delta'
                )
            assert caught.value.id == error.id
            continue
        for place, name in enumerate(names):
            folder = tmp_path / f'{number}-{place}'
            found = outcome(log.parent, folder / 'cache', [name], format='delta')
            try:
                shardmill.convert(log.parent, folder / 'shards', columns=[name], nulls='mask')
                expected = outcome(folder / 'shards', None, None)
                if not isinstance(expected, str):
                    expected = [with_nulls(sample) for sample in expected]
            except ShardmillError as error:
                expected = error.id
            if isinstance(found, str) or isinstance(expected, str):
                assert found == expected, (log.parent, name)
                continue
            assert len(found) == len(expected)
            assert all(same(a[name], b[name]) for a, b in zip(found, expected)), (log.parent, name)
            equal += 1
    assert equal > 100


@pytest.mark.skipif('SHARDMILL_DELTA_GOLDEN' not in os.environ, reason='fixtures/delta/README.md')
def test_golden_delta_tables_convert_with_at_most_nulls_mask(tmp_path: Path) -> None:
    """Every table that can be read needs at most one option, which the error names."""
    converted = refused = 0
    for number, log in enumerate(Path(os.environ['SHARDMILL_DELTA_GOLDEN']).rglob('_delta_log')):
        for nulls in ('error', 'mask'):
            try:
                shardmill.convert(log.parent, tmp_path / f'{number}-{nulls}', nulls=nulls)
                converted += nulls == 'error'
            except ShardmillError as error:
                unreadable = error.id in ('delta-log', 'delta-file-missing')
                assert unreadable or (nulls, error.id) == ('error', 'value-null'), log.parent
                assert unreadable or '`nulls` mask' in str(error.hint)
                refused += not unreadable
    assert converted > 3 * refused


def outcome(
    remote: Path, local: Optional[Path], columns: Optional[list[str]], **options: Any
) -> Union[list[Any], str]:
    """Returns the samples of a dataset, or the id of its error."""
    try:
        dataset = StreamingDataset(
            remote=str(remote),
            local=None if local is None else str(local),
            columns=columns,
            **options,
        )
        return [dataset[number] for number in range(len(dataset))]
    except ShardmillError as error:
        return error.id
    except RuntimeError as error:
        return str(error).split(':')[0]


def test_deletion_vectors_and_partition_columns_match_conversion(tmp_path: Path) -> None:
    deleted = [0, 3, 4, 9, 10, 11, 12, 13, 14, 19]
    table = write_delta(tmp_path / 'table', [10, 5, 5], deleted)
    columns = ['id', 'text', 'raw', 'label', 'flag', 'day']
    assert_same_samples(table, tmp_path, 0, columns)
    # The second row group is deleted as a whole, and has no shard.
    dataset = StreamingDataset(
        remote=str(table),
        local=str(tmp_path / 'ids'),
        format='delta',
        version=0,
        columns=['id'],
        batch_size=1,
    )
    assert ids(dataset) == [row for row in range(20) if row not in deleted]
    assert list(dataset.samples_per_shard) == [6, 4]
    only = StreamingDataset(
        remote=str(table),
        local=str(tmp_path / 'day'),
        format='delta',
        columns=['day'],
        batch_size=1,
    )
    assert [sample['day'] for sample in only] == ['2026-01-31'] * 10


def test_run_stays_at_its_delta_version(tmp_path: Path) -> None:
    table = tmp_path / 'table'
    for first in range(0, 40, 10):
        write_deltalake(table, pa.table({'id': list(range(first, first + 10))}), mode='append')

    def opened(name: str, version: Optional[int] = None) -> StreamingDataset[Any]:
        return StreamingDataset(
            remote=str(table),
            local=str(tmp_path / name),
            format='delta',
            version=version,
            batch_size=1,
        )

    dataset = opened('latest')
    assert dataset.streams[0].version == 3  # type: ignore[attr-defined]
    write_deltalake(table, pa.table({'id': list(range(40, 50))}), mode='append')
    assert sorted(ids(dataset)) == list(range(40))
    workers = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=2)
    assert sorted(int(sample['id']) for sample in workers) == list(range(40))
    state = dataset.state_dict(8, False)
    assert state['versions'] == [3]

    later = opened('later')
    with pytest.raises(ConflictError) as caught:
        later.load_state_dict(state)
    assert caught.value.id == 'state-files'
    assert 'versions [3]' in str(caught.value.hint)
    same_version = opened('again', 3)
    same_version.load_state_dict(state)
    assert ids(same_version) == ids(opened('whole', 3))[8:]


def test_unreadable_delta_tables_are_errors(
    tmp_path: Path, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delta = tmp_path / 'delta'
    write_deltalake(delta, pa.table({'id': list(range(10))}))

    def fails(kind: type[BaseException], remote: Path = delta, **options: Any) -> str:
        with pytest.raises(kind) as caught:
            StreamingDataset(remote=str(remote), local=str(tmp_path / 'cache'), **options)
        return str(getattr(caught.value, 'id', caught.value))

    assert fails(UsageError, format='parquet') == 'table-delta'
    assert fails(UsageError, format='parquet', version=0) == 'config-value'
    assert fails(UsageError, format='delta', version=7) == 'delta-version'
    assert fails(UsageError, format='delta', columns=['absent']) == 'table-columns'
    assert fails(NotFoundError, format='delta', remote=table) == 'delta-no-table'
    monkeypatch.setenv('WORLD_SIZE', '2')
    assert fails(UsageError, format='delta') == 'config-value'
    monkeypatch.delenv('WORLD_SIZE')
    for file in delta.glob('*.parquet'):
        file.unlink()
    assert fails(NotFoundError, format='delta') == 'delta-file-missing'


def test_remote_delta_table_is_read(
    store: Store, served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in store.environment.items():
        monkeypatch.setenv(key, value)
    write_delta(served / 'delta', [10, 5, 5], [2, 17])
    dataset = StreamingDataset(
        remote='s3://bucket/delta',
        local=str(tmp_path / 'cache'),
        format='delta',
        columns=['id'],
        batch_size=1,
    )
    assert ids(dataset) == [row for row in range(20) if row not in (2, 17)]


def test_variants_and_images_of_delta_tables_have_the_values_of_a_conversion(
    tmp_path: Path,
) -> None:
    # The numbers 5 and 6, and {"a": 5}.
    number, other = ({'metadata': b'\1\0\0', 'value': bytes([0x0C, n])} for n in (5, 6))
    record = {'metadata': b'\1\1\0\1a', 'value': bytes([2, 1, 0, 0, 2, 0x0C, 5])}
    variant = pa.struct({'metadata': pa.binary(), 'value': pa.binary()})
    image = pa.struct({'bytes': pa.binary(), 'path': pa.string()})
    file = pa.table(
        {
            'v': pa.array([number, record], variant),
            'vs': pa.array([[number, None, record], []], pa.list_(variant)),
            'm': pa.array([[('k', other)], None], pa.map_(pa.string(), variant)),
            's': pa.array([{'v': record}, {'v': None}], pa.struct({'v': variant})),
            'image': pa.array([{'bytes': b'x', 'path': 'x.jpg'}, None], image),
        }
    )
    table = tmp_path / 'table'
    (table / '_delta_log').mkdir(parents=True)
    pq.write_table(file, table / 'a.parquet')

    def struct(**fields: Any) -> dict[str, Any]:
        return {'type': 'struct', 'fields': [field(*one) for one in fields.items()]}

    def field(name: str, of: Any) -> dict[str, Any]:
        return {'name': name, 'type': of, 'nullable': True, 'metadata': {}}

    schema = struct(
        v='variant',
        vs={'type': 'array', 'elementType': 'variant', 'containsNull': True},
        m={'type': 'map', 'keyType': 'string', 'valueType': 'variant', 'valueContainsNull': True},
        s=struct(v='variant'),
        image=struct(bytes='binary', path='string'),
    )
    features = {'readerFeatures': ['variantType'], 'writerFeatures': ['variantType']}
    actions = [
        {'protocol': {'minReaderVersion': 3, 'minWriterVersion': 7, **features}},
        {
            'metaData': {
                'id': '5fba94ed-9794-4965-ba6e-6ee3c0d22af9',
                'format': {'provider': 'parquet', 'options': {}},
                'schemaString': json.dumps(schema),
                'partitionColumns': [],
                'configuration': {},
                'createdTime': 1,
            }
        },
        {
            'add': {
                'path': 'a.parquet',
                'partitionValues': {},
                'size': (table / 'a.parquet').stat().st_size,
                'modificationTime': 1,
                'dataChange': True,
            }
        },
    ]
    log = table / '_delta_log' / f'{0:020}.json'
    log.write_text(''.join(json.dumps(action) + '\n' for action in actions))
    names = ['v', 'vs', 'm', 's', 'image']
    assert_same_samples(table, tmp_path, 0, names)
    found = StreamingDataset(remote=str(table), local=str(tmp_path / 'cache'), format='delta')
    first, second = (found[row] for row in range(2))
    assert first == {
        'v': 5,
        'vs': [5, None, {'a': 5}],
        'm': {'k': 6},
        's': {'v': {'a': 5}},
        'image': b'x',
    }
    assert second == {'v': {'a': 5}, 'vs': [], 'm': None, 's': {'v': None}, 'image': None}
