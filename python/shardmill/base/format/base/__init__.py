"""Base classes of the formats."""

from __future__ import annotations

from shardmill.base.format.base.reader import FileInfo, Reader

__all__ = ['FileInfo', 'Reader']
