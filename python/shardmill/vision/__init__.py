"""Datasets of images."""

from __future__ import annotations

from shardmill.vision.ade20k import StreamingADE20K
from shardmill.vision.cifar10 import StreamingCIFAR10
from shardmill.vision.coco import StreamingCOCO
from shardmill.vision.imagenet import StreamingImageNet

__all__ = [
    'StreamingADE20K',
    'StreamingCIFAR10',
    'StreamingCOCO',
    'StreamingImageNet',
]
