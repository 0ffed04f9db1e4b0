"""JSON shards listed in an index."""

from __future__ import annotations

import json
from typing import Any, Optional, Union

from shardmill.base.format.base.reader import FileInfo, SplitReader

__all__ = ['JSONReader']


class JSONReader(SplitReader):
    """A JSON shard, as a sequence of its samples.

    Args:
        columns: The encodings of the columns, by name.
        newline: The line ending.
    """

    format = 'json'

    def __init__(
        self,
        dirname: str,
        split: Optional[str],
        columns: dict[str, str],
        compression: Optional[str],
        hashes: list[str],
        newline: str,
        raw_data: FileInfo,
        raw_meta: FileInfo,
        samples: int,
        size_limit: Optional[Union[int, str]],
        zip_data: Optional[FileInfo],
        zip_meta: Optional[FileInfo],
    ) -> None:
        super().__init__(
            dirname,
            split,
            compression,
            hashes,
            raw_data,
            raw_meta,
            samples,
            size_limit,
            zip_data,
            zip_meta,
        )
        self.columns = columns
        self.newline = newline

    def decode_sample(self, data: bytes) -> dict[str, Any]:
        sample: dict[str, Any] = json.loads(data)
        return sample
