"""Values to bytes and back, one encoding at a time."""

from __future__ import annotations

import math
import pickle
import struct
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmill.base.format.json import encodings as json_encodings
from shardmill.base.format.mds import encodings
from shardmill.base.format.mds.encodings import (
    get_mds_encoded_size,
    get_mds_encodings,
    is_mds_encoding,
    is_mds_encoding_safe,
    mds_decode,
    mds_encode,
)
from shardmill.base.format.xsv import encodings as xsv_encodings

INTEGERS = [f'{sign}int{bits}' for bits in (8, 16, 32, 64) for sign in ('', 'u')]
FLOATS = ['float16', 'float32', 'float64']

#: What the format stores for a value.
STORED = [
    ('bytes', b'\x00\xff', b'\x00\xff'),
    ('str', '\u00e9\U0001f600', b'\xc3\xa9\xf0\x9f\x98\x80'),
    ('int', -1, b'\xff' * 8),
    ('int', True, b'\x01' + bytes(7)),
    ('uint8', 255, b'\xff'),
    ('int16', -2, b'\xfe\xff'),
    ('uint64', 1 << 63, bytes(7) + b'\x80'),
    ('float16', 1.5, b'\x00\x3e'),
    ('float32', 1.5, b'\x00\x00\xc0\x3f'),
    ('float64', -0.0, bytes(7) + b'\x80'),
    ('str_int', -(10**30), b'-1' + b'0' * 30),
    ('str_float', 1e16, b'1e+16'),
    ('str_float', 0.1, b'0.1'),
    ('str_decimal', Decimal('1.50'), b'1.50'),
    ('str_decimal', Decimal('-1E+5'), b'-1E+5'),
    ('json', {'b': [1, None, '\u00e9'], 'a': True}, b'{"b": [1, null, "\\u00e9"], "a": true}'),
]

#: What the format stores for an array.
ARRAYS = [
    ('ndarray', np.array([[1, 2], [3, 4]], np.uint8), '0808020201020304'),
    ('ndarray:uint8', np.array([[1, 2], [3, 4]], np.uint8), '08020201020304'),
    ('ndarray:float32', np.array([1.5], np.float32), '04010000c03f'),
    ('ndarray:uint8:3', np.array([1, 2, 3], np.uint8), '010203'),
    ('ndarray:int16:2,1', np.array([[-1], [2]], np.int16), 'ffff0200'),
]


def same(found: Any, expected: Any) -> bool:
    """Whether two values are of one type and equal, with their bits and NaN equal to itself."""
    if type(found) is not type(expected):
        return False
    if isinstance(expected, np.ndarray):
        form = (expected.dtype, expected.shape, expected.tobytes())
        return form == (found.dtype, found.shape, found.tobytes())
    if isinstance(expected, float):
        return struct.pack('<d', found) == struct.pack('<d', expected)
    return bool(found == expected)


@pytest.mark.parametrize(('encoding', 'value', 'data'), STORED)
def test_values_have_exact_stored_bytes(encoding: str, value: Any, data: bytes) -> None:
    assert mds_encode(encoding, value) == data
    found = mds_decode(encoding, data)
    assert found == value
    size = get_mds_encoded_size(encoding)
    assert size is None or size == len(data)


@pytest.mark.parametrize(('encoding', 'array', 'data'), ARRAYS)
def test_arrays_have_exact_stored_bytes(
    encoding: str, array: np.ndarray[Any, Any], data: str
) -> None:
    assert mds_encode(encoding, array).hex() == data
    found = mds_decode(encoding, bytes.fromhex(data))
    assert same(found, array)
    assert not found.flags.writeable


@pytest.mark.parametrize('shape', [(1,), (255,), (256,), (65_535, 1), (1, 65_536), (2, 3, 4, 5)])
@pytest.mark.parametrize('dtype', INTEGERS + FLOATS)
def test_arrays_round_trip(dtype: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(shape))
    array = rng.integers(0, 100, shape).astype(dtype)
    text = ','.join(map(str, shape))
    lengths = []
    for encoding in ('ndarray', f'ndarray:{dtype}', f'ndarray:{dtype}:{text}'):
        data = mds_encode(encoding, array)
        assert same(mds_decode(encoding, data), array)
        lengths.append(len(data))
    width = 1 if max(shape) < 256 else 2 if max(shape) < 65_536 else 4
    head = 1 + width * len(shape)
    assert lengths == [array.nbytes + head + 1, array.nbytes + head, array.nbytes]
    assert get_mds_encoded_size(f'ndarray:{dtype}:{text}') == array.nbytes


def test_arrays_are_stored_in_row_major_little_endian() -> None:
    array = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    expected = mds_encode('ndarray', array)
    assert mds_encode('ndarray', np.asfortranarray(array)) == expected
    assert mds_encode('ndarray', array.astype('>i4')) == expected
    assert mds_encode('ndarray:int32:2,3,4', array.astype('>i4')) == expected[5:]
    assert mds_encode('ndarray', array[::-1])[5:] == array[::-1].tobytes()


@pytest.mark.parametrize(
    ('encoding', 'array'),
    [
        ('ndarray', np.array(1)),
        ('ndarray', np.array([])),
        ('ndarray', np.zeros((2, 0), np.int8)),
        ('ndarray', np.array([True])),
        ('ndarray', np.array(['a'])),
        ('ndarray', np.array([1j])),
        ('ndarray:int32', np.array([1], np.int64)),
        ('ndarray:int32:2', np.array([1], np.int32)),
        ('ndarray:int32:2', np.array([[1], [2]], np.int32)),
    ],
)
def test_unsupported_arrays_are_errors(encoding: str, array: np.ndarray[Any, Any]) -> None:
    with pytest.raises(ValueError, match=r'(?i)array'):
        mds_encode(encoding, array)


@pytest.mark.parametrize(
    'data', ['', '08', '0808', '080802', '08080201', '0708020201020304', '08080202010203']
)
def test_truncated_array_is_an_error(data: str) -> None:
    with pytest.raises(ValueError, match=r'array|size|reshape|empty'):
        mds_decode('ndarray', bytes.fromhex(data))


@pytest.mark.parametrize('dtype', INTEGERS)
def test_integer_limits_round_trip(dtype: str) -> None:
    ends = np.iinfo(dtype)
    for value in (ends.min, -1 if ends.min else 0, 0, 1, ends.max):
        found = mds_decode(dtype, mds_encode(dtype, value))
        assert type(found) is getattr(np, dtype)
        assert found == value
    assert get_mds_encoded_size(dtype) == np.dtype(dtype).itemsize


@pytest.mark.parametrize('dtype', FLOATS)
@pytest.mark.parametrize('value', [0.0, -0.0, 1 / 3, 65_504.0, 6e-8, math.inf, -math.inf, math.nan])
def test_floats_round_trip_bit_exact(dtype: str, value: float) -> None:
    scalar = getattr(np, dtype)(value)
    found = mds_decode(dtype, mds_encode(dtype, value))
    assert type(found) is type(scalar)
    assert found.tobytes() == scalar.tobytes() == mds_encode(dtype, scalar)


@pytest.mark.parametrize(
    ('encoding', 'value'),
    [
        ('bytes', bytearray(b'x')),
        ('bytes', 'x'),
        ('str', 1),
        ('int', 1.0),
        ('int', np.int64(1)),
        ('str_int', 1.0),
        ('str_float', 1),
        ('str_decimal', 1.5),
        ('pil', 'x'),
        ('jpeg', np.zeros((2, 2))),
        ('png', None),
        ('list[jpeg]', ()),
    ],
)
def test_wrong_value_type_is_an_error(encoding: str, value: Any) -> None:
    with pytest.raises(AttributeError):
        mds_encode(encoding, value)


@pytest.mark.parametrize('value', [1 << 63, -(1 << 63) - 1])
def test_integer_beyond_64_bits_is_an_overflow_error(value: int) -> None:
    with pytest.raises(OverflowError):
        mds_encode('int', value)
    assert mds_decode('str_int', mds_encode('str_int', value)) == value


@pytest.mark.parametrize(
    ('encoding', 'data'),
    [
        ('int', b'1234567'),
        ('str', b'\xff'),
        ('str_int', b'1.5'),
        ('str_float', b'x'),
        ('json', b'{'),
        ('pil', b'\x01\0\0\0'),
        ('jpeg_array', b''),
        ('jpeg_array', bytes(4)),
        ('jpeg_array', b'\x02\0\0\0\x01\0\0\0'),
        ('jpeg_array', b'\x01\0\0\0\x05\0\0\0xxxx'),
        ('list[png]', b'\0\0\0\0'),
        ('list[png]', b'\0\0\0\0\x01\0\0\0\x05\0\0\0xxxx'),
    ],
)
def test_undecodable_bytes_are_an_error(encoding: str, data: bytes) -> None:
    with pytest.raises(ValueError):
        mds_decode(encoding, data)


@pytest.mark.parametrize('encoding', ['jpeg', 'int', 'str', 'ndarray', 'list[png]'])
def test_bytes_are_stored_as_already_encoded(encoding: str) -> None:
    assert mds_encode(encoding, b'as it is') == b'as it is'


def test_json_accepts_arrays_and_rejects_sets() -> None:
    array = np.array([[1, 2], [3, 4]], np.int8)
    assert mds_decode('json', mds_encode('json', array)) == [[1, 2], [3, 4]]
    found = mds_decode('json', mds_encode('json', [math.nan, math.inf]))
    assert math.isnan(found[0])
    assert found[1] == math.inf
    with pytest.raises(TypeError):
        mds_encode('json', {1, 2})


def test_only_pickle_encoding_is_unsafe() -> None:
    value = {'a': (1, 2), 'b': {3}}
    data = mds_encode('pkl', value)
    assert pickle.loads(data) == value == mds_decode('pkl', data)
    assert {name for name in get_mds_encodings() if not is_mds_encoding_safe(name)} == {'pkl'}


def image(mode: str, seed: int = 0) -> Any:
    pillow = pytest.importorskip('PIL.Image')
    rng = np.random.default_rng(seed)
    picture = pillow.fromarray(rng.integers(0, 256, (9, 13, 3), np.uint8))
    return picture.convert(mode)


@pytest.mark.parametrize('mode', ['1', 'L', 'RGB', 'RGBA', 'CMYK', 'I', 'F'])
def test_pil_pixels_round_trip(mode: str) -> None:
    picture = image(mode)
    data = mds_encode('pil', picture)
    found = mds_decode('pil', data)
    assert (found.mode, found.size) == (mode, (13, 9))
    assert found.tobytes() == picture.tobytes()
    assert data[:12] == struct.pack('<3I', 13, 9, len(mode))


def test_bilevel_image_rows_are_padded_to_bytes() -> None:
    pillow = pytest.importorskip('PIL.Image')
    data = mds_encode('pil', pillow.new('1', (9, 2), 1))
    assert data.hex() == '09000000020000000100000031ff80ff80'


@pytest.mark.parametrize(('encoding', 'mode'), [('png', 'RGBA'), ('png', '1'), ('jpeg', 'L')])
def test_png_and_jpeg_images_round_trip(encoding: str, mode: str) -> None:
    picture = image(mode)
    found = mds_decode(encoding, mds_encode(encoding, picture))
    assert (found.format, found.mode, found.size) == (encoding.upper(), mode, picture.size)
    if encoding == 'png':
        assert found.tobytes() == picture.tobytes()


def test_opened_jpeg_is_stored_as_its_original_file(tmp_path: Path) -> None:
    pillow = pytest.importorskip('PIL.Image')
    path = tmp_path / 'a.jpg'
    image('RGB').save(path, quality=11)
    opened = pillow.open(path)
    opened.load()
    assert mds_encode('jpeg', opened) == path.read_bytes()
    assert mds_encode('list[jpeg]', [opened])[12:] == path.read_bytes()
    path.unlink()
    again = mds_decode('jpeg', mds_encode('jpeg', opened))
    assert again.size == (13, 9)


@pytest.mark.parametrize('encoding', ['list[pil]', 'list[jpeg]', 'list[png]'])
def test_image_lists_round_trip(encoding: str) -> None:
    pictures = [image('RGB', seed) for seed in range(3)]
    found = mds_decode(encoding, mds_encode(encoding, pictures))
    assert [each.size for each in found] == [(13, 9)] * 3
    if encoding != 'list[jpeg]':
        assert [each.tobytes() for each in found] == [each.tobytes() for each in pictures]
    assert mds_encode(encoding, []) == bytes(8)
    assert mds_decode(encoding, bytes(8)) == []
    with pytest.raises(AttributeError):
        mds_encode(encoding, [b'bytes'])


@pytest.mark.parametrize('encoding', ['jpeg_array', 'jpegarray'])
def test_jpeg_arrays_round_trip(encoding: str) -> None:
    files = []
    for seed in range(2):
        file = BytesIO()
        image('L', seed).save(file, format='JPEG')
        files.append(file.getvalue())
    data = mds_encode(encoding, files)
    assert data[:12] == struct.pack('<3I', 2, *map(len, files))
    assert data[12:] == b''.join(files) == mds_encode(encoding, tuple(map(bytearray, files)))[12:]
    assert [each.size for each in mds_decode(encoding, data)] == [(13, 9)] * 2
    for wrong in (1, None, [1]):
        with pytest.raises(TypeError):
            mds_encode(encoding, wrong)


def test_encoding_names_are_complete() -> None:
    assert get_mds_encodings() == {
        *INTEGERS, *FLOATS, 'bytes', 'str', 'int', 'ndarray', 'str_int', 'str_float', 'str_decimal',
        'pil', 'jpeg', 'png', 'jpeg_array', 'jpegarray', 'list[pil]', 'list[jpeg]', 'list[png]',
        'pkl', 'json',
    }  # fmt: skip
    assert all(is_mds_encoding(name) for name in get_mds_encodings())
    assert is_mds_encoding('ndarray:float16:1,2,3')
    assert not is_mds_encoding('Int')
    assert not is_mds_encoding('')
    for name, error in [
        ('int:8', AttributeError),
        ('foo:8', KeyError),
        ('ndarray:bool', AssertionError),
        ('ndarray:int8:0', AssertionError),
        ('ndarray:int8:x', ValueError),
    ]:
        with pytest.raises(error):
            is_mds_encoding(name)
    for function in (get_mds_encoded_size, lambda name: mds_encode(name, 1)):
        with pytest.raises(ValueError, match='foo'):
            function('foo')
    with pytest.raises(ValueError, match='foo'):
        mds_decode('foo', b'')


def test_custom_encoding_can_be_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    class Complex(encodings.Encoding):
        size = 16

        def encode(self, obj: Any) -> bytes:
            return np.complex128(obj).tobytes()

        def decode(self, data: bytes) -> Any:
            return np.frombuffer(data, np.complex128)[0]

    monkeypatch.setitem(encodings._encodings, 'complex', Complex)
    assert is_mds_encoding('complex')
    assert get_mds_encoded_size('complex') == 16
    assert mds_decode('complex', mds_encode('complex', 1 + 2j)) == 1 + 2j
    monkeypatch.setitem(encodings._encodings, 'int', Complex)
    assert get_mds_encoded_size('int') == 16
    monkeypatch.undo()
    assert get_mds_encoded_size('int') == 8


def test_json_column_types_are_checked() -> None:
    for encoding, value, other in [('str', 'a', 1), ('int', True, 1.0), ('float', 1.5, 1)]:
        assert json_encodings.is_json_encoding(encoding)
        assert json_encodings.is_json_encoded(encoding, value) is True
        with pytest.raises(AttributeError):
            json_encodings.is_json_encoded(encoding, other)
    assert not json_encodings.is_json_encoding('bytes')
    with pytest.raises(KeyError):
        json_encodings.is_json_encoded('bytes', b'')


def test_xsv_column_values_round_trip() -> None:
    for encoding, value, text, other in [
        ('str', 'a', 'a', 1),
        ('int', -5, '-5', '5'),
        ('float', 1e22, '1e+22', 1),
    ]:
        assert xsv_encodings.is_xsv_encoding(encoding)
        assert xsv_encodings.xsv_encode(encoding, value) == text
        assert same(xsv_encodings.xsv_decode(encoding, text), value)
        with pytest.raises(AttributeError):
            xsv_encodings.xsv_encode(encoding, other)
    assert not xsv_encodings.is_xsv_encoding('bytes')
    with pytest.raises(KeyError):
        xsv_encodings.xsv_decode('bytes', '')
