"""The types of values in XSV, CSV and TSV shards."""

from __future__ import annotations

from functools import partial
from typing import Any

from shardmill.base.format.base.text_encodings import Coder, registered_in
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


def _encode(encoding: str, obj: Any) -> bytes:
    return xsv_encode(encoding, obj).encode()


registered = partial(registered_in, _encodings)
_get_coder = partial(Coder, _encode)
