"""MDS: encoded columns, samples and offsets in one file."""

from __future__ import annotations

from shardmill.base.format.mds.reader import MDSReader
from shardmill.base.format.mds.writer import MDSWriter

__all__ = ['MDSReader', 'MDSWriter']
