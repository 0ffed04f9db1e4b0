"""The types of values in JSON shards."""

from __future__ import annotations

import json
from typing import Any

from shardmill.base.format.base.text_encodings import Encoding as Encoding
from shardmill.base.format.base.text_encodings import Float as Float
from shardmill.base.format.base.text_encodings import Int as Int
from shardmill.base.format.base.text_encodings import Str as Str
from shardmill.base.format.base.text_encodings import stock as _stock

__all__ = ['is_json_encoded', 'is_json_encoding']


_encodings: dict[str, type[Encoding]] = dict(_stock)


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


def registered(name: str) -> Any:
    """Returns the class that the program registered for an encoding; ``None`` if it registered none."""
    found = _encodings.get(name)
    return None if found is _stock.get(name) else found


class _Coder:
    """Encodes one value of a column as JSON."""

    def __init__(self, encoding: str) -> None:
        self.encoding = encoding

    def encode(self, obj: Any) -> bytes:
        assert is_json_encoded(self.encoding, obj)
        return json.dumps(obj).encode()


_get_coder = _Coder
