"""ImageNet of 2012: images and their classes."""

from __future__ import annotations

from shardmill.vision.base import StreamingVisionDataset

__all__ = ['StreamingImageNet']


class StreamingImageNet(StreamingVisionDataset):
    """ImageNet of 2012: images and their classes. See `StreamingVisionDataset`."""
