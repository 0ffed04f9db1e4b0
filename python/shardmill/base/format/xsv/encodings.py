"""The types of values in XSV, CSV and TSV shards."""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = ['is_xsv_encoding', 'xsv_decode', 'xsv_encode']


class Encoding:
    """A type of values that are stored as text."""

    _type: ClassVar[type]

    @classmethod
    def encode(cls, obj: Any) -> str:
        """Encodes a value as text.

        Raises:
            AttributeError: The value is of another type.
        """
        cls._validate(obj, cls._type)
        return obj if cls._type is str else str(obj)

    @classmethod
    def decode(cls, obj: str) -> Any:
        """Decodes a value from text.

        Raises:
            ValueError: The text is not a valid value.
        """
        return cls._type(obj)

    @staticmethod
    def _validate(data: Any, expected_type: Any) -> None:
        if not isinstance(data, expected_type):
            raise AttributeError(f'a value of {expected_type} is needed, not one of {type(data)}')


class Str(Encoding):
    """Text, stored unchanged."""

    _type = str


class Int(Encoding):
    """An integer in decimal digits."""

    _type = int


class Float(Encoding):
    """A float as the shortest text that restores it exactly."""

    _type = float


_encodings: dict[str, type[Encoding]] = {'str': Str, 'int': Int, 'float': Float}

#: The classes that have an implementation in Rust.
_stock = dict(_encodings)


def is_xsv_encoding(encoding: str) -> bool:
    """Returns whether the encoding exists."""
    return encoding in _encodings


def xsv_encode(encoding: str, value: Any) -> str:
    """Encodes a value as text.

    Raises:
        AttributeError: The value is of another type.
        KeyError: The encoding is unknown.
    """
    return _encodings[encoding].encode(value)


def xsv_decode(encoding: str, value: str) -> Any:
    """Decodes a value from text.

    Raises:
        KeyError: The encoding is unknown.
        ValueError: The text is not a valid value.
    """
    return _encodings[encoding].decode(value)


class _Coder:
    """Encodes one value of a column as UTF-8 text."""

    def __init__(self, encoding: str) -> None:
        self.encoding = encoding

    def encode(self, obj: Any) -> bytes:
        return xsv_encode(self.encoding, obj).encode()


_get_coder = _Coder
