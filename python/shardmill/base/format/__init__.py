"""The formats of shards: their writers, and their readers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from shardmill.base.format.base import FileInfo, Reader
from shardmill.base.format.index import get_index_basename
from shardmill.base.format.json import JSONReader, JSONWriter
from shardmill.base.format.mds import MDSReader, MDSWriter
from shardmill.base.format.xsv import (
    CSVReader,
    CSVWriter,
    TSVReader,
    TSVWriter,
    XSVReader,
    XSVWriter,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    'CSVWriter',
    'FileInfo',
    'JSONWriter',
    'MDSWriter',
    'Reader',
    'TSVWriter',
    'XSVWriter',
    'get_index_basename',
    'reader_from_json',
]

_readers: Mapping[str, type[Reader]] = {
    'csv': CSVReader,
    'json': JSONReader,
    'mds': MDSReader,
    'tsv': TSVReader,
    'xsv': XSVReader,
}


def reader_from_json(dirname: str, split: Optional[str], obj: dict[str, Any]) -> Reader:
    """The shard that an entry of an index describes.

    Args:
        dirname: Where the dataset is.
        split: The directory beneath it that holds the index; ``None`` for none.
        obj: The entry.

    Raises:
        AssertionError: The entry is of another version than 2.
        KeyError: It is of an unknown format.
        TypeError: It has a field too many, or one too few.
    """
    assert obj['version'] == 2, f'shards of version {obj["version"]} are not supported, only of 2'
    return _readers[obj['format']].from_json(dirname, split, obj)
