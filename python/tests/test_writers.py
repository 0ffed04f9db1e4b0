"""Samples in, shards and an index out: what is written, what is refused, what is left behind."""

from __future__ import annotations

import gc
import json
import random
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.writing import (
    MDS,
    TEXT,
    WRITERS,
    Sample,
    columns,
    files,
    index_of,
    plain,
    read,
    samples,
    write,
)

from shardmill import CSVWriter, JSONWriter, MDSWriter, TSVWriter, XSVWriter
from shardmill.base.format import get_index_basename, reader_from_json
from shardmill.base.format.base.writer import JointWriter, SplitWriter
from shardmill.base.format.mds import encodings
from shardmill.base.hashing import get_hash
from shardmill.errors import UsageError

if TYPE_CHECKING:
    pass


@pytest.mark.parametrize('format_', WRITERS)
@pytest.mark.parametrize('limit', [None, 1, 100, '1kb', 1 << 26])
def test_written_samples_round_trip(format_: str, limit: Any, tmp_path: Path) -> None:
    rows = samples(format_, 60)
    index = write(format_, tmp_path, rows, size_limit=limit, hashes=['md5', 'xxh64'])
    names = columns(format_)
    found = [plain(sample, names) for sample in read(tmp_path)]
    assert found == [plain(row, names) for row in rows]
    assert index['version'] == 2
    expected = {get_index_basename()}
    for number, shard in enumerate(index['shards']):
        for key in ('raw_data', 'raw_meta'):
            if key not in shard:
                continue
            info = shard[key]
            data = (tmp_path / info['basename']).read_bytes()
            assert info['bytes'] == len(data)
            hashes = {algo: get_hash(algo, data) for algo in ('md5', 'xxh64')}
            assert info['hashes'] == hashes
            expected.add(info['basename'])
        assert shard['raw_data']['basename'] == f'shard.{number:05}.{format_}'
    assert set(files(tmp_path)) == expected


@pytest.mark.parametrize('format_', WRITERS)
def test_writing_no_samples_writes_only_an_index(format_: str, tmp_path: Path) -> None:
    assert write(format_, tmp_path, []) == {'shards': [], 'version': 2}
    assert files(tmp_path) == {'index.json': b'{"shards": [], "version": 2}'}


@pytest.mark.parametrize('compression', ['br:1', 'bz2', 'gz:3', 'snappy', 'zstd', 'zstd:13'])
@pytest.mark.parametrize('format_', ['mds', 'json', 'tsv'])
def test_compressed_shards_decompress_to_raw_shards(
    format_: str, compression: str, tmp_path: Path
) -> None:
    from shardmill.base.compression import decompress

    rows = samples(format_, 200)
    options = {'size_limit': 4000, 'hashes': ['sha1']}
    write(format_, tmp_path / 'raw', rows, **options)
    index = write(format_, tmp_path / 'zip', rows, compression=compression, **options)
    raw = files(tmp_path / 'raw')
    stored = files(tmp_path / 'zip')
    del raw['index.json'], stored['index.json']
    extension = compression.partition(':')[0]
    assert set(stored) == {f'{name}.{extension}' for name in raw}
    for shard in index['shards']:
        for part in ('data', 'meta') if format_ != 'mds' else ('data',):
            info = shard[f'zip_{part}']
            data = stored[info['basename']]
            assert info['bytes'] == len(data)
            assert info['hashes'] == {'sha1': get_hash('sha1', data)}
            name = shard[f'raw_{part}']['basename']
            # The configuration in the file names the compression, so the rest is compared.
            unpacked = decompress(compression, data)
            assert shard[f'raw_{part}']['bytes'] == len(unpacked)
            end = unpacked.index(b'{') if part == 'meta' or format_ == 'mds' else len(unpacked)
            if part == 'data' and format_ != 'mds':
                assert unpacked[:end] == raw[name]


@pytest.mark.parametrize('format_', WRITERS)
def test_python_and_rust_writers_write_equal_bytes(format_: str, tmp_path: Path) -> None:
    class Plain:
        """Its own way of naming shards takes the writer out of the hands of Rust."""

        def _name_next_shard(self, extension: Any = None) -> Any:
            return super()._name_next_shard(extension)  # type: ignore[misc]

    rows = samples(format_, 300)
    options: dict[str, Any] = {'columns': columns(format_), 'size_limit': 2000, 'hashes': ['md5']}
    if format_ == 'xsv':
        options['separator'] = '<>'
    stock = {
        'mds': MDSWriter, 'json': JSONWriter, 'csv': CSVWriter, 'tsv': TSVWriter, 'xsv': XSVWriter,
    }[format_]  # fmt: skip
    slow: Any = type('Slow', (Plain, stock), {})
    writers = []
    for name, make in (('rust', stock), ('python', slow)):
        with make(out=str(tmp_path / name), **options) as writer:
            for row in rows:
                writer.write(row)
            writers.append(writer)
        assert [writer._core is None for writer in writers] == [False, True][: len(writers)]
    assert files(tmp_path / 'rust') == files(tmp_path / 'python')
    assert writers[0].get_config() == writers[1].get_config()


#: Values that the fast way takes or leaves to Python, by encoding.
VALUES: dict[str, list[Any]] = {
    'bytes': [b'', b'\0\xff', np.bytes_(b'x')],
    'str': ['', '\u00e9\U0001f600', np.str_('a'), b'\xff not text'],
    'int': [0, -1, True, (1 << 63) - 1, -(1 << 63), b'12345678'],
    'int8': [-128, 127, 3.7, -3.7, True, np.int8(5), np.int64(-7), np.float32(2.5), '12', b'x'],
    'uint16': [0, 65_535, np.uint16(9), np.int8(3), np.bool_(True), np.array(7), [5], b'xy'],
    'int64': [-(1 << 63), (1 << 63) - 1, np.int64(-1), np.uint64(1 << 40), 1e15],
    'uint64': [(1 << 64) - 1, np.uint64(1 << 63), np.int32(7), 0.0],
    'float16': [0.0, -0.0, 1 / 3, 6e-8, 65_504.0, 2048, 2049, -7, np.float16(2), np.float64(1e-8)],
    'float32': [1 / 3, 1e-45, 3.4e38, 16_777_217, 1 << 70, np.float32(7), np.int64(3), 'nan', True],
    'float64': [5e-324, float('inf'), float('nan'), 1 << 53, (1 << 53) + 1, np.float64(2), '1.5'],
    'str_int': [0, -(10**40), True, np.int64(3).item()],
    'str_float': [0.1, 1e16, 1e-5, float('nan'), float('-inf'), np.float64(0.1)],
    'str_decimal': [Decimal('1.50'), Decimal('NaN')],
    'json': [None, {'b': 1, 'a': [float('nan')]}, 'x', np.arange(3)],
    'pkl': [None, (1, 2), {3}],
    'ndarray': [
        np.arange(300, dtype=np.int16), np.ones((2, 3), order='F'), np.arange(4, dtype='>i4'),
        np.arange(10)[::3], np.ones((1,) * 32, np.float16), np.array([1, 2], np.longlong),
        b'\x08\x04\x01\x07',
    ],
    'ndarray:uint8': [np.zeros(256, np.uint8), np.zeros((70_000, 1), np.uint8)],
    'ndarray:int32:2,3': [np.arange(6, dtype=np.int32).reshape(2, 3), np.ones((3, 2), np.int32).T],
}  # fmt: skip


@pytest.mark.parametrize('encoding', VALUES)
def test_native_encoder_matches_python_encoder(encoding: str, tmp_path: Path) -> None:
    writer = MDSWriter(columns={'x': encoding, 'a': 'str'}, out=str(tmp_path / 'out'))
    for value in VALUES[encoding]:
        sample = {'x': value, 'a': 'text'}
        writer.write(sample)
        assert writer.new_samples[-1] == writer.encode_sample(sample), repr(value)
    assert writer._core is not None
    writer.finish()


def test_random_numbers_are_encoded_like_numpy(tmp_path: Path) -> None:
    rng = random.Random(1)
    names = {dtype.name: dtype.name for dtype in map(np.dtype, 'bBhHiIlLefd')}
    writer = MDSWriter(columns=names, out=str(tmp_path / 'out'))

    def value(dtype: str) -> Any:
        if dtype.startswith('float'):
            number = rng.uniform(-1, 1) * 10.0 ** rng.randint(-9, 4)
            return rng.choice([number, getattr(np, dtype)(number), int(number)])
        ends = np.iinfo(dtype)
        number = rng.choice([rng.randint(ends.min, ends.max), rng.randint(0, 99)])
        return rng.choice([number, getattr(np, dtype)(number)])

    for _ in range(500):
        sample = {name: value(name) for name in names}
        writer.write(sample)
        assert writer.new_samples[-1] == writer.encode_sample(sample), sample
    writer.finish()


#: Values that no column of the encoding has, and what they raise.
WRONG: list[tuple[str, Any, type[Exception]]] = [
    ('bytes', 'x', AttributeError),
    ('str', 1, AttributeError),
    ('str', None, AttributeError),
    ('str', '\ud800', UnicodeEncodeError),
    ('int', 1.5, AttributeError),
    ('int', np.int64(1), AttributeError),
    ('int', 1 << 63, OverflowError),
    ('int', b'1234567', KeyError),
    ('uint8', None, TypeError),
    ('uint8', 'x', ValueError),
    ('float32', b'12345', KeyError),
    ('float32', [1.0, 2.0], KeyError),
    ('str_int', 1.0, AttributeError),
    ('str_float', 1, AttributeError),
    ('json', {1, 2}, TypeError),
    ('ndarray', ['one', 'two'], ValueError),
    ('ndarray', 'text', AttributeError),
    ('ndarray', np.array(1), ValueError),
    ('ndarray', np.array([]), ValueError),
    ('ndarray', np.array([True]), ValueError),
    ('ndarray:int32', np.array([1]), ValueError),
    ('ndarray:int32:2', np.zeros(3, np.int32), ValueError),
    ('ndarray:int32:2', [1, 2, 3], ValueError),
    ('ndarray:int32:2', [1.5, 2], ValueError),
    ('ndarray:int32:2', [1, 1 << 31], ValueError),
    ('ndarray:int32:2', b'1234567', KeyError),
]


@pytest.mark.parametrize(('encoding', 'value', 'error'), WRONG)
def test_rejected_sample_leaves_shard_unchanged(
    encoding: str, value: Any, error: type[Exception], tmp_path: Path
) -> None:
    with MDSWriter(columns={'a': 'str', 'x': encoding, 'z': 'str'}, out=str(tmp_path)) as writer:
        good = {'a': 'one', 'x': encodings_of(encoding), 'z': 'two'}
        writer.write(good)
        for sample in ({**good, 'x': value}, {'a': 'one', 'x': good['x']}):
            with pytest.raises(KeyError if 'z' not in sample else error):
                writer.write(sample)
        writer.write(good)
    assert index_of(tmp_path)['shards'][0]['samples'] == 2
    assert [sample['z'] for sample in read(tmp_path)] == ['two', 'two']


def encodings_of(encoding: str) -> Any:
    """Some value of an encoding."""
    values: dict[str, Any] = {
        'ndarray:int32': np.ones(3, np.int32),
        'ndarray:int32:2': np.ones(2, np.int32),
        'uint8': 1,
        'float32': 0.5,
    }
    return values.get(encoding) if encoding in values else VALUES[encoding][0]


@pytest.mark.parametrize('value', [-1, 256, 1 << 70])
def test_out_of_range_integers_behave_like_numpy(value: int, tmp_path: Path) -> None:
    writer = MDSWriter(columns={'x': 'uint8'}, out=str(tmp_path))
    try:
        expected = writer.encode_sample({'x': value})
    except OverflowError:
        with pytest.raises(OverflowError):
            writer.write({'x': value})
    else:
        # Before NumPy 2 they wrapped around.
        writer.write({'x': value})
        assert writer.new_samples == [expected]


@pytest.mark.parametrize('format_', ['json', 'csv', 'tsv', 'xsv'])
def test_text_columns_reject_other_types(format_: str, tmp_path: Path) -> None:
    good = {'text': 'a', 'number': 1, 'score': 0.5}
    bad: list[tuple[Sample, type[Exception]]] = [
        ({'text': b'a'}, AttributeError),
        ({'number': 1.0}, AttributeError),
        ({'number': '1'}, AttributeError),
        ({'score': 1}, AttributeError),
    ]
    if format_ != 'json':
        separator = {'csv': ',', 'tsv': '\t', 'xsv': '<>'}[format_]
        bad += [({'text': f'a{separator}b'}, AssertionError), ({'text': '\n'}, AssertionError)]
    with WRITERS[format_](out=str(tmp_path), columns=TEXT) as writer:
        for values, error in bad:
            with pytest.raises(error):
                writer.write({**good, **values})
        with pytest.raises(KeyError):
            writer.write({'text': 'a', 'number': 1})
        for number in (True, -(10**30), 7):
            writer.write({**good, 'number': number})
        writer.write({**good, 'score': np.float64(1e22)})
    expected = [True, -(10**30), 7, 1]
    if format_ != 'json':
        del expected[0]
        lines = (tmp_path / f'shard.00000.{format_}').read_text().splitlines()
        assert lines[1].startswith('True')
        reader = reader_from_json(str(tmp_path), None, index_of(tmp_path)['shards'][0])
        found = [reader[at] for at in range(1, 4)]
    else:
        found = read(tmp_path)
    assert [sample['number'] for sample in found] == expected
    assert found[-1]['score'] == 1e22


def test_json_text_matches_json_module(tmp_path: Path) -> None:
    rows = [
        {'a': text, 'b': number, 'c': score}
        for text, number, score in [
            ('"\\\n\x7f\u00e9\U0001f600', 10**25, float('nan')),
            ('\ud800', True, float('-inf')),
            ('', 0, 1e-7),
        ]
    ]
    kinds = {'c': 'float', 'a': 'str', 'b': 'int'}
    with JSONWriter(columns=kinds, out=str(tmp_path), newline='\r\n') as writer:
        for row in rows:
            writer.write(row)
    expected = ''.join(json.dumps(row, sort_keys=True) + '\r\n' for row in rows)
    assert (tmp_path / 'shard.00000.json').read_bytes() == expected.encode()


def test_columns_are_sorted_by_name(tmp_path: Path) -> None:
    names = {'b': 'int8', 'a': 'int8', 'B': 'int8', '\u00e9': 'int8', 'z': 'int8'}
    with MDSWriter(columns=names, out=str(tmp_path)) as writer:
        writer.write({'z': 5, '\u00e9': 4, 'B': 1, 'a': 2, 'b': 3})
        assert writer.new_samples == [bytes([1, 2, 3, 5, 4])]
        assert writer.column_names == sorted(names)
    assert index_of(tmp_path)['shards'][0]['column_names'] == sorted(names)


def test_dict_subclass_with_missing_hook_is_accepted(tmp_path: Path) -> None:
    class Missing(dict[str, Any]):
        def __missing__(self, name: str) -> str:
            return name

    with MDSWriter(columns={'a': 'str'}, out=str(tmp_path)) as writer:
        writer.write(Missing())
    assert read(tmp_path) == [{'a': 'a'}]


def test_size_limit_is_inclusive_and_only_first_shard_empty(tmp_path: Path) -> None:
    rows = [{'b': bytes(10)}] * 9
    probe = write('mds', tmp_path / 'probe', rows[:3], columns={'b': 'bytes'}, size_limit=999)
    size = probe['shards'][0]['raw_data']['bytes']
    for delta, counts in ((0, [3, 3, 3]), (-1, [2, 2, 2, 2, 1]), (1, [3, 3, 3])):
        folder = tmp_path / str(delta)
        index = write('mds', folder, rows, columns={'b': 'bytes'}, size_limit=size + delta)
        assert [shard['samples'] for shard in index['shards']] == counts
    index = write('mds', tmp_path / 'small', rows[:3], columns={'b': 'bytes'}, size_limit=10)
    assert [shard['samples'] for shard in index['shards']] == [0, 1, 1, 1]


@pytest.mark.parametrize(
    ('options', 'error', 'text'),
    [
        ({'compression': 'zst'}, ValueError, 'zst'),
        ({'hashes': ['sha1', 'md5']}, ValueError, 'sorted'),
        ({'hashes': ['sha0']}, ValueError, 'sha0'),
        ({'size_limit': -1}, ValueError, 'negative'),
        ({'size_limit': 1 << 32}, ValueError, 'less than'),
        ({'size_limit': '4gb'}, ValueError, 'less than'),
        ({'size_limit': '1k'}, ValueError, '1k'),
        ({'worker': 1}, ValueError, 'worker'),
        ({'columns': {'a': 'bool'}}, TypeError, 'bool'),
        ({'columns': {'a': 'int:8'}}, AttributeError, 'int:8'),
    ],
)
def test_invalid_mds_writer_arguments_are_errors(
    options: dict[str, Any], error: type[Exception], text: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=text):
        MDSWriter(**{'columns': MDS, 'out': str(tmp_path), **options})


def test_invalid_text_writer_arguments_are_errors(tmp_path: Path) -> None:
    for make in (JSONWriter, CSVWriter):
        with pytest.raises(AssertionError):
            make(columns={'a': 'bytes'}, out=str(tmp_path))
    with pytest.raises(AssertionError):
        CSVWriter(columns={'a,b': 'str'}, out=str(tmp_path))
    with pytest.raises(ValueError, match='newline'):
        JSONWriter(columns={'a': 'str'}, out=str(tmp_path), newline='x').finish()
    with pytest.raises(TypeError):
        XSVWriter(columns={'a': 'str'}, out=str(tmp_path))  # type: ignore[call-arg]


def test_values_overlapping_a_separator_are_rejected(tmp_path: Path) -> None:
    columns = {'a': 'str', 'b': 'str'}
    out = str(tmp_path)
    with XSVWriter(columns=columns, separator='||', newline='\n\r\n', out=out) as writer:
        for value in ('x|', '|', 'x||y', 'x\n\r'):
            with pytest.raises(AssertionError, match='or its beginning'):
                writer.write({'a': value, 'b': 'y'})
        writer.write({'a': '|x', 'b': '|y'})
    reader = reader_from_json(str(tmp_path), None, index_of(tmp_path)['shards'][0])
    assert reader[0] == {'a': '|x', 'b': '|y'}


def test_writer_exposes_config_and_counters(tmp_path: Path) -> None:
    writer = MDSWriter(columns=MDS, out=str(tmp_path), size_limit='1kb', hashes=['md5'])
    config = {
        'version': 2,
        'format': 'mds',
        'compression': None,
        'hashes': ['md5'],
        'size_limit': 1024,
        'column_names': ['blob', 'number', 'row', 'score', 'text'],
        'column_encodings': ['bytes', 'int64', 'ndarray', 'float32', 'str'],
        'column_sizes': [None, 8, None, 4, None],
    }
    assert writer.get_config() == config
    assert json.loads(writer.config_data) == config
    assert (writer.local, writer.remote, writer.keep_local) == (str(tmp_path), None, False)
    assert writer.extra_bytes_per_sample == 4
    assert writer.extra_bytes_per_shard == 8 + len(writer.config_data)
    assert (writer.new_samples, writer.new_shard_size) == ([], writer.extra_bytes_per_shard)
    for row in samples('mds', 50):
        writer.write(row)
    shards = writer.shards
    assert len(shards) > 2
    open_bytes = sum(len(sample) + 4 for sample in writer.new_samples)
    assert writer.new_shard_size == writer.extra_bytes_per_shard + open_bytes
    assert sum(shard['samples'] for shard in shards) + len(writer.new_samples) == 50
    writer.finish()
    writer.finish()
    assert index_of(tmp_path)['shards'][:-1] == shards
    with pytest.raises(ValueError, match='finished'):
        writer.write(samples('mds', 1)[0])


def test_non_empty_output_folder_needs_exist_ok(tmp_path: Path) -> None:
    rows = samples('mds', 5)
    write('mds', tmp_path, rows)
    before = files(tmp_path)
    with pytest.raises(FileExistsError):
        MDSWriter(columns=MDS, out=str(tmp_path))
    assert files(tmp_path) == before
    (tmp_path / 'other').write_text('x')
    write('mds', tmp_path, rows, exist_ok=True)
    assert files(tmp_path) == before


def test_exception_in_with_block_leaves_no_index(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match='mine'):
        with MDSWriter(columns=MDS, out=str(tmp_path), size_limit=500) as writer:
            for row in samples('mds', 500):
                writer.write(row)
            raise RuntimeError('mine')
    assert all(name.startswith('shard.') for name in files(tmp_path))
    with pytest.raises(ValueError, match='failed before'):
        writer.write(samples('mds', 1)[0])
    writer.finish()
    assert not (tmp_path / 'index.json').exists()


def test_unfinished_writer_leaves_no_index(tmp_path: Path) -> None:
    writer = MDSWriter(columns=MDS, out=str(tmp_path), size_limit=500)
    for row in samples('mds', 500):
        writer.write(row)
    del writer
    gc.collect()
    assert all(name.startswith('shard.') for name in files(tmp_path))


def test_removed_output_folder_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / 'out'
    writer = MDSWriter(columns={'b': 'bytes'}, out=str(folder), size_limit=1 << 20)
    writer.write({'b': b''})
    folder.rmdir()
    with pytest.raises(FileNotFoundError):
        for _ in range(100):
            writer.write({'b': bytes(1 << 20)})
    with pytest.raises(ValueError, match='failed before'):
        writer.write({'b': b''})


# Subclasses and encodings of one's own.


def test_subclass_encode_sample_is_used(tmp_path: Path) -> None:
    class Upper(MDSWriter):
        def encode_sample(self, sample: Sample) -> bytes:
            return super().encode_sample({'a': sample['a'].upper()})

    with Upper(columns={'a': 'str'}, out=str(tmp_path)) as writer:
        writer.write({'a': 'x'})
        with pytest.raises(TypeError, match='Upper'):
            writer.write_batch(object())
        assert writer._core is not None
    assert read(tmp_path) == [{'a': 'X'}]


def test_subclass_format_names_the_shards(tmp_path: Path) -> None:
    class Named(MDSWriter):
        format = 'mine'

    with Named(columns={'a': 'str'}, out=str(tmp_path)) as writer:
        writer.write({'a': 'x'})
    assert set(files(tmp_path)) == {'index.json', 'shard.00000.mine'}


def test_writer_supports_custom_encoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Complex(encodings.Encoding):
        size = 16

        def encode(self, obj: Any) -> bytes:
            return np.complex128(obj).tobytes()

        def decode(self, data: bytes) -> Any:
            return complex(np.frombuffer(data, np.complex128)[0])

    monkeypatch.setitem(encodings._encodings, 'complex128', Complex)
    rows = [{'z': complex(n, -n), 'n': n} for n in range(50)]
    index = write('mds', tmp_path, rows, columns={'z': 'complex128', 'n': 'int'}, size_limit=500)
    assert len(index['shards']) > 2
    assert index['shards'][0]['column_sizes'] == [8, 16]
    assert read(tmp_path) == rows


def test_writer_uses_replaced_stock_encoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Title(encodings.Str):
        def encode(self, obj: str) -> bytes:
            return super().encode(obj.title())

    monkeypatch.setitem(encodings._encodings, 'str', Title)
    write('mds', tmp_path, [{'a': 'abc'}], columns={'a': 'str'})
    assert read(tmp_path) == [{'a': 'Abc'}]


def test_custom_writer_formats_are_written(tmp_path: Path) -> None:
    class Lines(JointWriter):
        format = 'lines'

        def encode_sample(self, sample: Sample) -> bytes:
            line: str = sample['line']
            return line.encode() + b'\n'

        def encode_joint_shard(self) -> bytes:
            return b''.join(self.new_samples)

    with Lines(out=str(tmp_path), size_limit=10, hashes=['md5']) as writer:
        for line in ('one', 'two', 'three', 'four'):
            writer.write({'line': line})
    assert files(tmp_path).keys() == {'index.json', *(f'shard.0000{n}.lines' for n in range(3))}
    assert (tmp_path / 'shard.00000.lines').read_text() == 'one\ntwo\n'
    entry = index_of(tmp_path)['shards'][0]
    assert entry['samples'] == 2
    assert entry['raw_data']['hashes'] == {'md5': get_hash('md5', b'one\ntwo\n')}

    class Pairs(SplitWriter):
        format = 'pairs'
        encode_sample = Lines.encode_sample

        def encode_split_shard(self) -> tuple[bytes, bytes]:
            return b''.join(self.new_samples), b'meta'

    with Pairs(out=str(tmp_path / 'pairs'), compression='gz') as pairs:
        pairs.write({'line': 'one'})
    assert set(files(tmp_path / 'pairs')) == {
        'index.json', 'shard.00000.pairs.gz', 'shard.00000.pairs.meta.gz'
    }  # fmt: skip


# Errors that name the column.


@pytest.mark.parametrize('make', [MDSWriter, JSONWriter, CSVWriter])
@pytest.mark.parametrize('in_python', [False, True])
def test_missing_column_error_names_the_column(make: Any, in_python: bool, tmp_path: Path) -> None:
    class Own(make):  # type: ignore[misc]
        def encode_sample(self, sample: dict[str, Any]) -> bytes:
            encoded: bytes = super().encode_sample(sample)
            return encoded

    writer = (Own if in_python else make)(
        columns={'a': 'int', 'b': 'str'}, out=str(tmp_path / 'out')
    )
    with pytest.raises(KeyError, match=r"no column 'b'; it has 'a', 'c'") as raised:
        writer.write({'a': 1, 'c': 2})
    assert isinstance(raised.value, UsageError)
    assert (raised.value.id, raised.value.object) == ('sample-columns', 'b')
    assert isinstance(raised.value.__cause__, KeyError)
    many = {f'c{number}': 1 for number in range(50)}
    with pytest.raises(KeyError, match=r"it has 'c0', .*'c19' and 30 more"):
        writer.write(many)
    for sample, kind in ((None, 'NoneType'), ([1], 'list'), (5, 'int')):
        with pytest.raises(TypeError, match=f'`sample` must be a dict .* but got: {kind}'):
            writer.write(sample)

    class Lazy(dict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            raise LookupError('the row cannot be read')

    with pytest.raises(LookupError, match='the row cannot be read'):
        writer.write(Lazy(a=1, b='x'))
    writer.write({'a': 1, 'b': 'x'})
    writer.finish()


@pytest.mark.parametrize(
    ('encoding', 'value', 'words'),
    [
        ('int', 'x', r"column 'n': a value of str cannot be stored as 'int'"),
        ('int', 1 << 63, r"column 'n': a value of int cannot be stored as 'int'"),
        ('uint8', 300, r"column 'n': a value of int cannot be stored as 'uint8'"),
        ('ndarray:int32:2', np.zeros(3), r"ndarray \(float64, shape \(3,\)\).*'ndarray:int32:2'"),
        ('ndarray:int32', [1.5], r"list cannot be stored as 'ndarray:int32'.*float64.*int32"),
        ('ndarray:float32', [0.1], r'float32 cannot hold exactly'),
        ('ndarray', [1 << 53, 0.5, (1 << 53) + 1], r'cannot hold exactly'),
        ('ndarray', [[1], [2, 3]], r'different lengths'),
        ('ndarray', {'a': 1}, r'a list of numbers is needed, not dict'),
    ],
)
def test_unsuitable_value_error_names_the_column(
    encoding: str, value: Any, words: str, tmp_path: Path
) -> None:
    with MDSWriter(columns={'n': encoding}, out=str(tmp_path)) as writer:
        for encode in (
            lambda: writer.write({'n': value}),
            lambda: writer.encode_sample({'n': value}),
        ):
            with pytest.raises(ValueError, match=words) as raised:
                encode()
            assert isinstance(raised.value, UsageError)
            assert (raised.value.id, raised.value.object) == ('sample-value', 'n')


def test_lists_and_tensors_become_arrays(tmp_path: Path) -> None:
    torch = pytest.importorskip('torch')
    values: dict[str, list[tuple[Any, Any]]] = {
        'ndarray': [
            ([1, 2], np.array([1, 2])),
            ((1.5, float('nan')), np.array([1.5, float('nan')])),
            ([[1, 2], [3, 4]], np.array([[1, 2], [3, 4]])),
            (torch.tensor([1, 2], dtype=torch.int16), np.array([1, 2], np.int16)),
            (torch.ones(2, 3, requires_grad=True), np.ones((2, 3), np.float32)),
            (torch.arange(6).reshape(2, 3).T, np.arange(6).reshape(2, 3).T),
        ],
        'ndarray:int32': [([1, -2], np.array([1, -2], np.int32)), ([1.0], np.array([1], np.int32))],
        'ndarray:float32:2': [([0.5, 1], np.array([0.5, 1], np.float32))],
        'ndarray:uint8': [([255], np.array([255], np.uint8))],
    }
    for place, (encoding, pairs) in enumerate(values.items()):
        out = tmp_path / str(place)
        with MDSWriter(columns={'n': encoding}, out=str(out)) as writer:
            for given, _ in pairs:
                writer.write({'n': given})
        for found, (_, wanted) in zip(read(out), pairs):
            assert found['n'].dtype == wanted.dtype
            assert np.array_equal(found['n'], wanted, equal_nan=wanted.dtype.kind == 'f')
    with MDSWriter(columns={'n': 'ndarray:float32'}, out=str(tmp_path / 'refused')) as writer:
        for tensor, words in (
            (torch.zeros(2, dtype=torch.bfloat16), r'bfloat16.*\(2,\)'),
            (torch.zeros(2, 3, dtype=torch.float64), r'float64, shape \(2, 3\)'),
        ):
            with pytest.raises(ValueError, match=words):
                writer.write({'n': tensor})
