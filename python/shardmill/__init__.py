"""Writes, inspects and streams sharded datasets for training.

Importing this package loads neither torch nor NumPy: names are loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardmill._alias import install_as_streaming
from shardmill._core import __version__
from shardmill._lazy import lazy

if TYPE_CHECKING:
    from shardmill._commands import Column, convert, inspect, plan, verify
    from shardmill._viewer import Viewer, view
    from shardmill.base import (
        CSVWriter,
        JSONWriter,
        LocalDataset,
        MDSWriter,
        Stream,
        StreamingDataLoader,
        StreamingDataset,
        TSVWriter,
        XSVWriter,
    )
    from shardmill.base._preview import Preview
    from shardmill.base._training_batches import BatchIterator
    from shardmill.base._typing import Sample
    from shardmill.caching import CacheClient, CachedFile
    from shardmill.files import FileDataset, FileStream
    from shardmill.mixtures import Mixture
    from shardmill.packing import Packing, lengths
    from shardmill.tables import TableStream
    from shardmill.videos import Clip, VideoIndex, index_videos
    from shardmill.views import View, select
    from shardmill.windows import Window, find_episodes

__all__ = [
    'BatchIterator',
    'CSVWriter',
    'CacheClient',
    'CachedFile',
    'Clip',
    'Column',
    'FileDataset',
    'FileStream',
    'JSONWriter',
    'LocalDataset',
    'MDSWriter',
    'Mixture',
    'Packing',
    'Preview',
    'Sample',
    'Stream',
    'StreamingDataLoader',
    'StreamingDataset',
    'TSVWriter',
    'TableStream',
    'VideoIndex',
    'View',
    'Viewer',
    'Window',
    'XSVWriter',
    '__version__',
    'convert',
    'find_episodes',
    'index_videos',
    'inspect',
    'install_as_streaming',
    'lengths',
    'plan',
    'select',
    'verify',
    'view',
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        '_commands': ('Column', 'convert', 'inspect', 'plan', 'verify'),
        '_viewer': ('Viewer', 'view'),
        'base': (
            'CSVWriter JSONWriter LocalDataset MDSWriter Stream StreamingDataLoader StreamingDataset '
            'TSVWriter XSVWriter'
        ).split(),
        'base._preview': ('Preview',),
        'base._training_batches': ('BatchIterator',),
        'base._typing': ('Sample',),
        'caching': ('CacheClient', 'CachedFile'),
        'files': ('FileDataset', 'FileStream'),
        'mixtures': ('Mixture',),
        'packing': ('Packing', 'lengths'),
        'tables': ('TableStream',),
        'videos': ('Clip', 'VideoIndex', 'index_videos'),
        'views': ('View', 'select'),
        'windows': ('Window', 'find_episodes'),
    },
    (
        'base caching errors files lineage metrics mixtures multimodal packing parts reports schema stats '
        'tables text videos views vision windows'
    ).split(),
)
