"""The types of values in XSV, CSV and TSV shards."""

from __future__ import annotations

from typing import Any

from shardmill.base.format.base.text_encodings import Encoding as Encoding
from shardmill.base.format.base.text_encodings import Float as Float
from shardmill.base.format.base.text_encodings import Int as Int
from shardmill.base.format.base.text_encodings import Str as Str
from shardmill.base.format.base.text_encodings import stock as _stock

__all__ = ['is_xsv_encoding', 'xsv_decode', 'xsv_encode']


_encodings: dict[str, type[Encoding]] = dict(_stock)


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


def registered(name: str) -> Any:
    """Returns the class that the program registered for an encoding; ``None`` if it registered none."""
    found = _encodings.get(name)
    return None if found is _stock.get(name) else found


class _Coder:
    """Encodes one value of a column as UTF-8 text."""

    def __init__(self, encoding: str) -> None:
        self.encoding = encoding

    def encode(self, obj: Any) -> bytes:
        return xsv_encode(self.encoding, obj).encode()


_get_coder = _Coder
