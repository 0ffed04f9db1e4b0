"""Sources of `convert` that are rows: Arrow streams, record batches and dicts."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import shardmill
from shardmill import LocalDataset
from shardmill.errors import ConflictError, DataError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TABLE = pa.table({'id': range(3000), 'text': [f'text {number}' for number in range(3000)]})


def rows() -> Iterator[dict[str, Any]]:
    return iter(TABLE.to_pylist())


class Restarting:
    """An iterable that is its own iterator and begins again, like some datasets."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.rows = rows()
        return self

    def __next__(self) -> dict[str, Any]:
        return next(self.rows)


def samples(out: Path) -> list[Any]:
    dataset = LocalDataset(str(out))
    return [dataset[number] for number in range(len(dataset))]


@pytest.mark.parametrize(
    'source',
    [
        lambda: TABLE,
        lambda: TABLE.to_reader(max_chunksize=700),
        lambda: iter(TABLE.to_batches(max_chunksize=700)),
        lambda: TABLE.to_batches(max_chunksize=700),
        lambda: pl.from_arrow(TABLE),
        lambda: [pl.from_arrow(TABLE.slice(0, 1000)), pl.from_arrow(TABLE.slice(1000))],
        lambda: pd.DataFrame({name: TABLE[name].to_pylist() for name in TABLE.column_names}),
        rows,
        lambda: list(rows()),
        Restarting,
    ],
    ids=[
        'table',
        'reader',
        'batches',
        'list',
        'polars',
        'frames',
        'pandas',
        'dicts',
        'dict list',
        'restarting',
    ],
)
def test_rows_are_converted_as_files_are(source: Any, tmp_path: Path) -> None:
    out = tmp_path / 'out'
    report = shardmill.convert(source(), out, where='id < 2500', split={'a': 0.5, 'b': 0.5})
    assert report.samples == 2500
    found = sorted(samples(out / 'a') + samples(out / 'b'), key=lambda sample: sample['id'])
    assert [sample['id'] for sample in found] == list(range(2500))
    assert found[1234]['text'] == 'text 1234'


def test_same_rows_are_the_same_conversion(tmp_path: Path) -> None:
    out = tmp_path / 'out'
    assert shardmill.convert(TABLE, out).outcome == 'converted'
    assert shardmill.convert(TABLE, out).outcome == 'already_done'
    with pytest.raises(ConflictError, match='dest-conflict'):
        shardmill.convert(TABLE.slice(1), out)
    assert shardmill.convert(TABLE.slice(1), out, overwrite=True).samples == 2999


def test_dicts_may_lack_columns_and_hold_arrays(tmp_path: Path) -> None:
    given = [{'id': 1, 'v': np.arange(3)}, {'id': 2, 'v': np.arange(3), 'image': b'x'}]
    with pytest.raises(DataError, match='value-null'):
        shardmill.convert(iter(given), tmp_path / 'none')
    shardmill.convert(iter(given), tmp_path / 'out', null_as={'image': 'y'})
    first, second = samples(tmp_path / 'out')
    assert (first['image'], second['image']) == (b'y', b'x')
    np.testing.assert_array_equal(first['v'], [0, 1, 2])


def broken(number: int) -> Iterator[dict[str, Any]]:
    for row in rows():
        if row['id'] == number:
            raise OSError(f'row {number} cannot be read')
        yield row


@pytest.mark.parametrize('number', [0, 10, 2048, 2999])
def test_rows_that_end_with_an_exception_are_not_converted(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('TMPDIR', str(tmp_path / 'temp'))
    (tmp_path / 'temp').mkdir()
    with pytest.raises(OSError, match=f'row {number} cannot'):
        shardmill.convert(broken(number), tmp_path / 'out')
    assert not (tmp_path / 'out').exists()
    assert os.listdir(tmp_path / 'temp') == []


def test_ctrl_c_while_rows_are_sent_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('TMPDIR', str(tmp_path / 'temp'))
    (tmp_path / 'temp').mkdir()

    def endless() -> Iterator[dict[str, Any]]:
        threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT]).start()
        while True:
            yield {'id': 1}

    with pytest.raises(KeyboardInterrupt):
        shardmill.convert(endless(), tmp_path / 'out')
    assert not (tmp_path / 'out').exists()
    assert os.listdir(tmp_path / 'temp') == []


def late(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from rows()
    yield row


@pytest.mark.parametrize(
    ('source', 'text'),
    [
        (iter([]), 'it has no rows'),
        (iter([1]), 'item 0 is a int, not a record batch or a dict'),
        (np.arange(3), 'not a record batch or a dict'),
        (late({'id': 1, 'text': 'x', 'more': 2}), "row 3000 has 'more'"),
        (late({'id': 'x', 'text': 'x'}), 'rows 2048 to 3000: '),
        (late({'id': 1.5, 'text': 'x'}), 'rows 2048 to 3000: '),
    ],
    ids=['empty', 'numbers', 'array', 'new column', 'other type', 'fraction'],
)
def test_rows_that_do_not_fit_are_errors(source: Any, text: str, tmp_path: Path) -> None:
    with pytest.raises((UsageError, DataError)) as caught:
        shardmill.convert(source, tmp_path / 'out')
    assert text in str(caught.value)
    assert not (tmp_path / 'out').exists()


def test_errors_of_the_program_are_raised_while_rows_are_sent(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match='config-source'):
        shardmill.convert(rows(), tmp_path / 'out', source_kind='csv')
    with pytest.raises(DataError, match='value-range'):
        shardmill.convert(TABLE, tmp_path / 'out', columns={'*': None, 'id': 'int8'})
    assert not (tmp_path / 'out').exists()
