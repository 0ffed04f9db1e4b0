"""The formats of shards, with their writers and readers."""

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
    """Creates the shard that an index entry describes.

    Args:
        dirname: The folder of the dataset.
        split: The subfolder that holds the index; ``None`` for none.
        obj: The entry.

    Raises:
        AssertionError: The version of the entry is not 2.
        KeyError: The format is unknown.
        TypeError: A field is missing, or the entry has an unknown field.
    """
    assert obj['version'] == 2, f'shards of version {obj["version"]} are not supported, only of 2'
    return _readers[obj['format']].from_json(dirname, split, obj)
