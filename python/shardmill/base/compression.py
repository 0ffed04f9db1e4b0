"""Compressions of shards by their names in an index, such as ``zstd:7`` and ``snappy``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar, Optional, Union

from shardmill import _core
from shardmill.errors import UsageError

__all__ = [
    'Brotli',
    'Bzip2',
    'Compression',
    'Gzip',
    'LevelledCompression',
    'Snappy',
    'Zstandard',
    'compress',
    'decompress',
    'get_compression_extension',
    'get_compressions',
    'is_compression',
]

_Data = Union[bytes, bytearray, memoryview]

_NAMES = frozenset(_core.compression_names())


def _bytes(data: _Data) -> bytes:
    return data if isinstance(data, bytes) else memoryview(data).tobytes()


class Compression(ABC):
    """A compression, with its level if it has levels.

    Attributes:
        extension: The file extension, which is also the name without a level.
    """

    extension: str = ''

    @classmethod
    def each(cls) -> Iterator[tuple[str, Compression]]:
        """Yields every name of this compression with an instance."""
        yield cls.extension, cls()

    @abstractmethod
    def compress(self, data: _Data) -> bytes:
        """Compresses data."""

    @abstractmethod
    def decompress(self, data: _Data) -> bytes:
        """Decompresses data.

        Raises:
            ValueError: The data is damaged, or would be too large.
        """


class _Named(Compression):
    """A compression implemented by the extension module."""

    _name: str

    def compress(self, data: _Data) -> bytes:
        return _core.compress(self._name, _bytes(data))

    def decompress(self, data: _Data) -> bytes:
        return _core.decompress(self._name, _bytes(data))


class LevelledCompression(_Named):
    """A compression with levels.

    Attributes:
        levels: The available levels.
        level: The level of this instance.
    """

    levels: ClassVar[list[int]] = []

    def __init__(self, level: Optional[int] = None) -> None:
        if level not in self.levels:
            raise UsageError(
                f'{level!r} is not a level of {self.extension}',
                'compression-unknown',
                None,
                f'use one from {self.levels[0]} to {self.levels[-1]}' if self.levels else None,
            )
        self.level = level
        self._name = f'{self.extension}:{level}'

    @classmethod
    def each(cls) -> Iterator[tuple[str, Compression]]:
        yield cls.extension, cls()
        for level in cls.levels:
            yield f'{cls.extension}:{level}', cls(level)


class Brotli(LevelledCompression):
    """Brotli, levels 0 to 11."""

    extension = 'br'
    levels: ClassVar[list[int]] = list(range(12))

    def __init__(self, level: int = 11) -> None:
        super().__init__(level)


class Bzip2(LevelledCompression):
    """bzip2, levels 1 to 9."""

    extension = 'bz2'
    levels: ClassVar[list[int]] = list(range(1, 10))

    def __init__(self, level: int = 9) -> None:
        super().__init__(level)


class Gzip(LevelledCompression):
    """gzip, levels 0 to 9. The time in its header is 0, so that equal data gives equal output."""

    extension = 'gz'
    levels: ClassVar[list[int]] = list(range(10))

    def __init__(self, level: int = 9) -> None:
        super().__init__(level)


class Snappy(_Named):
    """Snappy, a raw block without framing. It has no levels."""

    extension = 'snappy'
    _name = 'snappy'


class Zstandard(LevelledCompression):
    """Zstandard, levels 1 to 22."""

    extension = 'zstd'
    levels: ClassVar[list[int]] = list(range(1, 23))

    def __init__(self, level: int = 3) -> None:
        super().__init__(level)


def get_compressions() -> set[str]:
    """Returns the names of all compressions, with and without levels."""
    return set(_NAMES)


def is_compression(algo: Optional[str]) -> bool:
    """Returns whether a compression of this name exists."""
    return algo in _NAMES


def _known(algo: str) -> str:
    if not is_compression(algo):
        # COMPAT: programs match these words.
        text = f'{algo!r} is not a supported compression algorithm'
        raise UsageError(text, 'compression-unknown', None, 'use br, bz2, gz, snappy or zstd')
    return algo


def get_compression_extension(algo: str) -> str:
    """Returns the file extension of a compression: its name without the level.

    Raises:
        ValueError: The compression is unknown.
    """
    return _known(algo).partition(':')[0]


def compress(algo: Optional[str], data: _Data) -> bytes:
    """Compresses data; with None, returns it unchanged.

    Raises:
        ValueError: The compression is unknown.
    """
    return _bytes(data) if algo is None else _core.compress(_known(algo), _bytes(data))


def decompress(algo: Optional[str], data: _Data) -> bytes:
    """Decompresses data; with None, returns it unchanged.

    Raises:
        ValueError: The compression is unknown, or the data is damaged or would be too large.
    """
    return _bytes(data) if algo is None else _core.decompress(_known(algo), _bytes(data))
