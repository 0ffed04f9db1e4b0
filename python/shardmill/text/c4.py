"""``StreamingC4``: tokenized texts of C4, a cleaned web crawl."""

from __future__ import annotations

from shardmill.text._tokens import TokenizedDataset

__all__ = ['StreamingC4']


class StreamingC4(TokenizedDataset):
    """Tokenized texts of C4. See `TokenizedDataset`."""
