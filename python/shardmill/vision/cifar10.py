"""CIFAR-10: images and their classes."""

from __future__ import annotations

from shardmill.vision.base import StreamingVisionDataset

__all__ = ['StreamingCIFAR10']


class StreamingCIFAR10(StreamingVisionDataset):
    """CIFAR-10: images and their classes. See `StreamingVisionDataset`."""
