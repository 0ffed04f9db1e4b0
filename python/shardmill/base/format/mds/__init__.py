"""MDS, with encoded columns and the offset table in one file."""

from __future__ import annotations

from shardmill.base.format.mds.reader import MDSReader
from shardmill.base.format.mds.writer import MDSWriter

__all__ = ['MDSReader', 'MDSWriter']
