"""What the arguments of a data set have to be, whatever it holds."""

from __future__ import annotations

from numbers import Real
from typing import Any, Optional, Union

from shardmill.base.util import number_abbrev_to_int
from shardmill.errors import UsageError

__all__ = ['check_choice', 'check_numbers', 'check_pair', 'check_worker', 'epoch_samples']

_CHOICES = {
    'batching_method': ('random', 'stratified', 'per_stream', 'device_per_stream'),
    'sampling_method': ('balanced', 'fixed'),
}
#: The least that each number may be. Zero canonical nodes stand for the default.
_LEAST = {
    'batch_size': 1,
    'cache_limit': 0,
    'download_retry': 0,
    'download_timeout': 0,
    'local_world_size': 0,
    'num_canonical_nodes': 0,
    'num_workers': 1,
    'predownload': 0,
    'rank': 0,
    'sampling_granularity': 1,
    'shuffle_block_size': 0,
    'shuffle_seed': 0,
    'threads': 0,
    'worker': 0,
    'world_size': 1,
}
_MOST = (1 << 63) - 1


def check_numbers(**given: Any) -> None:
    """Refuses numbers that no data set can do with. What is no number is left to others.

    Raises:
        ValueError: One is negative, or zero where it must not be, or beyond 64 bits.
    """
    for name, value in given.items():
        least = _LEAST[name]
        is_number = isinstance(value, Real)
        if is_number and not least <= value <= _MOST:
            kind = 'positive' if least else 'non-negative'
            raise UsageError(
                f'`{name}` must be a {kind} integer of 64 bits, but got: {value}.',
                'config-value',
                name,
            )


def check_choice(**given: Any) -> None:
    """Refuses words that are none of those that there are.

    Raises:
        ValueError: One is another.
    """
    for name, value in given.items():
        if value not in _CHOICES[name]:
            words = name.replace('_', ' ')
            raise UsageError(
                f'Invalid {words}: {value}. Must be one of {_CHOICES[name]}.', 'config-value', name
            )


def check_pair(**given: Any) -> None:
    """Refuses one of several arguments without the others.

    Raises:
        ValueError: Some are given and some are not.
    """
    if len({value is None for value in given.values()}) > 1:
        names = ' and '.join(f'`{name}`' for name in given)
        raise UsageError(f'{names} go together', 'config-value')


def check_worker(worker: Optional[int], num_workers: Optional[int]) -> None:
    """Refuses a loader process that is none of those that there are.

    Raises:
        ValueError: Its number is not below theirs.
    """
    if worker is not None and num_workers is not None and worker >= num_workers:
        raise UsageError(
            f'`worker` is {worker} and `num_workers` is {num_workers}: workers count from 0',
            'config-world',
            'worker',
        )


def epoch_samples(given: Optional[Union[int, str]]) -> Optional[int]:
    """The samples of an epoch, where they are given.

    Raises:
        ValueError: They are negative, or a text that is no number.
    """
    if not given:
        return None
    samples = number_abbrev_to_int(given)
    if not 0 <= samples <= _MOST:
        kind = 'negative' if samples < 0 else 'more than 64 bits have room for'
        raise UsageError(
            f'Epoch size cannot be {kind}. Received {samples}.', 'config-value', 'epoch_size'
        )
    return samples
