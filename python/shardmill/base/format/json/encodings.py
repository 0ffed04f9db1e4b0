"""The types of values in JSON shards."""

from __future__ import annotations

import json
from typing import Any, ClassVar

__all__ = ['is_json_encoded', 'is_json_encoding']


class Encoding:
    """A type of values in JSON."""

    _type: ClassVar[type]

    @classmethod
    def is_encoded(cls, obj: Any) -> bool:
        """Returns ``True`` for a value of the type.

        Raises:
            AttributeError: The value is of another type.
        """
        return cls._validate(obj, cls._type)

    @staticmethod
    def _validate(data: Any, expected_type: Any) -> bool:
        if not isinstance(data, expected_type):
            raise AttributeError(f'a value of {expected_type} is needed, not one of {type(data)}')
        return True


class Str(Encoding):
    """Text."""

    _type = str


class Int(Encoding):
    """An integer; booleans are accepted."""

    _type = int


class Float(Encoding):
    """A float."""

    _type = float


_encodings: dict[str, type[Encoding]] = {'str': Str, 'int': Int, 'float': Float}

#: The classes that have an implementation in Rust.
_stock = dict(_encodings)


def is_json_encoded(encoding: str, value: Any) -> bool:
    """Returns ``True`` for a value of the encoding.

    Raises:
        AttributeError: The value is of another type.
        KeyError: The encoding is unknown.
    """
    return _encodings[encoding].is_encoded(value)


def is_json_encoding(encoding: str) -> bool:
    """Returns whether the encoding exists."""
    return encoding in _encodings


class _Coder:
    """Encodes one value of a column as JSON."""

    def __init__(self, encoding: str) -> None:
        self.encoding = encoding

    def encode(self, obj: Any) -> bytes:
        assert is_json_encoded(self.encoding, obj)
        return json.dumps(obj).encode()


_get_coder = _Coder
