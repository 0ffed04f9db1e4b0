"""Short representations of datasets and streams, without secrets."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Optional

from shardmill.base._arguments import public_location

#: How many columns are named.
_COLUMNS = 20


def representation(of: object, shown: Mapping[str, Any]) -> str:
    """Formats the class of an object and some attributes, without those that are ``None``."""
    parts = (f'{name}={value!r}' for name, value in shown.items() if value is not None)
    return f'{type(of).__name__}({", ".join(parts)})'


def location(stream: object) -> dict[str, Any]:
    """Returns the location of a stream as shown by `representation`."""
    known = vars(stream)
    remote = known.get('remote')
    return {
        'remote': None if remote is None else public_location(remote),
        'local': known.get('local'),
        'split': known.get('split') or None,
    }


def stream_representation(stream: object) -> str:
    """Returns the `repr` of a stream."""
    known = vars(stream)
    shown = location(stream)
    for name in ('proportion', 'repeat', 'choose'):
        shown[name] = known.get(f'_{name}')
    shown['validate_hash'] = known.get('validate_hash')
    shown['keep_zip'] = known.get('keep_zip') or None
    return representation(stream, shown)


def dataset_facts(dataset: object) -> dict[str, Any]:
    """Returns what is known about a dataset, which may be incomplete, because a debugger can show it early.

    Nothing is read from disk. Unknown facts are ``None``.
    """
    known = vars(dataset)
    streams = known.get('streams')
    shown: dict[str, Any] = {'local': known.get('local'), 'split': known.get('split') or None}
    if streams is not None and len(streams) == 1:
        shown = location(streams[0])
    elif hasattr(type(dataset), 'state_dict'):
        # A dataset of streams, even if it has none yet.
        shown = {'streams': len(streams or ())}
    shown['samples'] = known.get('num_samples')
    shown['shards'] = known.get('num_shards')
    shown['columns'] = _columns(known)
    for name in ('epoch_size', 'batch_size', 'shuffle'):
        shown[name] = known.get(name)
    if known.get('shuffle'):
        shown['shuffle_algo'] = known.get('shuffle_algo')
        shown['shuffle_seed'] = known.get('shuffle_seed')
    for name in ('num_canonical_nodes', 'replication', 'cache_limit'):
        shown[name] = known.get(name)
    world, shared = known.get('_unique_rank_world'), known.get('_shared')
    if world is not None and world.num_ranks > 1:
        shown['rank'], shown['world_size'] = world.rank, world.num_ranks
    shown['next_epoch'] = None if shared is None else shared.next_epoch
    return shown


def _columns(known: Mapping[str, Any]) -> Optional[list[str]]:
    """Returns the names of the columns, if the reader of this process is open."""
    reader = known.get('_reader')
    if reader is None or known.get('_process') != os.getpid():
        return None
    from shardmill.schema import Schema

    names = list(Schema.of_shards(reader.schemas()))
    return names if len(names) <= _COLUMNS else [*names[:_COLUMNS], '…']


def dataset_representation(dataset: object) -> str:
    """Returns the `repr` of a dataset."""
    return representation(dataset, dataset_facts(dataset))
