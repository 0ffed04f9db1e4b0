"""Arrow tables in, the shards of their rows out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

import numpy as np
import pytest
from support.writing import (
    MDS,
    TEXT,
    WRITERS,
    Sample,
    files,
    read,
    samples,
    write,
)

from shardmill import MDSWriter

if TYPE_CHECKING:
    from collections.abc import Iterator


class OnlyArray:
    """A batch that knows one of the two protocols."""

    def __init__(self, batch: Any) -> None:
        self.batch = batch

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self.batch.__arrow_c_array__(requested_schema)


def arrow_table(rows: list[Sample]) -> Any:
    pa = pytest.importorskip('pyarrow')
    return pa.table(
        {
            'unused': [0] * len(rows),
            'text': pa.array([row['text'] for row in rows], pa.large_string()),
            'number': pa.array([row['number'] for row in rows], pa.int64()),
            'score': pa.array([row['score'] for row in rows], pa.float32()),
            'blob': pa.array([row['blob'] for row in rows], pa.binary()),
            'row': pa.array([row['row'].tolist() for row in rows], pa.list_(pa.int16())),
        }
    )


@pytest.mark.parametrize(
    'pieces',
    [
        lambda table: [table],
        lambda table: table.to_batches(max_chunksize=7),
        lambda table: [OnlyArray(batch) for batch in table.to_batches(max_chunksize=70)],
        lambda table: [table.to_reader(max_chunksize=11)],
        lambda table: [table.slice(0, 5), table.slice(5, 0), table.slice(5)],
    ],
)
def test_arrow_batches_write_same_shards_as_samples(
    pieces: Callable[[Any], list[Any]], tmp_path: Path
) -> None:
    rows = samples('mds', 100)
    for row in rows:
        row['score'] = float(np.float32(row['score']))
    write('mds', tmp_path / 'samples', rows, size_limit=900, hashes=['md5'])
    table = arrow_table(rows)
    with MDSWriter(
        columns=MDS, out=str(tmp_path / 'arrow'), size_limit=900, hashes=['md5']
    ) as writer:
        assert sum(writer.write_batch(piece) for piece in pieces(table)) == 100
    assert files(tmp_path / 'arrow') == files(tmp_path / 'samples')


@pytest.mark.parametrize('format_', ['json', 'csv'])
def test_arrow_batches_write_text_formats(format_: str, tmp_path: Path) -> None:
    rows = samples('mds', 20)
    for row in rows:
        row['score'] = float(np.float32(row['score']))
    write(format_, tmp_path / 'samples', rows)
    with WRITERS[format_](columns=TEXT, out=str(tmp_path / 'arrow')) as writer:
        writer.write_batch(arrow_table(rows))
    assert files(tmp_path / 'arrow') == files(tmp_path / 'samples')


def test_unsuitable_arrow_data_is_an_error(tmp_path: Path) -> None:
    pa = pytest.importorskip('pyarrow')
    with MDSWriter(columns={'a': 'int32', 'b': 'str'}, out=str(tmp_path)) as writer:
        writer.write_batch(pa.table({'a': [1], 'b': ['x']}))
        for table, error, text in [
            (pa.table({'a': [1]}), KeyError, 'b'),
            (pa.table({'a': [1, None], 'b': ['x', 'y']}), ValueError, 'row 1 is null'),
            (pa.table({'a': [1 << 40], 'b': ['x']}), ValueError, '1099511627776'),
            (pa.table({'a': [{'c': 1}], 'b': ['x']}), ValueError, 'int32'),
            (pa.array([1, 2]), TypeError, 'columns'),
            ([{'a': 1, 'b': 'x'}], TypeError, 'arrow'),
        ]:
            with pytest.raises(error, match=text):
                writer.write_batch(table)
        writer.write({'a': 2, 'b': 'y'})
    assert read(tmp_path) == [{'a': 1, 'b': 'x'}, {'a': 2, 'b': 'y'}]


def test_failing_arrow_stream_is_an_error(tmp_path: Path) -> None:
    pa = pytest.importorskip('pyarrow')
    schema = pa.schema({'a': pa.int32()})

    def batches() -> Iterator[Any]:
        yield pa.record_batch({'a': pa.array([1], pa.int32())})
        raise OSError('broken pipe')

    with MDSWriter(columns={'a': 'int32'}, out=str(tmp_path)) as writer:
        with pytest.raises(ValueError, match='broken pipe'):
            writer.write_batch(pa.RecordBatchReader.from_batches(schema, batches()))
