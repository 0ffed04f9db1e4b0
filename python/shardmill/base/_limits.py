"""Decides what limits a loader, from the time that each part of reading takes."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from shardmill import _torch
from shardmill.stats import Explanation

if TYPE_CHECKING:
    from shardmill.base.dataset import StreamingDataset

__all__ = ['Timed', 'Times', 'explain', 'times_here']

#: The share of time spent waiting below which the program that uses the batches is the limit.
_LITTLE = 0.1
#: The share of answers that ask for fewer requests from which these are the limit.
_THROTTLED = 0.05
#: Batches that must have been returned, so that the start of an iteration does not decide.
_FEWEST = 3

#: Each limit with what it means and what helps.
_TEXTS = {
    'consumer': (
        'the program that uses the batches is the limit: the loader is ready before it asks'
    ),
    'network': (
        'fetching shards is the limit: move the data closer, compress it, or raise `cache_limit`, so that later '
        'epochs are read from the cache'
    ),
    'throttling': (
        'the store asks for fewer requests: spread the dataset over prefixes, use larger shards, or raise the quota'
    ),
    'decompression': (
        'decompressing shards is the limit: use a faster compression such as `zstd:1` or none, or more cores'
    ),
    'hashing': (
        'checking hashes is the limit: write the shards with `xxh3_64` instead of a cryptographic hash, or use '
        'more cores'
    ),
    'disk': (
        'writing shards to `local` is the limit: put it on a faster disk, or raise `cache_limit`, so that later epochs '
        'find them there'
    ),
    'reading': (
        'copying samples from local shards is the limit: raise `threads`, or put `local` on a faster disk'
    ),
    'transform': (
        'Python code is the limit, such as `get_item` and `collate_fn`: make it faster, or raise `num_workers`'
    ),
    'unknown': 'no part of reading accounts for the time: see what happens with `shardmill.metrics.trace`',
}


class Times(NamedTuple):
    """What one process spent on reading, in seconds, and its requests, since it opened the dataset."""

    fetch: float = 0.0
    hash: float = 0.0
    decompress: float = 0.0
    store: float = 0.0
    fill: float = 0.0
    transform: float = 0.0
    requests: float = 0
    throttled: float = 0

    def since(self, earlier: Times) -> Times:
        """Returns what was added since an earlier measurement of the same process."""
        return Times(*(now - before for now, before in zip(self, earlier)))


def times_here(dataset: StreamingDataset) -> Times:
    """Returns the times of this process."""
    stats = dataset._here().cache_stats()
    return Times(
        stats['fetch_seconds'],
        stats['hash_seconds'],
        stats['decompress_seconds'],
        stats['store_seconds'],
        stats['fill_seconds'],
        dataset._transform_seconds,
        stats['requests'],
        stats['throttled'],
    )


class Timed:
    """Calls a function of the user in a process, and adds its time to the dataset."""

    def __init__(self, dataset: Any, function: Any) -> None:
        self._dataset = dataset
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        info = _torch.worker_info()
        dataset = self._dataset if info is None else info.dataset
        start = perf_counter()
        result = self._function(*arguments)
        dataset._transform_seconds += perf_counter() - start
        return result


def explain(batches: int, elapsed: float, waited: float, processes: Sequence[Times]) -> Explanation:
    """Decides what limits a loader, from the times of its processes in an iteration."""
    shares: dict[str, float] = {}
    verdict = 'unknown'
    if batches >= _FEWEST and elapsed > 0 and processes:
        whole = elapsed * len(processes)
        mean = [sum(each[place] for each in processes) / whole for place in range(6)]
        names = ('network', 'hashing', 'decompression', 'disk', 'reading', 'transform')
        shares = {name: min(share, 1.0) for name, share in zip(names, mean)}
        requests = sum(each.requests for each in processes)
        throttled = sum(each.throttled for each in processes)
        if waited < _LITTLE * elapsed:
            verdict = 'consumer'
        else:
            verdict = max(shares, key=lambda name: shares[name])
            if verdict == 'network' and throttled >= _THROTTLED * requests and throttled:
                verdict = 'throttling'
            elif shares[verdict] < _LITTLE * waited / elapsed:
                verdict = 'unknown'
    return Explanation(verdict, _TEXTS[verdict], waited / elapsed if elapsed > 0 else 0.0, shares)
