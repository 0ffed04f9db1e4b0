"""Random tables whose large row groups are divided: nulls, lists, versions of pages, conditions, and moving states."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.tables import ids, same, with_nulls

import shardmill
from shardmill import StreamingDataset

#: Row groups with more bytes are divided, and a part has about as many.
PART = 128 << 20
TEXTS = ['', 'x', 'ä' * 9, 'long ' * 40]
#: Conditions in SQL, and what they mean for a row. A comparison with a null is not true.
CONDITIONS: list[tuple[str, Callable[[dict[str, Any]], bool]]] = [
    ('id % 5 = 2', lambda row: row['id'] % 5 == 2),
    ('real > 0.25', lambda row: row['real'] is not None and row['real'] > 0.25),
    ('text IS NULL', lambda row: row['text'] is None),
    (
        "label <> 'cat' OR number IS NULL",
        lambda row: row['label'] != 'cat' or row['number'] is None,
    ),
    ('tokens IS NOT NULL AND id > 300', lambda row: row['tokens'] is not None and row['id'] > 300),
]


def column(chance: random.Random, count: int, make: Callable[[int], Any]) -> list[Any]:
    """Values of which some are null, alone or in runs, in a part of the rows or in all."""
    share = chance.choice([0, 0.01, 0.3])
    quiet = chance.randrange(count) if chance.random() < 0.3 else 0
    values = []
    run = 0
    for row in range(count):
        if run == 0 and row >= quiet and chance.random() < share:
            run = chance.choice([1, 1, 1, 40])
        values.append(None if run else make(row))
        run = max(0, run - 1)
    return values


def write_random(chance: random.Random, folder: Path) -> pa.Table:
    """Writes files of which the first has a row group of several parts, and returns their rows without the blobs."""
    folder.mkdir()
    tables = []
    first = 0
    for number in range(chance.choice([1, 1, 2])):
        is_large = number == 0
        count = chance.randrange(500, 2500) if is_large else chance.randrange(20, 200)
        data = pa.table(
            {
                'id': pa.array(range(first, first + count), pa.int64()),
                'number': pa.array(column(chance, count, lambda row: row - 7), pa.int32()),
                'real': pa.array(column(chance, count, lambda _: chance.random()), pa.float64()),
                'text': pa.array(
                    column(chance, count, lambda _: chance.choice(TEXTS)), pa.string()
                ),
                'label': pa.array([('cat', 'dog')[row % 2] for row in range(count)], pa.string()),
                'tokens': pa.array(
                    column(chance, count, lambda row: list(range(row % 7 + 1))),
                    pa.list_(pa.int64()),
                ),
                'words': pa.array(
                    column(chance, count, lambda row: [None, 'x', 'yy'][: row % 4]),
                    pa.list_(pa.string()),
                ),
                'vector': pa.array(
                    column(chance, count, lambda row: [row, 0.5]), pa.list_(pa.float32(), 2)
                ),
            }
        )
        # Zeros, which make the row group large and the file small.
        width = int(PART * chance.uniform(1.2, 3.5)) // count if is_large else 10
        offsets = pa.py_buffer((np.arange(count + 1, dtype='int64') * width).astype('int32'))
        zeros = pa.py_buffer(np.zeros(count * width, 'uint8'))
        blobs = pa.Array.from_buffers(pa.binary(), count, [None, offsets, zeros])
        with pq.ParquetWriter(
            folder / f'part-{number}.parquet',
            data.append_column('zeros', blobs).schema,
            compression=chance.choice(['zstd', 'snappy']),
            data_page_version=chance.choice(['1.0', '2.0']),
            data_page_size=chance.choice([200, 4_000, 1 << 20]),
            write_batch_size=chance.choice([7, 50, 1024]),
            use_dictionary=chance.choice([['label'], ['label', 'text', 'number'], []]),
            write_page_index=chance.random() < 0.9,
        ) as out:
            whole = data.append_column('zeros', blobs)
            cut = max(1, count - chance.choice([0, 30, 100]))
            out.write_table(whole.slice(0, cut), row_group_size=count)
            if cut < count:
                out.write_table(whole.slice(cut))
        tables.append(data)
        first += count
    return pa.concat_tables(tables)


def run(seed: int, folder: Path) -> None:
    """Compares a random table in place with its rows and its conversion."""
    chance = random.Random(seed)
    folder.mkdir(parents=True)
    rows = write_random(chance, folder / 'table').to_pylist()
    names = [*rows[0]]
    chosen = sorted({'id', *chance.sample(names, chance.randrange(1, len(names)))})

    def place(**options: Any) -> StreamingDataset[Any]:
        given: dict[str, Any] = {'batch_size': 4, 'columns': chosen, **options}
        return StreamingDataset(
            remote=str(folder / 'table'), local=str(folder / 'cache'), format='parquet', **given
        )

    def shards(**options: Any) -> StreamingDataset[Any]:
        return StreamingDataset(local=str(folder / 'shards'), **{'batch_size': 4, **options})

    # The values are those of the rows, and those of the conversion.
    shardmill.convert(
        folder / 'table', folder / 'shards', columns=chosen, keep_row_groups=True, nulls='mask'
    )
    here, there = place(), shards()
    assert list(here.samples_per_shard) == list(there.samples_per_shard), seed
    for row, one, other in zip(rows, here, there):
        found = with_nulls(other)
        assert one.keys() == found.keys() == set(chosen), seed
        for name in chosen:
            expected = row[name]
            if name == 'vector' and expected is not None:
                expected = np.array(expected, np.float32)
            assert same(one[name], found[name]), (seed, row['id'], name)
            assert np.array_equal(one[name], expected), (seed, row['id'], name)

    # A condition is one of the rows, not of the parts.
    condition, holds = chance.choice(CONDITIONS)
    wanted = [row['id'] for row in rows if holds(row)]
    if wanted:
        assert ids(place(where=condition, columns=['id'])) == wanted, (seed, condition)

    # An epoch moves from shards to the table and back.
    options: dict[str, Any] = {
        'shuffle': chance.random() < 0.8,
        'shuffle_seed': seed,
        'shuffle_algo': chance.choice(['py1e', 'py1s', 'py2s', 'py1br']),
        'num_canonical_nodes': chance.choice([1, 2]),
        'cache_limit': None,
    }
    whole = ids(place(**options))
    assert ids(shards(**options)) == whole, seed
    assert set(whole) == {row['id'] for row in rows}
    seen: list[int] = []
    state: Any = None
    for opened in (shards, place, shards):
        dataset = opened(**options)
        if state is not None:
            dataset.load_state_dict(state)
        steps = 4 * chance.randrange(1, len(whole) // 16)
        begun = [int(sample['id']) for _, sample in zip(range(steps), dataset)]
        seen += begun
        state = dataset.state_dict(len(begun), False)
    last = place(**options)
    last.load_state_dict(state)
    assert seen + ids(last) == whole, (seed, options)


@pytest.mark.parametrize('seed', range(4))
def test_random_divided_tables_resume(tmp_path: Path, seed: int) -> None:
    run(seed, tmp_path / 'case')


def test_random_tables_have_divided_row_groups(tmp_path: Path) -> None:
    """Most of the random cases would be of no use if their row groups stayed whole."""
    chance = random.Random(5)
    parts = []
    for number in range(3):
        write_random(chance, tmp_path / str(number))
        file = pq.ParquetFile(tmp_path / str(number) / 'part-0.parquet')
        dataset = StreamingDataset(
            remote=str(tmp_path / str(number)),
            local=str(tmp_path / f'cache-{number}'),
            format='parquet',
            columns=['id'],
            batch_size=1,
        )
        parts.append(len(dataset.samples_per_shard) - file.num_row_groups)
    assert max(parts) > 1


@pytest.mark.slow
@pytest.mark.parametrize('block', range(20))
def test_hundred_random_divided_tables_resume(tmp_path: Path, block: int) -> None:
    for seed in range(1000 + block * 5, 1005 + block * 5):
        run(seed, tmp_path / str(seed))
