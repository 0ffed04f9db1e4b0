"""Writes, inspects and streams sharded datasets for training.

Importing this package loads neither torch nor NumPy: names are loaded on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from shardmill._alias import install_as_streaming
from shardmill._core import __version__

if TYPE_CHECKING:
    from shardmill._commands import Column, convert, inspect, plan, verify
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

__all__ = [
    'BatchIterator',
    'CSVWriter',
    'CacheClient',
    'CachedFile',
    'Column',
    'FileDataset',
    'FileStream',
    'JSONWriter',
    'LocalDataset',
    'MDSWriter',
    'Preview',
    'Sample',
    'Stream',
    'StreamingDataLoader',
    'StreamingDataset',
    'TSVWriter',
    'XSVWriter',
    '__version__',
    'convert',
    'inspect',
    'install_as_streaming',
    'plan',
    'verify',
]

_HOMES = {
    'BatchIterator': 'shardmill.base._training_batches',
    'CSVWriter': 'shardmill.base.format',
    'CacheClient': 'shardmill.caching',
    'CachedFile': 'shardmill.caching',
    'Column': 'shardmill._commands',
    'FileDataset': 'shardmill.files',
    'FileStream': 'shardmill.files',
    'JSONWriter': 'shardmill.base.format',
    'LocalDataset': 'shardmill.base.local',
    'MDSWriter': 'shardmill.base.format',
    'Preview': 'shardmill.base._preview',
    'Sample': 'shardmill.base._typing',
    'Stream': 'shardmill.base.stream',
    'StreamingDataLoader': 'shardmill.base.dataloader',
    'StreamingDataset': 'shardmill.base.dataset',
    'TSVWriter': 'shardmill.base.format',
    'XSVWriter': 'shardmill.base.format',
    'convert': 'shardmill._commands',
    'inspect': 'shardmill._commands',
    'plan': 'shardmill._commands',
    'verify': 'shardmill._commands',
}
_MODULES = frozenset(
    [
        'base',
        'caching',
        'errors',
        'files',
        'lineage',
        'metrics',
        'multimodal',
        'parts',
        'reports',
        'schema',
        'stats',
        'text',
        'vision',
    ]
)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(f'{__name__}.{name}')
    else:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
