"""JSON shards listed in an index."""

from __future__ import annotations

import json
from typing import Any

from shardmill.base.format.base.reader import SplitReader

__all__ = ['JSONReader']


class JSONReader(SplitReader):
    """A JSON shard, as a sequence of its samples.

    Attributes:
        columns: The encodings of the columns, by name.
        newline: The line ending.
    """

    format = 'json'
    columns: dict[str, str]
    newline: str

    def decode_sample(self, data: bytes) -> dict[str, Any]:
        sample: dict[str, Any] = json.loads(data)
        return sample
