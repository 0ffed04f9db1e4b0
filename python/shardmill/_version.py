"""The version of shardmill, where programs for `streaming` look for it."""

from __future__ import annotations

from shardmill._core import __version__

__all__ = ['__version__']
