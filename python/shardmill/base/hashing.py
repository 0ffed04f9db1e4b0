"""Hashes of files by their names in an index."""

from __future__ import annotations

from typing import Union

from shardmill import _core
from shardmill.errors import UsageError

__all__ = ['get_hash', 'get_hashes', 'is_hash']

_NAMES = frozenset(_core.hash_names())


def get_hashes() -> set[str]:
    """Returns the names of all hashes."""
    return set(_NAMES)


def is_hash(algo: str) -> bool:
    """Returns whether a hash of this name exists."""
    return algo in _NAMES


def get_hash(algo: str, data: Union[bytes, bytearray, memoryview]) -> str:
    """Returns the hash of the data as lower-case hexadecimal digits.

    Raises:
        ValueError: The hash is unknown.
    """
    if not is_hash(algo):
        hint = f'use one of {", ".join(sorted(_NAMES))}'
        raise UsageError(f'{algo!r} is not a supported hash', 'hash-unknown', None, hint)
    return _core.hash_hex(algo, data if isinstance(data, bytes) else memoryview(data).tobytes())
