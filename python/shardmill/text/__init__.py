"""Datasets of text."""

from __future__ import annotations

from shardmill.text.c4 import StreamingC4
from shardmill.text.enwiki import StreamingEnWiki
from shardmill.text.pile import StreamingPile

__all__ = [
    'StreamingC4',
    'StreamingEnWiki',
    'StreamingPile',
]
