"""Statistics of datasets, loaders and caches.

They are immutable objects with attributes, and mappings by the same names: ``stats.fetched_bytes`` and
``stats['fetched_bytes']``. Access by name is deprecated in new programs. It remains for loggers that accept mappings,
and for programs written when ``stats()`` returned a dict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Union

from shardmill._text import html_table, size_text

__all__ = [
    'CacheClientStats',
    'CacheStats',
    'DatasetStats',
    'Explanation',
    'LoaderStats',
    'Stats',
]

Number = Union[int, float]


@dataclass(frozen=True)
class Stats(Mapping[str, Number]):
    """The base class of all statistics. Times are in seconds."""

    def __getitem__(self, name: str) -> Number:
        if name not in self.__dataclass_fields__:
            raise KeyError(name)
        value: Number = getattr(self, name)
        return value

    def __iter__(self) -> Iterator[str]:
        return (each.name for each in fields(self))

    def __len__(self) -> int:
        return len(fields(self))

    def _repr_html_(self) -> str:
        """Returns the statistics as an HTML table."""
        rows = [
            (name.replace('_', ' '), size_text(int(value)) if name.endswith('bytes') else value)
            for name, value in self.items()
        ]
        return html_table(rows, caption=type(self).__name__)


@dataclass(frozen=True)
class CacheStats(Stats):
    """Statistics of the cache and the stores of a reader, since it was opened in this process.

    Attributes:
        fetched_shards: Shards fetched from stores or source folders.
        fetched_bytes: Their bytes.
        bad_fetches: Fetches with a wrong length or hash, which were repeated.
        found_shards: Shards that were in the cache already.
        cache_waits: How often a batch waited for a shard.
        cache_wait_seconds: The duration of these waits.
        evicted_shards: Shards that were evicted.
        bypassed_shards: Shards for which the cache had no space.
        single_samples: Samples that were fetched without their shard.
        cached_bytes: Bytes of shards in the cache.
        memory_bytes: Bytes of shards in memory.
        open_shards: Open shards.
        requests: Requests to stores.
        retries: How many of them were repetitions.
        throttled: Answers of stores that asked for fewer requests.
        received_bytes: Bytes received from stores.
        peer_files: Files fetched from the caches of other nodes.
        peer_bytes: Their bytes.
        peer_failures: Requests to other nodes that did not return the file, which was then fetched from the store.
        fetch_seconds: How long at least one file was being fetched.
        hash_seconds: How long at least one hash was being checked.
        decompress_seconds: How long at least one file was being decompressed.
        store_seconds: How long at least one file was being written to the cache.
        fill_seconds: How long at least one batch was being filled with samples.
    """

    fetched_shards: int = 0
    fetched_bytes: int = 0
    bad_fetches: int = 0
    found_shards: int = 0
    cache_waits: int = 0
    cache_wait_seconds: float = 0.0
    evicted_shards: int = 0
    bypassed_shards: int = 0
    single_samples: int = 0
    cached_bytes: int = 0
    memory_bytes: int = 0
    open_shards: int = 0
    requests: int = 0
    retries: int = 0
    throttled: int = 0
    received_bytes: int = 0
    peer_files: int = 0
    peer_bytes: int = 0
    peer_failures: int = 0
    fetch_seconds: float = 0.0
    hash_seconds: float = 0.0
    decompress_seconds: float = 0.0
    store_seconds: float = 0.0
    fill_seconds: float = 0.0


@dataclass(frozen=True)
class CacheClientStats(CacheStats):
    """Statistics of a `CacheClient`.

    Attributes:
        quota: The maximum bytes of this client in the cache; 0 for no limit.
        preloading: Preloaded files that are pending.
    """

    quota: int = 0
    preloading: int = 0


@dataclass(frozen=True)
class DatasetStats(CacheStats):
    """Statistics of a dataset. The first six are of this epoch, and 0 before it begins.

    Attributes:
        batches: Batches returned.
        samples: Samples returned.
        bytes: Bytes of their values.
        waits: Batches that were not ready when they were needed.
        wait_seconds: Time spent waiting for batches or filling them.
        first_batch_seconds: The part of this time until the first batch.
    """

    batches: int = 0
    samples: int = 0
    bytes: int = 0
    waits: int = 0
    wait_seconds: float = 0.0
    first_batch_seconds: float = 0.0


@dataclass(frozen=True)
class LoaderStats(DatasetStats):
    """Statistics of a loader, and of its dataset in this process.

    Attributes:
        loader_batches: Batches returned since the loader was constructed.
        loader_wait_seconds: Time spent waiting for them.
        loader_last_wait_seconds: The wait for the last batch.
        loader_longest_wait_seconds: The longest wait for a batch.
        num_samples_yielded: Samples returned since the iteration began.
    """

    loader_batches: int = 0
    loader_wait_seconds: float = 0.0
    loader_last_wait_seconds: float = 0.0
    loader_longest_wait_seconds: float = 0.0
    num_samples_yielded: int = 0


@dataclass(frozen=True)
class Explanation:
    """What limits a loader, from the times of its current iteration. As text it is one line.

    Attributes:
        verdict: ``consumer`` (the program that uses the batches), ``network``, ``throttling`` (the store asks for
            fewer requests), ``decompression``, ``hashing``, ``disk`` (writing shards to the cache), ``reading``
            (copying samples from local shards), ``transform`` (Python code) or ``unknown``.
        text: What this means, and what helps.
        wait_share: The share of the time that the program waited for batches.
        shares: For each part of reading, the share of the time that it was in progress. Parts overlap.
    """

    verdict: str
    text: str
    wait_share: float
    shares: Mapping[str, float]

    def __str__(self) -> str:
        shares = ', '.join(f'{name} {share:.0%}' for name, share in self.shares.items())
        times = f' ({self.wait_share:.0%} of the time spent waiting; {shares})' if shares else ''
        return f'{self.verdict}: {self.text}{times}'
