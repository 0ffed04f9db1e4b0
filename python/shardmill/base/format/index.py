"""The index of a data set."""

from __future__ import annotations

__all__ = ['get_index_basename']


def get_index_basename() -> str:
    """The name of the file that lists the shards of a data set, in the same directory."""
    return 'index.json'
