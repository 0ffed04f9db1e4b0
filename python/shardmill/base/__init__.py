"""Datasets, streams, loaders and writers, and the modules they are built from."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shardmill.base.dataloader import StreamingDataLoader
    from shardmill.base.dataset import StreamingDataset
    from shardmill.base.format import CSVWriter, JSONWriter, MDSWriter, TSVWriter, XSVWriter
    from shardmill.base.local import LocalDataset
    from shardmill.base.stream import Stream

__all__ = [
    'CSVWriter',
    'JSONWriter',
    'LocalDataset',
    'MDSWriter',
    'Stream',
    'StreamingDataLoader',
    'StreamingDataset',
    'TSVWriter',
    'XSVWriter',
]

_HOMES = {
    'CSVWriter': 'format',
    'JSONWriter': 'format',
    'LocalDataset': 'local',
    'MDSWriter': 'format',
    'Stream': 'stream',
    'StreamingDataLoader': 'dataloader',
    'StreamingDataset': 'dataset',
    'TSVWriter': 'format',
    'XSVWriter': 'format',
}
_MODULES = frozenset(
    [
        'array',
        'batching',
        'compression',
        'constant',
        'converters',
        'dataloader',
        'dataset',
        'distributed',
        'format',
        'hashing',
        'local',
        'partition',
        'registry_utils',
        'sampling',
        'shared',
        'shuffle',
        'spanner',
        'storage',
        'stream',
        'util',
        'world',
    ]
)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(f'{__name__}.{_HOMES[name]}'), name)
    elif name in _MODULES:
        value = importlib.import_module(f'{__name__}.{name}')
    else:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
