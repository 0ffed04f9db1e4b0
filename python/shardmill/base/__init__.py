"""Datasets, streams, loaders and writers, and the modules they are built from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardmill._lazy import lazy

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

__getattr__, __dir__ = lazy(
    __name__,
    {
        'dataloader': ('StreamingDataLoader',),
        'dataset': ('StreamingDataset',),
        'format': ('CSVWriter', 'JSONWriter', 'MDSWriter', 'TSVWriter', 'XSVWriter'),
        'local': ('LocalDataset',),
        'stream': ('Stream',),
    },
    (
        'array batching compression constant converters dataloader dataset distributed format hashing local partition '
        'registry_utils sampling shared shuffle spanner storage stream util world'
    ).split(),
)
