"""The types of values in JSON shards."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from shardmill.base.format.base.text_encodings import Coder, registered_in
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


def _encode(encoding: str, obj: Any) -> bytes:
    assert is_json_encoded(encoding, obj)
    return json.dumps(obj).encode()


registered = partial(registered_in, _encodings)
_get_coder = partial(Coder, _encode)
