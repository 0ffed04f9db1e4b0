"""XSV, CSV and TSV shards listed in an index."""

from __future__ import annotations

from typing import Any, Optional, Union

from shardmill.base.format.base.reader import FileInfo, SplitReader
from shardmill.base.format.xsv.encodings import xsv_decode

__all__ = ['CSVReader', 'TSVReader', 'XSVReader']


class XSVReader(SplitReader):
    """An XSV shard, as a sequence of its samples.

    Args:
        column_encodings: The encoding of each column.
        column_names: The name of each column.
        newline: The line ending.
        separator: The text between two values.
    """

    format = 'xsv'

    def __init__(
        self,
        dirname: str,
        split: Optional[str],
        column_encodings: list[str],
        column_names: list[str],
        compression: Optional[str],
        hashes: list[str],
        newline: str,
        raw_data: FileInfo,
        raw_meta: FileInfo,
        samples: int,
        separator: str,
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
        self.column_encodings = column_encodings
        self.column_names = column_names
        self.newline = newline
        self.separator = separator

    def decode_sample(self, data: bytes) -> dict[str, Any]:
        line = data.decode()
        values = line[: len(line) - len(self.newline)].split(self.separator)
        columns = zip(self.column_names, self.column_encodings, values)
        return {name: xsv_decode(encoding, value) for name, encoding, value in columns}


class _FixedReader(XSVReader):
    """A shard of a format with a fixed separator."""

    separator: str

    def __init__(
        self,
        dirname: str,
        split: Optional[str],
        column_encodings: list[str],
        column_names: list[str],
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
            column_encodings,
            column_names,
            compression,
            hashes,
            newline,
            raw_data,
            raw_meta,
            samples,
            self.separator,
            size_limit,
            zip_data,
            zip_meta,
        )


class CSVReader(_FixedReader):
    """A CSV shard, as a sequence of its samples: an XSV shard with commas."""

    format = 'csv'
    separator = ','


class TSVReader(_FixedReader):
    """A TSV shard, as a sequence of its samples: an XSV shard with tabs."""

    format = 'tsv'
    separator = '\t'
