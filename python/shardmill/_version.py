"""The version of shardmill, at the place where `streaming` has its own."""

from __future__ import annotations

from shardmill._core import __version__

__all__ = ['__version__']
