"""Decodes samples of JSON and separated values."""

from __future__ import annotations

import json
from typing import Any, Optional


def decode_line(layout: tuple[str, list[str], list[str], Optional[str], str], line: bytes) -> Any:
    """Decodes a line of a shard of JSON or separated values to the values of its columns by name.

    The layout is the format, the names of the columns, their encodings, the separator, and the newline.
    """
    kind, names, encodings, separator, newline = layout
    text = line.decode()
    if text.endswith(newline):
        text = text[: -len(newline)]
    if kind == 'json':
        return json.loads(text)
    from shardmill.base.format.xsv.encodings import xsv_decode

    parts = text.split(separator)
    return {
        name: xsv_decode(encoding, part) for name, encoding, part in zip(names, encodings, parts)
    }
