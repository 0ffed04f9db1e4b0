"""Iterators over the samples of a dataset."""

from __future__ import annotations

import warnings
from itertools import chain
from time import perf_counter
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from shardmill.base._state import counted, is_counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardmill import _core


class Carried(NamedTuple):
    """A whole batch that is yielded in place of its first sample."""

    samples: int
    columns: Any


def later(begin: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    """Calls `begin` only when the first item is requested, and yields its items."""
    yield from begin()


def samples_of(dataset: Any) -> Iterator[Any]:
    """Begins the next epoch of a dataset and returns the samples of this rank and worker."""
    if dataset._fetches_in_python:
        order = dataset._begin_order()
        samples = dataset._fetching().samples(order)
        return counted(samples, dataset._progress) if is_counted() else samples
    return _read(dataset, dataset._begin())


def _read(dataset: Any, batches: _core.Batches) -> Iterator[Any]:
    samples: Iterator[Any]
    try:
        if dataset._as_batches:
            samples = carried(batches)
        elif dataset._is_plain():
            samples = chain.from_iterable(iter(batches.next_samples, None))
        else:
            samples = each(dataset, batches)
        yield from counted(samples, dataset._progress) if is_counted() else samples
    finally:
        batches.close()


def each(dataset: Any, batches: _core.Batches) -> Iterator[Any]:
    """Yields samples through an overridden `get_item`, reading one batch ahead."""
    import numpy as np

    while True:
        batch = batches.next_numbered()
        if batch is None:
            return
        # COMPAT: streaming passes NumPy numbers, and subclasses depend on it.
        for number, sample in zip(np.asarray(batch[0], np.int64), batch[1]):
            dataset._ready.sample = (number, sample)
            start = perf_counter()
            value = dataset[number]
            dataset._transform_seconds += perf_counter() - start
            yield value


def carried(batches: _core.Batches) -> Iterator[Any]:
    """Yields each whole batch in place of its first sample, followed by placeholders for the others.

    A ``DataLoader`` worker requests one batch of samples at a time, so it receives one whole batch each time.
    """
    while True:
        batch = batches.next_columns()
        if batch is None:
            return
        samples, columns = batch
        if samples:
            yield Carried(samples, columns)
            yield from (None,) * (samples - 1)


def warn_of_shuffle(dataset: Any) -> None:
    """Warns if the block size is too small to mix samples of different shards."""
    block = dataset.shuffle_block_size
    if dataset.shuffle and dataset.shuffle_algo == 'py1e' and block is not None:
        largest = int(dataset.samples_per_shard.max())
        if block < largest:
            warnings.warn(
                f'Shuffle block size was smaller than shard size for some shards ({block} samples, the '
                f'largest shard has {largest}): these are not mixed with others. Raise '
                f'`shuffle_block_size`.',
                stacklevel=3,
            )
