"""Compressions by name and by class."""

from __future__ import annotations

import bz2
import gzip
import random
from typing import Any

import pytest

from shardmill.base import compression
from shardmill.base.compression import (
    Brotli,
    Bzip2,
    Gzip,
    LevelledCompression,
    Snappy,
    Zstandard,
    compress,
    decompress,
    get_compression_extension,
    get_compressions,
    is_compression,
)

DATA = [b'', b'a', b'ab' * 5000, random.Random(1).randbytes(70_000)]
LEVELS: list[tuple[type[LevelledCompression], str, int, list[int]]] = [
    (Brotli, 'br', 11, list(range(12))),
    (Bzip2, 'bz2', 9, list(range(1, 10))),
    (Gzip, 'gz', 9, list(range(10))),
    (Zstandard, 'zstd', 3, list(range(1, 23))),
]


def test_compression_names_are_complete() -> None:
    names = {'snappy'}
    for cls, extension, _, levels in LEVELS:
        family = {extension, *(f'{extension}:{level}' for level in levels)}
        assert {name for name, _ in cls.each()} == family
        names |= family
    assert get_compressions() == names
    assert len(names) == 58
    get_compressions().clear()
    assert get_compressions() == names


@pytest.mark.parametrize('name', ['', 'zstd:0', 'zstd:23', 'gz:10', 'bz2:0', 'snappy:1', 'ZSTD'])
def test_unknown_compression_name_is_an_error(name: str) -> None:
    assert not is_compression(name)
    for call in (compress, decompress):
        with pytest.raises(ValueError, match='is not a supported compression algorithm'):
            call(name, b'')
    with pytest.raises(ValueError, match='is not a supported compression algorithm'):
        get_compression_extension(name)


@pytest.mark.parametrize('name', sorted(get_compressions()))
def test_compression_round_trips(name: str) -> None:
    assert is_compression(name)
    assert get_compression_extension(name) == name.partition(':')[0]
    for data in DATA:
        assert decompress(name, compress(name, data)) == data
    # Level 0 of gzip stores.
    assert (len(compress(name, DATA[2])) < 5000) == (name != 'gz:0')


@pytest.mark.parametrize(('cls', 'extension', 'default', 'levels'), LEVELS)
def test_compression_classes_support_levels(
    cls: type[LevelledCompression], extension: str, default: int, levels: list[int]
) -> None:
    assert (cls.extension, cls.levels) == (extension, levels)
    assert cls().level == default
    assert cls().compress(DATA[2]) == compress(extension, DATA[2])
    for level in levels:
        one = cls(level)
        assert one.level == level
        assert one.compress(DATA[2]) == compress(f'{extension}:{level}', DATA[2])
        assert one.decompress(compress(extension, DATA[2])) == DATA[2]
    for wrong in (levels[0] - 1, levels[-1] + 1, None):
        with pytest.raises(ValueError, match='is not a level'):
            cls(wrong)


def test_compression_none_returns_data_unchanged() -> None:
    assert not is_compression(None)
    assert compress(None, b'raw') == b'raw'
    assert decompress(None, b'raw') == b'raw'


def test_compression_is_compatible_with_standard_tools() -> None:
    for data in DATA:
        assert gzip.decompress(compress('gz:5', data)) == data
        assert bz2.decompress(compress('bz2:5', data)) == data
        assert decompress('gz', gzip.compress(data)) == data
        assert decompress('bz2', bz2.compress(data)) == data
    assert compress('br:1', b'hello') == b'\x0b\x02\x80hello\x03'
    assert Snappy().compress(b'hello') == b'\x05\x10hello'


@pytest.mark.parametrize('name', ['br', 'bz2', 'gz', 'snappy', 'zstd'])
def test_damaged_compressed_data_is_an_error(name: str) -> None:
    whole = compress(name, DATA[3])
    for damaged in (whole[:-1], whole + b'more', b'\xff' * 20):
        with pytest.raises(ValueError, match=name):
            decompress(name, damaged)


@pytest.mark.parametrize('name', ['br', 'bz2', 'gz', 'snappy', 'zstd'])
def test_compression_accepts_only_bytes_like_data(name: str) -> None:
    for data in (bytearray(b'abc'), memoryview(b'abc')):
        assert decompress(name, compress(name, data)) == b'abc'
    wrong: list[Any] = ['text', 1.5, 100, None, ['a']]
    for value in wrong:
        with pytest.raises(TypeError):
            compress(name, value)
        with pytest.raises(TypeError):
            decompress(name, value)


def test_public_compression_names_exist() -> None:
    assert all(hasattr(compression, name) for name in compression.__all__)
