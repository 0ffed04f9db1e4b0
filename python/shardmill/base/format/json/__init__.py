"""JSON lines, with samples in one file and the offset table in another."""

from __future__ import annotations

from shardmill.base.format.json.reader import JSONReader
from shardmill.base.format.json.writer import JSONWriter

__all__ = ['JSONReader', 'JSONWriter']
