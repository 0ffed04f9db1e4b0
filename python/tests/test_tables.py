"""Tables of Parquet files as datasets: values and order as of MDS shards, resumed, cached within a limit, mixed."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.tables import FILES, ids, rows, same, write_delta, write_shards, write_table

import shardmill
from shardmill import Stream, StreamingDataset
from shardmill.errors import ConflictError, NotFoundError, ShardmillError, UsageError
from shardmill.tables import TableStream

if TYPE_CHECKING:
    from support.store import Store


@pytest.fixture(scope='module')
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_table(tmp_path_factory.mktemp('tables') / 'table', FILES)


@pytest.mark.parametrize('compression', ['none', 'snappy', 'zstd', 'gzip', 'brotli', 'lz4'])
def test_table_values_equal_converted_values(tmp_path: Path, compression: str) -> None:
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


def test_table_order_equals_shards_of_equal_sizes(table: Path, tmp_path: Path) -> None:
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
def test_random_tables_resume_in_other_worlds(tmp_path: Path, block: int) -> None:
    for seed in range(block * 10, block * 10 + 10):
        run(seed, tmp_path / str(seed))


@pytest.mark.slow
@pytest.mark.parametrize('block', range(20))
def test_thousand_random_tables_resume(tmp_path: Path, block: int) -> None:
    for seed in range(1000 + block * 50, 1050 + block * 50):
        run(seed, tmp_path / str(seed))


def test_second_epoch_reads_row_groups_from_cache(table: Path, tmp_path: Path) -> None:
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


def test_underestimated_row_group_stays_within_cache_limit(tmp_path: Path) -> None:
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


def test_unreadable_tables_are_errors(table: Path, tmp_path: Path) -> None:
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
    masks = tmp_path / 'masks'
    masks.mkdir()
    pq.write_table(pa.table({'id': [1, None], 'id__is_null': [3, 4]}), masks / 'a.parquet')
    error = fails(masks, UsageError)
    assert (error.id, error.object) == ('table-columns', 'id__is_null')
    log = tmp_path / 'delta' / '_delta_log'
    write_table(tmp_path / 'delta', [[3]])
    log.mkdir()
    assert fails(tmp_path / 'delta').id == 'table-delta'
    write_table(tmp_path / 'parts' / 'day=1', [[3]])
    write_table(tmp_path / 'parts' / 'hour=1', [[3]])
    assert fails(tmp_path / 'parts').id == 'source-partition'
    write_table(tmp_path / 'twice' / 'id=1', [[3]])
    assert fails(tmp_path / 'twice').id == 'source-partition'


def test_hive_partition_folders_become_columns(tmp_path: Path) -> None:
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


def test_invalid_table_arguments_are_errors(table: Path) -> None:
    for options in (
        {'format': 'orc'},
        {'columns': ['id']},
        {'format': 'parquet', 'columns': 'id'},
    ):
        with pytest.raises(UsageError):
            StreamingDataset(remote=str(table), batch_size=1, **options)
    with pytest.raises(UsageError):
        StreamingDataset(streams=[TableStream(remote=str(table))], format='parquet', batch_size=1)


def test_table_files_changed_during_run_are_errors(tmp_path: Path) -> None:
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


def test_remote_table_is_read_with_few_requests(
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


@pytest.mark.parametrize('form', ['parquet', 'delta'])
def test_table_and_converted_states_are_interchangeable(
    table: Path, tmp_path: Path, form: str
) -> None:
    if form == 'delta':
        table = write_delta(tmp_path / 'delta', [10, 5, 5], [0, 3, *range(10, 15), 19])
    report = shardmill.convert(table, tmp_path / 'shards', columns=['id'], keep_row_groups=True)
    options: dict[str, Any] = {'shuffle': True, 'shuffle_seed': 3, 'num_canonical_nodes': 2}

    def place() -> StreamingDataset[Any]:
        return StreamingDataset(
            remote=str(table),
            local=str(tmp_path / 'cache'),
            format=form,
            columns=['id'],
            batch_size=2,
            **options,
        )

    def shards() -> StreamingDataset[Any]:
        return StreamingDataset(local=str(tmp_path / 'shards'), batch_size=2, **options)

    whole = ids(place())
    assert report.shards == len(place().samples_per_shard)
    assert list(place().samples_per_shard) == list(shards().samples_per_shard)
    assert ids(shards()) == whole
    for before, after in ((place, shards), (shards, place)):
        begun = before()
        first = [int(sample['id']) for _, sample in zip(range(4), begun)]
        resumed = after()
        resumed.load_state_dict(begun.state_dict(4, False))
        assert first + ids(resumed) == whole
    shardmill.convert(table, tmp_path / 'other', columns=['id'], samples_per_shard=4)
    other = StreamingDataset(local=str(tmp_path / 'other'), batch_size=2, **options)
    with pytest.raises(ConflictError):
        other.load_state_dict(place().state_dict(4, False))


def test_keep_row_groups_with_other_options_is_an_error(table: Path, tmp_path: Path) -> None:
    (tmp_path / 'rows.csv').write_text('id\n1\n')
    for source, options in (
        (tmp_path / 'rows.csv', {}),
        (table, {'shuffle': 1}),
        (table, {'samples_per_shard': 3}),
        (table, {'sql': 'SELECT id FROM source'}),
        (table, {'split': {'a': 0.5, 'b': 0.5}}),
    ):
        with pytest.raises(UsageError) as caught:
            shardmill.convert(source, tmp_path / 'out', keep_row_groups=True, **options)
        assert caught.value.id == 'config-keep-row-groups'
