"""Checks of the state of a run and of its cache limit, with errors that programs for ``streaming`` know."""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import Any

from shardmill.base._arguments import refuse_type
from shardmill.errors import UsageError

__all__ = ['check_state', 'in_known_words', 'refuse_low_limit']


def check_state(state: dict[str, Any]) -> dict[str, Any]:
    """A state, if its values can be those of one."""
    if not isinstance(state, Mapping):
        refuse_type('obj', state, 'a StreamingDataset state dict, as `state_dict` returns it')
    least = {'epoch': -1, 'sample_in_epoch': 0, 'num_canonical_nodes': 1, 'shuffle_seed': 0}
    for key in least:
        if key not in state:
            raise UsageError(
                f'The StreamingDataset state dict has no {key!r} and cannot be resumed',
                'state-field',
            )
    checked = dict(state)
    for key in (*least, 'initial_physical_nodes'):
        value: Any = state.get(key)
        if value is None and key in ('num_canonical_nodes', 'initial_physical_nodes'):
            continue
        try:
            number = index(value)
        except TypeError:
            number = None
        if number is None or not least.get(key, 1) <= number < 1 << 63:
            raise UsageError(
                f'The StreamingDataset state dict has {value!r} as {key!r} and cannot be resumed',
                'state-value',
            )
        checked[key] = number
    return checked


def in_known_words(error: UsageError) -> UsageError:
    """An error of the order, beginning as programs for ``streaming`` may look for."""
    known = {
        'canonical nodes': 'The number of samples assigned to a canonical node is 0',
        'its share of a global batch': 'Number of samples for stream is 0',
    }
    for fact, words in known.items():
        if fact in error.message:
            return UsageError(f'{words}: {error.message}', error.id, error.object, error.hint)
    return error


def refuse_low_limit(limit: int, indexes: int, largest: int, cache: int) -> None:
    """Refuses a cache limit that `streaming` or the cache refuses, with the least one that both accept.

    Args:
        limit: The limit.
        indexes: Bytes of all indexes.
        largest: Bytes of the largest shard, raw and compressed.
        cache: The least limit that the cache can be opened with.

    Raises:
        ValueError: It is too low.
    """
    least = max(4 * largest, indexes + 1, cache)
    if limit >= least:
        return
    # The first words of both are what callers look for.
    fact = f'Cache limit ({limit} bytes) is too low'
    if limit <= indexes:
        fact = f'Minimum cache usage ({indexes} bytes of indexes) is not below the cache limit ({limit} bytes)'
    raise UsageError(
        f'{fact}. Increase the `cache_limit` to at least {least} bytes: the indexes and four times the largest '
        f'shard, which has {largest} bytes raw and compressed, have to fit.',
        'config-cache-limit',
        'cache_limit',
    )
