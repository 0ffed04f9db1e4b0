"""The Pile, 22 sets of English text."""

from __future__ import annotations

from shardmill.text._tokens import TokenizedDataset

__all__ = ['StreamingPile']


class StreamingPile(TokenizedDataset):
    """Tokenized texts of the Pile. See `TokenizedDataset`."""
