"""Datasets of videos with captions."""

from __future__ import annotations

from shardmill.multimodal.webvid import (
    StreamingInsideWebVid,
    StreamingOutsideDTWebVid,
    StreamingOutsideGIWebVid,
)

__all__ = [
    'StreamingInsideWebVid',
    'StreamingOutsideDTWebVid',
    'StreamingOutsideGIWebVid',
]
