"""Samples in, shards and an index out: what is written, what is refused, what is left behind."""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import sys
import threading
import time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

import numpy as np
import pytest

import shardmill.base.storage.upload as uploads
from shardmill import CSVWriter, JSONWriter, MDSWriter, TSVWriter, XSVWriter, _core
from shardmill.base.format import get_index_basename, reader_from_json
from shardmill.base.format.base.writer import JointWriter, SplitWriter
from shardmill.base.format.mds import encodings
from shardmill.base.hashing import get_hash

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Sample = dict[str, Any]

TEXT = {'text': 'str', 'number': 'int', 'score': 'float'}
WRITERS: Mapping[str, Callable[..., Any]] = {
    'mds': lambda **options: MDSWriter(**options),
    'json': lambda **options: JSONWriter(**options),
    'csv': lambda **options: CSVWriter(**options),
    'tsv': lambda **options: TSVWriter(**options),
    'xsv': lambda **options: XSVWriter(separator='<>', **options),
}
MDS = {'text': 'str', 'number': 'int64', 'score': 'float32', 'blob': 'bytes', 'row': 'ndarray'}


def samples(format_: str, count: int, seed: int = 0) -> list[Sample]:
    rng = random.Random(seed)
    made: list[Sample] = []
    for number in range(count):
        sample: Sample = {
            'number': number - 3,
            'text': 'w\u00f6rd ' * rng.randint(0, 9),
            'score': rng.random(),
            'unused': object(),
        }
        if format_ == 'mds':
            sample['blob'] = rng.randbytes(rng.randint(0, 99))
            sample['row'] = np.arange(rng.randint(1, 9), dtype=np.int16)
        made.append(sample)
    return made


def columns(format_: str) -> dict[str, str]:
    return MDS if format_ == 'mds' else TEXT


def write(format_: str, out: Path, rows: list[Sample], **options: Any) -> dict[str, Any]:
    """Writes samples; gives the index."""
    options.setdefault('columns', columns(format_))
    with WRITERS[format_](out=str(out), **options) as writer:
        for row in rows:
            writer.write(row)
    return index_of(out)


def index_of(folder: Path) -> dict[str, Any]:
    index: dict[str, Any] = json.loads((folder / get_index_basename()).read_text())
    return index


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def read(folder: Path) -> list[Sample]:
    """The samples of raw shards, by the readers in Python."""
    found: list[Sample] = []
    for entry in index_of(folder)['shards']:
        found += reader_from_json(str(folder), None, entry)
    return found


def plain(sample: Mapping[str, Any], names: Mapping[str, str]) -> Sample:
    """A sample as a reader gives it, in a form that can be compared."""
    found = {}
    for name, encoding in names.items():
        value = sample[name]
        if encoding == 'float32':
            value = float(np.float32(value))
        found[name] = value.tolist() if isinstance(value, np.ndarray) else value
    return found


@pytest.mark.parametrize('format_', WRITERS)
@pytest.mark.parametrize('limit', [None, 1, 100, '1kb', 1 << 26])
def test_samples_come_back(format_: str, limit: Any, tmp_path: Path) -> None:
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
def test_nothing_is_an_index_alone(format_: str, tmp_path: Path) -> None:
    assert write(format_, tmp_path, []) == {'shards': [], 'version': 2}
    assert files(tmp_path) == {'index.json': b'{"shards": [], "version": 2}'}


@pytest.mark.parametrize('compression', ['br:1', 'bz2', 'gz:3', 'snappy', 'zstd', 'zstd:13'])
@pytest.mark.parametrize('format_', ['mds', 'json', 'tsv'])
def test_compressed_files_hold_the_raw_ones(format_: str, compression: str, tmp_path: Path) -> None:
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
def test_python_and_rust_write_the_same(format_: str, tmp_path: Path) -> None:
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
        np.arange(10)[::3], np.ones((1,) * 32, np.float16), np.longlong([1, 2]),
        b'\x08\x04\x01\x07',
    ],
    'ndarray:uint8': [np.zeros(256, np.uint8), np.zeros((70_000, 1), np.uint8)],
    'ndarray:int32:2,3': [np.arange(6, dtype=np.int32).reshape(2, 3), np.ones((3, 2), np.int32).T],
}  # fmt: skip


@pytest.mark.parametrize('encoding', VALUES)
def test_the_fast_way_encodes_as_python_does(encoding: str, tmp_path: Path) -> None:
    writer = MDSWriter(columns={'x': encoding, 'a': 'str'}, out=str(tmp_path / 'out'))
    for value in VALUES[encoding]:
        sample = {'x': value, 'a': 'text'}
        writer.write(sample)
        assert writer.new_samples[-1] == writer.encode_sample(sample), repr(value)
    assert writer._core is not None
    writer.finish()


def test_random_numbers_are_encoded_as_numpy_does(tmp_path: Path) -> None:
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
    ('ndarray', [1, 2], AttributeError),
    ('ndarray', np.array(1), ValueError),
    ('ndarray', np.array([]), ValueError),
    ('ndarray', np.array([True]), ValueError),
    ('ndarray:int32', np.array([1]), ValueError),
    ('ndarray:int32:2', np.zeros(3, np.int32), ValueError),
    ('ndarray:int32:2', b'1234567', KeyError),
]


@pytest.mark.parametrize(('encoding', 'value', 'error'), WRONG)
def test_a_sample_that_is_refused_leaves_no_trace(
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
def test_integers_out_of_range_are_left_to_numpy(value: int, tmp_path: Path) -> None:
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
def test_text_columns_refuse_other_types(format_: str, tmp_path: Path) -> None:
    good = {'text': 'a', 'number': 1, 'score': 0.5}
    bad = [
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


def test_json_text_is_that_of_the_standard_library(tmp_path: Path) -> None:
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


def test_the_order_of_columns_is_that_of_their_names(tmp_path: Path) -> None:
    names = {'b': 'int8', 'a': 'int8', 'B': 'int8', '\u00e9': 'int8', 'z': 'int8'}
    with MDSWriter(columns=names, out=str(tmp_path)) as writer:
        writer.write({'z': 5, '\u00e9': 4, 'B': 1, 'a': 2, 'b': 3})
        assert writer.new_samples == [bytes([1, 2, 3, 5, 4])]
        assert writer.column_names == sorted(names)
    assert index_of(tmp_path)['shards'][0]['column_names'] == sorted(names)


def test_samples_may_be_any_mapping(tmp_path: Path) -> None:
    class Missing(dict[str, Any]):
        def __missing__(self, name: str) -> str:
            return name

    with MDSWriter(columns={'a': 'str'}, out=str(tmp_path)) as writer:
        writer.write(Missing())
    assert read(tmp_path) == [{'a': 'a'}]


def test_a_shard_may_be_as_large_as_the_limit_and_only_the_first_empty(tmp_path: Path) -> None:
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
        ({'columns': {'a': 'int:8'}}, AttributeError, 'from_str'),
    ],
)
def test_arguments(
    options: dict[str, Any], error: type[Exception], text: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=text):
        MDSWriter(**{'columns': MDS, 'out': str(tmp_path), **options})


def test_arguments_of_the_text_formats(tmp_path: Path) -> None:
    for make in (JSONWriter, CSVWriter):
        with pytest.raises(AssertionError):
            make(columns={'a': 'bytes'}, out=str(tmp_path))
    with pytest.raises(AssertionError):
        CSVWriter(columns={'a,b': 'str'}, out=str(tmp_path))
    with pytest.raises(ValueError, match='newline'):
        JSONWriter(columns={'a': 'str'}, out=str(tmp_path), newline='x').finish()
    with pytest.raises(TypeError):
        XSVWriter(columns={'a': 'str'}, out=str(tmp_path))  # type: ignore[call-arg]


def test_attributes(tmp_path: Path) -> None:
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


def test_a_folder_with_something_in_it(tmp_path: Path) -> None:
    rows = samples('mds', 5)
    write('mds', tmp_path, rows)
    before = files(tmp_path)
    with pytest.raises(FileExistsError):
        MDSWriter(columns=MDS, out=str(tmp_path))
    assert files(tmp_path) == before
    (tmp_path / 'other').write_text('x')
    write('mds', tmp_path, rows, exist_ok=True)
    assert files(tmp_path) == before


def test_an_exception_in_the_block_leaves_no_index(tmp_path: Path) -> None:
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


def test_a_writer_that_is_forgotten_leaves_no_index(tmp_path: Path) -> None:
    writer = MDSWriter(columns=MDS, out=str(tmp_path), size_limit=500)
    for row in samples('mds', 500):
        writer.write(row)
    del writer
    gc.collect()
    assert all(name.startswith('shard.') for name in files(tmp_path))


def test_a_folder_that_vanishes(tmp_path: Path) -> None:
    folder = tmp_path / 'out'
    writer = MDSWriter(columns={'b': 'bytes'}, out=str(folder), size_limit=1 << 20)
    writer.write({'b': b''})
    folder.rmdir()
    with pytest.raises(FileNotFoundError):
        for _ in range(100):
            writer.write({'b': bytes(1 << 20)})
    with pytest.raises(ValueError, match='failed before'):
        writer.write({'b': b''})


# Uploads.


class Recorder(uploads.CloudUploader):
    """Copies nothing; remembers names, and when each upload began and ended."""

    events: list[tuple[str, str]]
    fail: str = ''

    def upload_file(self, filename: str) -> None:
        self.events.append(('begin', filename))
        time.sleep(random.Random(filename).uniform(0, 0.02))
        assert os.path.exists(os.path.join(self.local, filename))
        if filename == self.fail:
            raise RuntimeError(f'no way to {filename}')
        self.events.append(('end', filename))
        if not self.keep_local:
            os.remove(os.path.join(self.local, filename))


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Recorder]]:
    def get(*args: Any) -> Recorder:
        return Recorder(*args)

    monkeypatch.setattr(uploads.CloudUploader, 'get', get)
    Recorder.events = []
    Recorder.fail = ''
    yield Recorder
    Recorder.events = []


@pytest.mark.parametrize('keep_local', [False, True])
@pytest.mark.parametrize('format_', WRITERS)
def test_files_arrive_at_the_remote_place(format_: str, keep_local: bool, tmp_path: Path) -> None:
    rows = samples(format_, 100)
    options = {'columns': columns(format_), 'size_limit': 1000}
    write(format_, tmp_path / 'expected', rows, **options)
    local, remote = tmp_path / 'local', tmp_path / 'remote'
    with WRITERS[format_](
        out=(str(local), str(remote)), keep_local=keep_local, **options
    ) as writer:
        for row in rows:
            writer.write(row)
    assert files(remote) == files(tmp_path / 'expected')
    assert local.exists() == keep_local
    if keep_local:
        assert files(local) == files(remote)


@pytest.mark.parametrize('in_python', [False, True])
def test_the_index_is_uploaded_when_all_shards_are(
    in_python: bool, recorder: type[Recorder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if in_python:
        monkeypatch.setattr(MDSWriter, '_columns', lambda self: None)
    with MDSWriter(
        columns=MDS, out=(str(tmp_path), 's3://bucket/x'), size_limit=500, max_workers=4
    ) as writer:
        for row in samples('mds', 100):
            writer.write(row)
    ended = [name for what, name in recorder.events if what == 'end']
    assert recorder.events[-2:] == [('begin', 'index.json'), ('end', 'index.json')]
    assert sorted(ended[:-1]) == [f'shard.{n:05}.mds' for n in range(len(ended) - 1)]
    assert len(ended) > 10
    assert not tmp_path.exists()


@pytest.mark.parametrize('in_python', [False, True])
@pytest.mark.parametrize('at_the_end', [False, True])
def test_an_upload_that_fails_ends_the_writing(
    at_the_end: bool,
    in_python: bool,
    recorder: type[Recorder],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if in_python:
        monkeypatch.setattr(MDSWriter, '_columns', lambda self: None)
    recorder.fail = 'shard.00001.mds'
    writer = MDSWriter(columns={'b': 'bytes'}, out=(str(tmp_path), 's3://bucket/x'), size_limit=500)
    sample = {'b': bytes(490)}
    with pytest.raises(RuntimeError, match='no way'):
        # A chunk of samples is looked at when it is full.
        for _ in range(20 if at_the_end else 1_000_000):
            writer.write(sample)
        writer.finish()
    assert writer.event.is_set()
    assert ('begin', 'index.json') not in recorder.events
    assert not tmp_path.exists()
    with pytest.raises(RuntimeError, match='no way'):
        writer.write(sample)


def test_an_index_that_cannot_be_uploaded(recorder: type[Recorder], tmp_path: Path) -> None:
    recorder.fail = 'index.json'
    with pytest.raises(RuntimeError, match='no way to index'):
        with MDSWriter(columns=MDS, out=(str(tmp_path), 's3://bucket/x')) as writer:
            writer.write(samples('mds', 1)[0])


def test_an_exception_in_the_block_uploads_no_index(
    recorder: type[Recorder], tmp_path: Path
) -> None:
    with pytest.raises(KeyError):
        with MDSWriter(columns=MDS, out=(str(tmp_path), 's3://b/x'), size_limit=500) as writer:
            for row in samples('mds', 100):
                writer.write(row)
            writer.write({})
    assert ('begin', 'index.json') not in recorder.events
    assert not tmp_path.exists()


# Arrow.


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
def test_arrow_is_written_as_samples_are(
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
def test_arrow_is_written_as_text(format_: str, tmp_path: Path) -> None:
    rows = samples('mds', 20)
    for row in rows:
        row['score'] = float(np.float32(row['score']))
    write(format_, tmp_path / 'samples', rows)
    with WRITERS[format_](columns=TEXT, out=str(tmp_path / 'arrow')) as writer:
        writer.write_batch(arrow_table(rows))
    assert files(tmp_path / 'arrow') == files(tmp_path / 'samples')


def test_arrow_that_does_not_fit(tmp_path: Path) -> None:
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


def test_an_arrow_stream_that_fails(tmp_path: Path) -> None:
    pa = pytest.importorskip('pyarrow')
    schema = pa.schema({'a': pa.int32()})

    def batches() -> Iterator[Any]:
        yield pa.record_batch({'a': pa.array([1], pa.int32())})
        raise OSError('broken pipe')

    with MDSWriter(columns={'a': 'int32'}, out=str(tmp_path)) as writer:
        with pytest.raises(ValueError, match='broken pipe'):
            writer.write_batch(pa.RecordBatchReader.from_batches(schema, batches()))


# Subclasses and encodings of one's own.


def test_samples_encoded_by_a_subclass(tmp_path: Path) -> None:
    class Upper(MDSWriter):
        def encode_sample(self, sample: Sample) -> bytes:
            return super().encode_sample({'a': sample['a'].upper()})

    with Upper(columns={'a': 'str'}, out=str(tmp_path)) as writer:
        writer.write({'a': 'x'})
        with pytest.raises(TypeError, match='Upper'):
            writer.write_batch(object())
        assert writer._core is not None
    assert read(tmp_path) == [{'a': 'X'}]


def test_an_encoding_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_stock_encoding_that_was_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Title(encodings.Str):
        def encode(self, obj: str) -> bytes:
            return super().encode(obj.title())

    monkeypatch.setitem(encodings._encodings, 'str', Title)
    write('mds', tmp_path, [{'a': 'abc'}], columns={'a': 'str'})
    assert read(tmp_path) == [{'a': 'Abc'}]


def test_a_format_of_ones_own(tmp_path: Path) -> None:
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


# Threads, processes, signals.


def test_threads_that_write_at_once(tmp_path: Path) -> None:
    with MDSWriter(
        columns={'n': 'int', 'json': 'json'}, out=str(tmp_path), size_limit=20_000
    ) as writer:

        def run(start: int) -> None:
            for n in range(start, start + 2000):
                writer.write({'n': n, 'json': {'n': n}})

        threads = [threading.Thread(target=run, args=(2000 * k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = read(tmp_path)
    assert sorted(sample['n'] for sample in found) == list(range(8000))
    assert all(sample['json'] == {'n': sample['n']} for sample in found)


def test_an_encoder_that_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Loop(encodings.Encoding):
        def encode(self, obj: Any) -> bytes:
            writer.write({'a': obj})
            return b''

        def decode(self, data: bytes) -> Any:
            return data

    writer = _core.SampleWriter(
        str(tmp_path),
        {
            'format': 'mds',
            'columns': [('a', 'pkl', Loop(), False)],
            'newline': '\n',
            'separator': None,
            'compression': None,
            'hashes': [],
            'size_limit': None,
            'jobs': None,
            'durable': False,
        },
    )
    with pytest.raises(RuntimeError, match='in use'):
        writer.write({'a': 1})
    writer.push(b'\0\0\0\0')
    writer.finish()
    assert index_of(tmp_path)['shards'][0]['samples'] == 1


@pytest.mark.skipif(not hasattr(os, 'fork'), reason='needs fork')
def test_a_forked_child_neither_hangs_nor_writes(tmp_path: Path) -> None:
    writer = MDSWriter(columns={'b': 'bytes'}, out=str(tmp_path), size_limit=1 << 16)
    for _ in range(200):
        writer.write({'b': bytes(1 << 15)})
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            writer.finish()
        except RuntimeError as error:
            status = 0 if 'forked' in str(error) else 2
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    writer.finish()
    assert len(read(tmp_path)) == 200


@pytest.mark.skipif(sys.platform == 'win32', reason='needs setitimer')
def test_a_signal_is_heard_while_shards_are_finished(tmp_path: Path) -> None:
    class AlarmError(Exception):
        pass

    def raise_now(*_: Any) -> None:
        raise AlarmError

    noise = random.Random(0).randbytes(1 << 22)
    before = signal.signal(signal.SIGALRM, raise_now)
    try:
        with pytest.raises(AlarmError):
            with MDSWriter(columns={'b': 'bytes'}, out=str(tmp_path), compression='br') as writer:
                for _ in range(12):
                    writer.write({'b': noise})
                signal.setitimer(signal.ITIMER_REAL, 0.3)
                started = time.monotonic()
                writer.finish()
        # 50 MB take brotli a minute.
        assert time.monotonic() - started < 15
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not (tmp_path / 'index.json').exists()


# Shards as readers in Python see them.


def test_what_a_shard_takes_on_the_disk(tmp_path: Path) -> None:
    rows = samples('json', 30)
    index = write('json', tmp_path, rows, compression='zstd', size_limit=500)
    shard = reader_from_json(str(tmp_path), None, index['shards'][0])
    entry = index['shards'][0]
    raw = entry['raw_data']['bytes'] + entry['raw_meta']['bytes']
    zipped = entry['zip_data']['bytes'] + entry['zip_meta']['bytes']
    assert (shard.get_raw_size(), shard.get_zip_size()) == (raw, zipped)
    assert shard.get_max_size() == raw + zipped
    assert (shard.get_persistent_size(True), shard.get_persistent_size(False)) == (
        raw + zipped,
        raw,
    )

    def listing() -> set[str]:
        return {str(path) for path in tmp_path.iterdir()}

    assert shard.set_up_local(listing(), True) == zipped
    (tmp_path / entry['raw_data']['basename']).write_bytes(bytes(entry['raw_data']['bytes']))
    # One of two raw files is none.
    assert shard.set_up_local(listing(), False) == zipped
    for part in ('raw_data', 'raw_meta'):
        (tmp_path / entry[part]['basename']).write_bytes(bytes(entry[part]['bytes']))
    assert shard.set_up_local(listing(), True) == raw + zipped
    assert shard.set_up_local(listing(), False) == raw
    assert entry['zip_data']['basename'] not in files(tmp_path)
    assert shard.evict() == raw
    assert shard.set_up_local(listing(), False) == 0
    with pytest.raises(FileNotFoundError):
        shard[0]


def test_entries_that_are_no_shards(tmp_path: Path) -> None:
    entry = write('mds', tmp_path, samples('mds', 3))['shards'][0]
    shard = reader_from_json(str(tmp_path), None, entry)
    shard.validate(False)
    assert len(shard) == shard.size == 3
    with pytest.raises(IndexError):
        shard[3]
    for change, error in [
        ({'version': 1}, AssertionError),
        ({'format': 'lance'}, KeyError),
        ({'more': 1}, TypeError),
    ]:
        with pytest.raises(error):
            reader_from_json(str(tmp_path), None, {**entry, **change})
    unsafe = reader_from_json(str(tmp_path), None, {**entry, 'column_encodings': ['pkl'] * 5})
    unsafe.validate(True)
    with pytest.raises(ValueError, match='unsafe'):
        unsafe.validate(False)
    data = tmp_path / entry['raw_data']['basename']
    data.write_bytes(data.read_bytes()[:-1])
    with pytest.raises(IndexError):
        shard[2]
