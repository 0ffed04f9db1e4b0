"""JSON lines: samples in one file, offsets in another."""

from __future__ import annotations

from shardmill.base.format.json.reader import JSONReader
from shardmill.base.format.json.writer import JSONWriter

__all__ = ['JSONReader', 'JSONWriter']
