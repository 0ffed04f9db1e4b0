"""Tables of Parquet files as datasets: values and order as of MDS shards, resumed, cached within a limit, mixed."""

from __future__ import annotations

import base64
import json
import os
import random
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional, Union

import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from deltalake import DeltaTable, write_deltalake

import shardmill
from shardmill import MDSWriter, Stream, StreamingDataset
from shardmill.base.util import merge_index
from shardmill.errors import ConflictError, NotFoundError, ShardmillError, UsageError
from shardmill.tables import TableStream

if TYPE_CHECKING:
    from support.store import Store


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


@pytest.fixture(scope='module')
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_table(tmp_path_factory.mktemp('tables') / 'table', FILES)


@pytest.mark.parametrize('compression', ['none', 'snappy', 'zstd', 'gzip', 'brotli', 'lz4'])
def test_values_are_those_of_a_conversion(tmp_path: Path, compression: str) -> None:
    for version, pages in (('1.0', 1 << 20), ('2.0', 64)):
        folder = write_table(
            tmp_path / version,
            FILES,
            compression=compression,
            data_page_version=version,
            data_page_size=pages,
            use_dictionary=version == '1.0',
        )
        shardmill.convert(str(folder), str(tmp_path / f'mds-{version}'))
        converted = StreamingDataset(local=str(tmp_path / f'mds-{version}'), batch_size=1)
        here = StreamingDataset(
            remote=str(folder),
            local=str(tmp_path / f'cache-{version}'),
            format='parquet',
            batch_size=1,
        )
        assert here.num_shards == 6
        assert len(here) == len(converted) == 36
        for one, other in zip(here, converted):
            assert list(one) == list(other)
            for name, value in one.items():
                np.testing.assert_array_equal(value, other[name], name)
                assert type(value) is type(other[name]), name


def test_the_order_is_that_of_shards_of_the_same_sizes(table: Path, tmp_path: Path) -> None:
    write_shards(tmp_path / 'mds', FILES)
    for options in (
        {'shuffle': False},
        {'shuffle': True},
        {'shuffle': True, 'shuffle_algo': 'py1br', 'num_canonical_nodes': 2},
        {'shuffle': True, 'shuffle_algo': 'naive', 'epoch_size': 20},
    ):
        given: dict[str, Any] = {'batch_size': 2, **options}
        shards = StreamingDataset(local=str(tmp_path / 'mds'), **given)
        here = StreamingDataset(
            remote=str(table),
            local=str(tmp_path / 'cache'),
            format='parquet',
            columns=['id'],
            **given,
        )
        assert ids(here) == ids(shards)


def batches(order: list[int]) -> list[list[int]]:
    """The samples of each global batch of four. Worlds divide them among ranks in different ways."""
    return [sorted(order[start : start + 4]) for start in range(0, len(order), 4)]


def run(seed: int, folder: Path) -> None:
    """Stops and resumes an epoch of a random table in random worlds, and compares it with the unbroken run."""
    chance = random.Random(seed)
    files = [
        [chance.randrange(1, 14) for _ in range(chance.randrange(1, 5))]
        for _ in range(chance.randrange(1, 4))
    ]
    # Fewer samples cannot be divided among four nodes.
    files[0][0] += 12
    write_table(folder / 'table', files)
    is_mixed = chance.random() < 0.4
    if is_mixed:
        write_shards(folder / 'mds', [[chance.randrange(1, 9)]])
    nodes = chance.choice([1, 2])
    options: dict[str, Any] = {
        'shuffle': chance.random() < 0.8,
        'num_canonical_nodes': nodes,
        'shuffle_seed': seed,
        'shuffle_algo': chance.choice(['py1e', 'py1s', 'py2s', 'py1br']),
        'cache_limit': chance.choice([None, 20_000]),
    }

    def opened(rank: int, world: int, batch_size: int) -> StreamingDataset[Any]:
        streams: list[Stream] = [
            TableStream(remote=str(folder / 'table'), local=str(folder / 'cache'), columns=['id'])
        ]
        if is_mixed:
            streams.append(Stream(local=str(folder / 'mds')))
        return StreamingDataset(
            streams=streams,
            rank=rank,
            world_size=world,
            local_world_size=1,
            batch_size=batch_size,
            **options,
        )

    def global_order(
        world: int, batch_size: int, state: Optional[dict[str, Any]] = None
    ) -> list[int]:
        parts = []
        for rank in range(world):
            dataset = opened(rank, world, batch_size)
            if state is not None:
                dataset.load_state_dict(state)
            parts.append(ids(dataset))
        assert len({len(part) for part in parts}) == 1
        order = []
        for start in range(0, len(parts[0]), batch_size):
            for part in parts:
                order += part[start : start + batch_size]
        return order

    # The same global batch in both worlds.
    whole = global_order(1, 4)
    world, batch_size = chance.choice([(1, 4), (2, 2), (4, 1)])
    steps = chance.randrange(len(whole) // 4 + 1)
    begun = []
    first = [opened(rank, world, batch_size) for rank in range(world)]
    for dataset in first:
        begun.append([int(sample['id']) for _, sample in zip(range(steps * batch_size), dataset)])
    state = first[0].state_dict(steps * 4, False)
    seen = []
    for start in range(0, steps * batch_size, batch_size):
        for part in begun:
            seen += part[start : start + batch_size]
    again = chance.choice([(1, 4), (2, 2), (4, 1)])
    rest = global_order(*again, state) if steps else global_order(*again)
    everything = sum(count for groups in files for count in groups)
    assert set(range(everything)) <= {*seen, *rest}
    if len(whole) % (4 * nodes) == 0:
        assert batches(seen + rest) == batches(whole), (seed, world, again, steps)


@pytest.mark.parametrize('block', range(4))
def test_random_tables_are_resumed_in_other_worlds(tmp_path: Path, block: int) -> None:
    for seed in range(block * 10, block * 10 + 10):
        run(seed, tmp_path / str(seed))


@pytest.mark.slow
@pytest.mark.parametrize('block', range(20))
def test_a_thousand_random_tables_are_resumed(tmp_path: Path, block: int) -> None:
    for seed in range(1000 + block * 50, 1050 + block * 50):
        run(seed, tmp_path / str(seed))


def test_the_second_epoch_reads_the_cache(table: Path, tmp_path: Path) -> None:
    dataset = StreamingDataset(
        remote=str(table),
        local=str(tmp_path / 'cache'),
        format='parquet',
        batch_size=4,
        shuffle=True,
    )
    first = ids(dataset)
    assert dataset.stats()['fetched_shards'] == 6
    assert sorted(ids(dataset)) == sorted(first)
    assert dataset.stats()['fetched_shards'] == 6
    # Another process finds them.
    again = StreamingDataset(
        remote=str(table),
        local=str(tmp_path / 'cache'),
        format='parquet',
        batch_size=4,
        shuffle=True,
    )
    assert ids(again) == first
    assert again.stats()['fetched_shards'] == 0


def test_a_group_that_is_larger_than_expected_stays_within_the_limit(tmp_path: Path) -> None:
    """Without statistics, the dictionary of a column hides the size of its values."""
    value = 'x' * 20_000
    table = polars.DataFrame({'id': range(2000), 'text': [value] * 2000})
    (tmp_path / 'table').mkdir()
    table.write_parquet(tmp_path / 'table' / 'a.parquet', row_group_size=500, statistics=False)
    cache = tmp_path / 'cache'
    dataset = StreamingDataset(
        remote=str(tmp_path / 'table'),
        local=str(cache),
        format='parquet',
        batch_size=4,
        cache_limit='2mb',
    )
    assert ids(dataset) == list(range(2000))
    assert sum(file.stat().st_size for file in cache.rglob('*') if file.is_file()) < 2_500_000


def test_tables_that_cannot_be_read(table: Path, tmp_path: Path) -> None:
    def fails(folder: Path, kind: type[BaseException] = ShardmillError, **options: Any) -> Any:
        with pytest.raises(kind) as caught:
            list(
                StreamingDataset(
                    remote=str(folder),
                    local=str(tmp_path / f'cache-{len(list(tmp_path.iterdir()))}'),
                    format='parquet',
                    batch_size=1,
                    **options,
                )
            )
        return caught.value

    error = fails(table, UsageError, columns=['id', 'nothing'])
    assert (error.id, error.object) == ('table-columns', 'nothing')
    assert 'the table has the columns' in str(error)
    error = fails(table, UsageError, columns=['id', 'id'])
    assert error.id == 'table-columns'
    assert fails(tmp_path / 'nowhere', NotFoundError).id == 'not-found'
    (tmp_path / 'empty').mkdir()
    assert fails(tmp_path / 'empty', NotFoundError).id == 'tree-empty'

    whole = (table / 'part-000.parquet').read_bytes()
    for name, data, expected in (
        ('short', whole[:-20], 'parquet-truncated'),
        ('tiny', b'PAR1', 'parquet-truncated'),
        ('text', b'no parquet at all', 'parquet-truncated'),
        ('claims', whole[:-8] + b'\xff\xff\xff\x7f' + b'PAR1', 'parquet-footer'),
        ('footer', whole[:-60] + b'\x15' * 52 + whole[-8:], 'parquet-footer'),
        ('pages', whole[:60] + b'\xff' * 200 + whole[260:], 'parquet-corrupt'),
        ('encrypted', whole[:-4] + b'PARE', 'parquet-encrypted'),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / 'a.parquet').write_bytes(data)
        error = fails(tmp_path / name)
        chain = [error.id, *str(error).split()]
        assert expected in (error.id, getattr(error.__cause__, 'id', None)) or expected in str(
            chain
        ), name
        assert 'a.parquet' in str(error), name

    drift = tmp_path / 'drift'
    write_table(drift, [[3]])
    pq.write_table(pa.table({'id': ['text']}), drift / 'part-001.parquet')
    error = fails(drift, columns=['id'])
    assert error.id == 'table-drift'
    assert 'part-001.parquet' in str(error)
    assert 'column `id` has the type Utf8, and Int64 in other files' in str(error)
    nulls = tmp_path / 'nulls'
    nulls.mkdir()
    pq.write_table(pa.table({'id': [1, None, 3]}), nulls / 'a.parquet')
    error = fails(nulls)
    assert error.id == 'value-null'
    assert 'column id' in str(error)
    assert 'row 1' in str(error)
    log = tmp_path / 'delta' / '_delta_log'
    write_table(tmp_path / 'delta', [[3]])
    log.mkdir()
    assert fails(tmp_path / 'delta').id == 'table-delta'
    write_table(tmp_path / 'parts' / 'day=1', [[3]])
    write_table(tmp_path / 'parts' / 'hour=1', [[3]])
    assert fails(tmp_path / 'parts').id == 'source-partition'
    write_table(tmp_path / 'twice' / 'id=1', [[3]])
    assert fails(tmp_path / 'twice').id == 'source-partition'


def test_names_of_folders_are_columns_as_in_a_conversion(tmp_path: Path) -> None:
    for number, folder in enumerate(('day=3/town=Bonn', 'day=-1/town=a%20b')):
        path = tmp_path / 'table' / folder
        path.mkdir(parents=True)
        pq.write_table(rows(number * 10, 10).drop(['nested']), path / 'a.parquet', row_group_size=4)
    shardmill.convert(tmp_path / 'table', tmp_path / 'shards')
    converted = StreamingDataset(local=str(tmp_path / 'shards'))
    dataset = StreamingDataset(
        remote=str(tmp_path / 'table'), local=str(tmp_path / 'cache'), format='parquet'
    )
    assert {(sample['day'], sample['town']) for sample in map(dataset.__getitem__, range(20))} == {
        (3, 'Bonn'),
        (-1, 'a b'),
    }
    for number in range(20):
        found, expected = dataset[number], converted[number]
        assert found.keys() == expected.keys()
        assert all(same(found[name], value) for name, value in expected.items())


def test_arguments_of_a_table_are_checked(table: Path) -> None:
    for options in (
        {'format': 'orc'},
        {'columns': ['id']},
        {'format': 'parquet', 'columns': 'id'},
    ):
        with pytest.raises(UsageError):
            StreamingDataset(remote=str(table), batch_size=1, **options)
    with pytest.raises(UsageError):
        StreamingDataset(streams=[TableStream(remote=str(table))], format='parquet', batch_size=1)


def test_files_that_change_during_a_run(tmp_path: Path) -> None:
    folder = write_table(tmp_path / 'table', FILES)
    dataset = StreamingDataset(
        remote=str(folder), local=str(tmp_path / 'cache'), format='parquet', batch_size=1
    )
    state = dataset.state_dict(4, False)
    later = StreamingDataset(
        remote=str(folder), local=str(tmp_path / 'later'), format='parquet', batch_size=1
    )
    os.utime(folder / 'part-001.parquet', (0, 0))
    with pytest.raises(ShardmillError) as changed:
        list(dataset)
    assert changed.value.id == 'file-changed'
    assert 'part-001.parquet' in str(changed.value)
    (folder / 'part-001.parquet').unlink()
    (folder / 'part-002.parquet').rename(tmp_path / 'part-002.parquet')
    with pytest.raises(NotFoundError) as gone:
        later[23]
    (tmp_path / 'part-002.parquet').rename(folder / 'part-002.parquet')
    assert gone.value.id == 'file-missing'
    # A new run reads the table as it is now, and its states are others.
    now = StreamingDataset(
        remote=str(folder), local=str(tmp_path / 'cache'), format='parquet', batch_size=1
    )
    assert len(ids(now)) == 25
    with pytest.raises(ConflictError) as other:
        now.load_state_dict(state)
    assert other.value.id == 'state-files'


def test_a_table_in_a_store(
    store: Store, served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in store.environment.items():
        monkeypatch.setenv(key, value)
    write_table(served / 'parquet', FILES)
    options: dict[str, Any] = {
        'remote': 's3://bucket/parquet',
        'local': str(tmp_path / 'cache'),
        'format': 'parquet',
        'batch_size': 4,
        'shuffle': True,
    }
    dataset = StreamingDataset(**options)
    assert sorted(ids(dataset)) == list(range(36))
    stats = dataset.stats()
    # A listing, a look for a Delta log, the end of the first file, the end of each file, and each row group once.
    assert stats['requests'] <= 2 + 1 + len(FILES) + 6
    assert len(ids(StreamingDataset(**{**options, 'columns': ['id']}))) == 36
    later = StreamingDataset(**{**options, 'local': str(tmp_path / 'other')})
    write_table(served / 'parquet', [[4, 8], [11], [3, 0, 9, 1]])
    with pytest.raises(ShardmillError) as caught:
        ids(later)
    assert caught.value.id in ('remote-changed', 'object-changed')


DELTA = Path(__file__).parents[2] / 'fixtures' / 'delta'


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, np.ndarray):
        return bool(np.array_equal(found, expected, equal_nan=expected.dtype.kind == 'f'))
    return bool(found == expected) or bool(found != found and expected != expected)


def assert_same_samples(table: Path, folder: Path, version: int, columns: list[str]) -> None:
    """Compares a version of a table in place with its conversion."""
    shardmill.convert(table, folder / 'shards', columns=columns, delta_version=version)
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
        found, expected = dataset[number], converted[number]
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert same(found[name], value), (number, name, found[name], value)


@pytest.mark.parametrize('name', ['versions', 'types', 'evolved'])
def test_delta_tables_have_the_values_of_a_conversion(name: str, tmp_path: Path) -> None:
    newest = DeltaTable(DELTA / name).version()
    compared = 0
    for version in range(newest + 1):
        frame = DeltaTable(DELTA / name, version=version).to_pyarrow_table()
        whole = [column for column in frame.column_names if frame[column].null_count == 0]
        if frame.num_rows and whole:
            assert_same_samples(DELTA / name, tmp_path / str(version), version, whole)
            compared += 1
    assert compared > 0


@pytest.mark.skipif('SHARDMILL_DELTA_GOLDEN' not in os.environ, reason='fixtures/delta/README.md')
def test_golden_tables_have_the_values_or_the_error_of_a_conversion(tmp_path: Path) -> None:
    """Reads each column of each table alone, because the conversion refuses columns with nulls."""
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
                shardmill.convert(log.parent, folder / 'shards', columns=[name])
                expected = outcome(folder / 'shards', None, None)
            except ShardmillError as error:
                expected = error.id
            if isinstance(found, str) or isinstance(expected, str):
                assert found == expected, (log.parent, name)
                continue
            assert len(found) == len(expected)
            assert all(same(a[name], b[name]) for a, b in zip(found, expected)), (log.parent, name)
            equal += 1
    assert equal > 100


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
    (folder / '_delta_log').mkdir(parents=True)
    with pq.ParquetWriter(folder / 'a.parquet', rows(0, 1).schema.remove(7)) as writer:
        first = 0
        for count in groups:
            writer.write_table(rows(first, count).drop(['nested']))
            first += count
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


def test_deleted_rows_and_partition_columns_are_those_of_a_conversion(tmp_path: Path) -> None:
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


def test_a_run_stays_at_its_version(tmp_path: Path) -> None:
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


def test_delta_tables_that_cannot_be_read(
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


def test_a_delta_table_in_a_store(
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
