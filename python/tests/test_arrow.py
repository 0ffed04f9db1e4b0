"""Tables of stored samples, compared with the samples that were written."""

from __future__ import annotations

import io
import json
import os
import tarfile
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image
from support import samples as made

from shardmill import (
    CSVWriter,
    FileDataset,
    JSONWriter,
    LocalDataset,
    MDSWriter,
    Stream,
    StreamingDataset,
)
from shardmill.base.format.mds.encodings import mds_encode
from shardmill.errors import DataError, UnsupportedError, UsageError

if TYPE_CHECKING:
    from support.store import Store

pa = pytest.importorskip('pyarrow')

NUMBERS = [f'{kind}{bits}' for kind in ('int', 'uint') for bits in (8, 16, 32, 64)]
FLOATS = ['float16', 'float32', 'float64']
SAMPLES = 50


def image(number: int) -> Any:
    return Image.new('RGB', (4 + number % 3, 5), (number, 2 * number, 3 * number))


def png(number: int) -> bytes:
    out = io.BytesIO()
    image(number).save(out, 'PNG')
    return out.getvalue()


def jpeg(number: int) -> bytes:
    out = io.BytesIO()
    image(number).save(out, 'JPEG')
    return out.getvalue()


#: For each column its encoding, what is written, and what a table has.
COLUMNS: dict[str, tuple[str, Any, Any]] = {
    'int': ('int', lambda n: n - 7, lambda n: n - 7),
    **{
        name: (name, lambda n, name=name: np.dtype(name).type(n), lambda n: n)
        for name in (*NUMBERS, *FLOATS)
    },
    'str': ('str', lambda n: f'ä{n}' * (n % 4), lambda n: f'ä{n}' * (n % 4)),
    'bytes': ('bytes', lambda n: b'\xff\x00' * (n % 5), lambda n: b'\xff\x00' * (n % 5)),
    'str_int': ('str_int', lambda n: 10**30 + n, lambda n: str(10**30 + n)),
    'str_float': ('str_float', lambda n: n / 7, lambda n: str(n / 7)),
    'str_decimal': ('str_decimal', lambda n: Decimal(n) / 7, lambda n: str(Decimal(n) / 7)),
    'json': ('json', lambda n: {'n': [n, None]}, lambda n: json.dumps({'n': [n, None]})),
    'fixed': (
        'ndarray:float32:2,3',
        lambda n: np.arange(6, dtype=np.float32).reshape(2, 3) + n,
        lambda n: [[n, n + 1, n + 2], [n + 3, n + 4, n + 5]],
    ),
    'half': (
        'ndarray:float16:2',
        lambda n: np.array([n, n / 2], np.float16),
        lambda n: [n, n / 2],
    ),
    'typed': (
        'ndarray:uint16',
        lambda n: np.arange(n % 4 + 1, dtype=np.uint16),
        lambda n: list(range(n % 4 + 1)),
    ),
    'free': (
        'ndarray',
        lambda n: np.full((n % 3 + 1, 2), n, np.int16),
        lambda n: [[n, n]] * (n % 3 + 1),
    ),
    'png': ('png', lambda n: png(n), lambda n: png(n)),
    'jpeg': ('jpeg', lambda n: jpeg(n), lambda n: jpeg(n)),
    'pil': ('pil', lambda n: image(n), lambda n: mds_encode('pil', image(n))),
    'jpegs': (
        'jpeg_array',
        lambda n: [jpeg(n), jpeg(n + 1)],
        lambda n: [jpeg(n), jpeg(n + 1)],
    ),
    'images': (
        'list[png]',
        lambda n: [image(n)] * (n % 3),
        lambda n: [png(n)] * (n % 3),
    ),
}


@pytest.fixture(scope='module')
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp('arrow')
    encodings = {name: encoding for name, (encoding, _, _) in COLUMNS.items()}
    with MDSWriter(out=str(place), columns=encodings, size_limit=20_000) as out:
        for number in range(SAMPLES):
            out.write({name: write(number) for name, (_, write, _) in COLUMNS.items()})
    return place


def test_every_encoding_converts_to_arrow(folder: Path) -> None:
    dataset = LocalDataset(str(folder))
    table = dataset.to_arrow()
    assert set(table.column_names) == set(COLUMNS) and table.num_rows == SAMPLES
    table.validate(full=True)
    for name, (_, _, expected) in COLUMNS.items():
        assert table[name].to_pylist() == [expected(number) for number in range(SAMPLES)], name
    for name in (*NUMBERS, *FLOATS):
        assert table[name].type.to_pandas_dtype() == np.dtype(name).type
    # The images are what a reader of images opens.
    assert Image.open(io.BytesIO(table['png'][3].as_py())).size == image(3).size


@pytest.mark.parametrize(
    ('start', 'stop'),
    [(None, None), (3, 7), (48, 99), (-3, None), (None, -48), (9, 9), (9, 2), (60, None)],
)
def test_to_arrow_range_follows_slice_rules(folder: Path, start: Any, stop: Any) -> None:
    numbers = [n - 7 for n in range(SAMPLES)][start:stop]
    for dataset in (
        LocalDataset(str(folder)),
        StreamingDataset(local=str(folder), batch_size=3, shuffle=True),
    ):
        table = dataset.to_arrow(start, stop, ['int', 'free'])
        assert table.column_names == ['int', 'free']
        assert table['int'].to_pylist() == numbers
    with pytest.raises(TypeError):
        LocalDataset(str(folder)).to_arrow('1')  # type: ignore[arg-type]


def test_iter_arrow_reads_shards_lazily(data: Path, tmp_path: Path) -> None:
    dataset = StreamingDataset(
        remote=str(data), local=str(tmp_path), batch_size=1, cache_limit='100kb'
    )
    reader = dataset.iter_arrow(10, columns=['number', 'vector'], batch_size=8)
    assert isinstance(reader, pa.RecordBatchReader)
    assert reader.schema.names == ['number', 'vector']
    assert dataset.stats().fetched_shards == 0
    first = reader.read_next_batch()
    assert first['number'].to_pylist() == list(range(10, 18))
    # The shards of the batch and the next ones, not all of them.
    assert 0 < dataset.stats().fetched_shards <= 6 < dataset.num_shards
    rest = reader.read_all()
    assert rest['number'].to_pylist() == list(range(18, made.SAMPLES))
    vectors = np.array(rest['vector'].to_pylist(), np.float32)
    assert all(np.array_equal(vectors[n - 18], made.sample_of(n)['vector']) for n in range(18, 403))


def test_to_arrow_during_iteration_keeps_order(data: Path, tmp_path: Path) -> None:
    expected = [
        each['number'] for each in StreamingDataset(local=str(data), batch_size=8, shuffle=True)
    ]
    dataset = StreamingDataset(
        remote=str(data), local=str(tmp_path), batch_size=8, shuffle=True, cache_limit='60kb'
    )
    numbers = []
    for at, sample in enumerate(dataset):
        numbers.append(sample['number'])
        if at % 50 == 0:
            assert dataset.to_arrow(at, at + 9, ['number'])['number'].to_pylist() == list(
                range(at, min(at + 9, made.SAMPLES))
            )
    assert numbers == expected


def test_to_arrow_of_remote_dataset_stays_within_cache_limit(
    data: Path, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    # Space for a few of the shards.
    dataset = StreamingDataset(
        remote='s3://bucket/data', local=str(tmp_path), batch_size=4, cache_limit='60kb'
    )
    table = dataset.to_arrow()
    assert table['number'].to_pylist() == list(range(made.SAMPLES))
    assert table['text'].to_pylist() == [made.sample_of(n)['text'] for n in range(made.SAMPLES)]
    stats = dataset.stats()
    # Whole shards, each once, and no single samples.
    assert (stats.fetched_shards, stats.single_samples) == (dataset.num_shards, 0)
    assert stats.cached_bytes <= 60 << 10


def test_to_arrow_ignores_stream_weights(data: Path) -> None:
    stream = Stream(local=str(data), repeat=2)
    dataset = StreamingDataset(streams=[stream], batch_size=4, shuffle=True)
    assert dataset.epoch_size == 2 * made.SAMPLES
    assert dataset.to_arrow(columns=['number'])['number'].to_pylist() == list(range(made.SAMPLES))


def test_to_arrow_with_custom_stream_fetches_needed_shards(data: Path, tmp_path: Path) -> None:
    class Fetched(Stream):
        def _download_file(self, from_basename: str, to_basename: Any = None) -> str:
            return super()._download_file(from_basename, to_basename)

    stream = Fetched(remote=str(data), local=str(tmp_path))
    dataset = StreamingDataset(streams=[stream], batch_size=4)
    assert dataset._fetches_in_python
    assert dataset.to_arrow(50, 150, ['number'])['number'].to_pylist() == list(range(50, 150))
    fetched = [name for name in os.listdir(tmp_path) if name.endswith('.mds')]
    assert 0 < len(fetched) < dataset.num_shards


def test_null_mask_columns_become_arrow_nulls(tmp_path: Path) -> None:
    columns = {
        'a': 'int32',
        'a__is_null': 'uint8',
        'b': 'ndarray:int8:2',
        'b__is_null': 'uint8',
        'c': 'str',
    }
    columns['c__is_null'] = 'uint8'
    with MDSWriter(out=str(tmp_path), columns=columns) as out:
        for n in range(4):
            nothing = np.uint8(n % 2)
            out.write(
                {
                    'a': np.int32(n),
                    'b': np.array([n, n], np.int8),
                    'c': str(n),
                    'a__is_null': nothing,
                    'b__is_null': nothing,
                    # A list with a null inside is not null itself.
                    'c__is_null': np.uint8(2),
                }
            )
    dataset = LocalDataset(str(tmp_path))
    table = dataset.to_arrow()
    assert table.to_pydict() == {
        'a': [0, None, 2, None],
        'b': [[0, 0], None, [2, 2], None],
        'c': ['0', '1', '2', '3'],
    }
    assert table['a'].null_count == 2
    stored = dataset.to_arrow(apply_null_masks=False)
    assert stored['a__is_null'].to_pylist() == [0, 1, 0, 1] and stored['a'].null_count == 0
    both = dataset.to_arrow(columns=['a__is_null', 'a'])
    assert both.to_pydict() == {'a__is_null': [0, 1, 0, 1], 'a': [0, None, 2, None]}


def test_to_pandas_returns_a_data_frame(folder: Path) -> None:
    dataset = LocalDataset(str(folder))
    pd = pytest.importorskip('pandas')
    frame = dataset.to_pandas(5, 9, ['int', 'str', 'typed'])
    assert isinstance(frame, pd.DataFrame)
    assert frame['int'].tolist() == [-2, -1, 0, 1]
    assert frame['str'].tolist() == [COLUMNS['str'][2](n) for n in range(5, 9)]
    assert [row.tolist() for row in frame['typed']] == [[0, 1], [0, 1, 2], [0, 1, 2, 3], [0]]


def test_to_polars_returns_a_data_frame(folder: Path) -> None:
    pl = pytest.importorskip('polars')
    frame = LocalDataset(str(folder)).to_polars(5, 9, ['int', 'str', 'fixed', 'typed', 'bytes'])
    assert isinstance(frame, pl.DataFrame)
    assert frame['int'].to_list() == [-2, -1, 0, 1]
    assert frame['typed'].to_list() == [[0, 1], [0, 1, 2], [0, 1, 2, 3], [0]]
    assert frame['fixed'].dtype == pl.Array(pl.Float32, (2, 3))


def test_json_and_csv_shards_convert_to_arrow(tmp_path: Path) -> None:
    rows = [{'a': n, 'b': n / 4, 'c': f'x{n}'} for n in range(9)]
    for name, writer in (('json', JSONWriter), ('csv', CSVWriter)):
        with writer(
            out=str(tmp_path / name), columns={'a': 'int', 'b': 'float', 'c': 'str'}, size_limit=70
        ) as out:
            for row in rows:
                out.write(row)
        table = LocalDataset(str(tmp_path / name)).to_arrow(2, None)
        assert table.to_pylist() == rows[2:]
        assert table.schema.types == [pa.int64(), pa.float64(), pa.string()]


def test_tar_samples_convert_to_arrow(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / 'a.tar', 'w', format=tarfile.USTAR_FORMAT) as tar:
        for n in range(6):
            fields = {'cls': str(n).encode(), 'txt': f'ä{n}'.encode(), 'bin': b'\xff'}
            if n % 2:
                del fields['txt']
            for name, value in fields.items():
                info = tarfile.TarInfo(f'{n:03}.{name}')
                info.size = len(value)
                tar.addfile(info, io.BytesIO(value))
    for dataset in (
        LocalDataset(str(tmp_path)),
        StreamingDataset(local=str(tmp_path), batch_size=2, decode=True),
    ):
        assert dataset.to_arrow(1, 4).to_pydict() == {
            '__key__': ['001', '002', '003'],
            'bin': [b'\xff'] * 3,
            'cls': [1, 2, 3],
            'txt': [None, 'ä2', None],
        }
    with tarfile.open(tmp_path / 'b.tar', 'w', format=tarfile.USTAR_FORMAT) as tar:
        info = tarfile.TarInfo('009.cls')
        info.size = 1
        tar.addfile(info, io.BytesIO(b'x'))
    with pytest.raises(
        DataError, match='column cls: sample 6 has something else than a whole'
    ) as caught:
        LocalDataset(str(tmp_path)).to_arrow()
    assert (caught.value.object, caught.value.id) == ('cls', 'number-text')


def test_raw_files_convert_to_arrow(tmp_path: Path) -> None:
    for n in range(5):
        (tmp_path / f'{n}.bin').write_bytes(bytes([n]) * n)
    table = FileDataset(local=str(tmp_path), batch_size=2).to_arrow(1)
    assert sorted(table.column_names) == ['data', 'path']
    assert table['data'].to_pylist() == [bytes([n]) * n for n in range(1, 5)]
    assert table['path'].to_pylist() == [f'{n}.bin' for n in range(1, 5)]


def test_missing_stream_columns_become_arrow_nulls(data: Path, tmp_path: Path) -> None:
    with MDSWriter(out=str(tmp_path), columns={'number': 'int', 'other': 'ndarray:int8:2'}) as out:
        out.write({'number': 1000, 'other': np.array([1, 2], np.int8)})
    streams = [Stream(local=str(data)), Stream(local=str(tmp_path))]
    table = StreamingDataset(streams=streams, batch_size=2).to_arrow(made.SAMPLES - 2)
    assert table['number'].to_pylist() == [made.SAMPLES - 2, made.SAMPLES - 1, 1000]
    assert table['other'].to_pylist() == [None, None, [1, 2]]
    vectors = table['vector'].to_pylist()
    assert vectors[2] is None
    assert vectors[1] == made.sample_of(made.SAMPLES - 1)['vector'].tolist()
    assert table['text'].null_count == 1


def test_unsupported_arrow_column_error_names_the_column(tmp_path: Path) -> None:
    with MDSWriter(out=str(tmp_path), columns={'id': 'int', 'a': 'ndarray'}) as out:
        out.write({'id': 0, 'a': np.zeros(3, np.int8)})
        out.write({'id': 1, 'a': np.zeros((3, 1), np.int8)})
        out.write({'id': 2, 'a': np.zeros(3, np.int16)})
    dataset = LocalDataset(str(tmp_path))
    for start, stop, words in [
        (0, 2, 'sample 1 has 2 dimensions of int8, and the column has 1 of int8'),
        (1, 3, 'sample 2 has 1 dimensions of int16, and the column has 2 of int8'),
    ]:
        with pytest.raises(UnsupportedError, match=f'column a: the array of {words}') as caught:
            dataset.to_arrow(start, stop)
        assert (caught.value.object, caught.value.id) == ('a', 'type-unsupported')
    assert dataset.to_arrow(columns=['id'])['id'].to_pylist() == [0, 1, 2]
    assert dataset.to_arrow(2)['a'].type == pa.list_(pa.int16())
    with pytest.raises(UsageError, match='no column `b`, only a, id'):
        dataset.to_arrow(columns=['b'])
    with pytest.raises(ValueError, match='batch_size'):
        dataset.iter_arrow(batch_size=0)


def test_json_with_invalid_utf8_is_an_error(tmp_path: Path) -> None:
    with MDSWriter(out=str(tmp_path), columns={'j': 'json'}) as out:
        out.write({'j': {}})
        out.write({'j': b'"\xff"'})
    with pytest.raises(
        DataError, match='column j: sample 1 has something else than text'
    ) as caught:
        LocalDataset(str(tmp_path)).to_arrow()
    assert caught.value.id == 'sample-utf8'


def test_damaged_shard_is_an_error_in_iter_arrow(tmp_path: Path) -> None:
    with MDSWriter(out=str(tmp_path), columns={'a': 'str'}, size_limit=200) as out:
        for n in range(50):
            out.write({'a': str(n)})
    shard = tmp_path / 'shard.00003.mds'
    shard.write_bytes(shard.read_bytes()[:-3])
    dataset = LocalDataset(str(tmp_path))
    reader = dataset.iter_arrow(batch_size=4)
    assert reader.read_next_batch().num_rows == 4
    with pytest.raises(DataError, match=r'shard\.00003\.mds'):
        reader.read_all()


def test_to_arrow_supports_no_columns_and_no_samples(data: Path, tmp_path: Path) -> None:
    assert LocalDataset(str(data)).to_arrow(3, 10, columns=[]).num_rows == 7
    (tmp_path / 'index.json').write_text('{"version": 2, "shards": []}')
    empty = LocalDataset(str(tmp_path))
    assert empty.columns == () and empty.to_arrow().num_rows == 0
