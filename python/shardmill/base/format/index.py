"""The index of a dataset."""

from __future__ import annotations

__all__ = ['PROVENANCE', 'TOMBSTONES', 'get_index_basename']

#: What a conversion has noted about a dataset.
PROVENANCE = 'index.provenance'

#: The list of samples that the table of a dataset no longer has.
TOMBSTONES = 'index.tombstones'


def get_index_basename() -> str:
    """The name of the file that lists the shards of a dataset, in the same directory."""
    return 'index.json'
