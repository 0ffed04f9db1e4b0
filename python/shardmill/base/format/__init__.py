"""The formats of shards, with their writers and readers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from shardmill._lazy import lazy
from shardmill.base.format.index import get_index_basename

if TYPE_CHECKING:
    from shardmill.base.format.base import FileInfo, Reader
    from shardmill.base.format.json import JSONWriter
    from shardmill.base.format.mds import MDSWriter
    from shardmill.base.format.xsv import CSVWriter, TSVWriter, XSVWriter

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

__getattr__, __dir__ = lazy(
    __name__,
    {
        'base': ('FileInfo', 'Reader'),
        'json': ('JSONReader', 'JSONWriter'),
        'mds': ('MDSReader', 'MDSWriter'),
        'xsv': 'CSVReader CSVWriter TSVReader TSVWriter XSVReader XSVWriter'.split(),
    },
)


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
    if obj['format'] not in ('csv', 'json', 'mds', 'tsv', 'xsv'):
        raise KeyError(obj['format'])
    reader: type[Reader] = __getattr__(f'{obj["format"].upper()}Reader')
    return reader.from_json(dirname, split, obj)
