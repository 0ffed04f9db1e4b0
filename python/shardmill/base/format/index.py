"""The index of a dataset."""

from __future__ import annotations

__all__ = ['PROVENANCE', 'TOMBSTONES', 'get_index_basename']

#: The file with information about the conversion that wrote a dataset.
PROVENANCE = 'index.provenance'

#: The file that lists deleted samples.
TOMBSTONES = 'index.tombstones'


def get_index_basename() -> str:
    """Returns the name of the index file, which is in the folder of the shards."""
    return 'index.json'
