"""XSV, CSV and TSV shards listed in an index."""

from __future__ import annotations

from typing import Any

from shardmill.base._lines import decode_line
from shardmill.base.format.base.reader import SplitReader

__all__ = ['CSVReader', 'TSVReader', 'XSVReader']


class XSVReader(SplitReader):
    """An XSV shard, as a sequence of its samples.

    Attributes:
        column_encodings: The encoding of each column.
        column_names: The name of each column.
        newline: The line ending.
        separator: The text between two values.
    """

    format = 'xsv'
    column_encodings: list[str]
    column_names: list[str]
    newline: str
    separator: str

    def decode_sample(self, data: bytes) -> dict[str, Any]:
        layout = self.column_names, self.column_encodings, self.separator, self.newline
        sample: dict[str, Any] = decode_line(('xsv', *layout), data)
        return sample


class CSVReader(XSVReader):
    """A CSV shard, as a sequence of its samples: an XSV shard with commas."""

    format = 'csv'
    separator = ','


class TSVReader(XSVReader):
    """A TSV shard, as a sequence of its samples: an XSV shard with tabs."""

    format = 'tsv'
    separator = '\t'
