"""Hashes by name."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from shardmill.base.hashing import get_hash, get_hashes, is_hash

BUILTIN = [
    *('blake2b', 'blake2s', 'md5', 'sha1', 'sha224', 'sha256', 'sha384', 'sha512'),
    *('sha3_224', 'sha3_256', 'sha3_384', 'sha3_512'),
]
# Of b'hello', by xxhsum 0.8.
XXH = {
    'xxh32': 'fb0077f9',
    'xxh64': '26c7827d889f6da3',
    'xxh3_64': '9555e8555c62dcfd',
    'xxh3_128': 'b5e9c1ad071b3e7fc779cfaa5e523818',
    'xxh128': 'b5e9c1ad071b3e7fc779cfaa5e523818',
}


def test_hash_names_are_complete() -> None:
    assert get_hashes() == {*BUILTIN, *XXH}
    get_hashes().clear()
    assert len(get_hashes()) == 17


@pytest.mark.parametrize('name', BUILTIN)
def test_hashes_match_hashlib(name: str) -> None:
    assert is_hash(name) is True
    for data in (b'', b'hello', bytes(range(256)) * 5000):
        assert get_hash(name, data) == hashlib.new(name, data).hexdigest()


@pytest.mark.parametrize('name', sorted(XXH))
def test_xxhash_values_match_known_digests(name: str) -> None:
    assert is_hash(name) is True
    assert get_hash(name, b'hello') == XXH[name]


@pytest.mark.parametrize('name', ['', 'sha3', 'SHA1', 'crc32', 'shake_128'])
def test_unknown_hash_name_is_an_error(name: str) -> None:
    assert is_hash(name) is False
    with pytest.raises(ValueError, match='not a supported hash'):
        get_hash(name, b'')


def test_hashes_accept_only_bytes_like_data() -> None:
    assert get_hash('md5', bytearray(b'hello')) == get_hash('md5', memoryview(b'hello'))
    wrong: list[Any] = ['hello', 5, None]
    for value in wrong:
        with pytest.raises(TypeError):
            get_hash('md5', value)
