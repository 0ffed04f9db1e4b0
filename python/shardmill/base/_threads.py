"""Calls `get_item` and `collate_fn` in threads of this process."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter
from typing import TYPE_CHECKING, Any, Callable

from shardmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Generator


def threaded(loader: Any) -> Generator[tuple[int, Any], None, None]:
    """Yields the batches of a loader in the order of a single thread, each after its number of samples.

    Each thread makes whole batches.
    """
    import numpy as np
    import torch

    # torch's own loop draws a number here. Drawing it keeps the program's later random numbers the same.
    torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
    dataset, size = loader.dataset, loader.batch_size or 1
    collate: Callable[[list[Any]], Any] = loader._collate_fn()
    limit = loader.num_workers * (loader.prefetch_factor or 2)

    def make(numbers: list[int], samples: list[Any]) -> tuple[int, Any]:
        made = []
        # COMPAT: streaming passes NumPy numbers, and subclasses depend on it.
        for number, sample in zip(np.asarray(numbers, np.int64), samples):
            dataset._ready.sample = (number, sample)
            made.append(dataset[number])
        return len(made), collate(made)

    batches = dataset._begin()
    pending: deque[Future[tuple[int, Any]]] = deque()
    pool = ThreadPoolExecutor(loader.num_workers, 'shardmill-transform')
    try:
        is_done = False
        while True:
            while not is_done and len(pending) < limit:
                taken = batches.next_numbered()
                is_done = taken is None
                if (
                    taken is not None
                    and taken[0]
                    and not (loader.drop_last and len(taken[0]) < size)
                ):
                    pending.append(pool.submit(make, *taken))
            if not pending:
                return
            start = perf_counter()
            result = pending.popleft().result()
            dataset._transform_seconds += perf_counter() - start
            yield result
    finally:
        pool.shutdown(cancel_futures=True)
        batches.close()


def check_threads(loader: Any) -> None:
    """Rejects datasets whose batches cannot be read in this process."""
    from shardmill.base.dataset import StreamingDataset

    dataset = loader.dataset
    if (
        not isinstance(dataset, StreamingDataset)
        or type(dataset).__iter__ is not StreamingDataset.__iter__
    ):
        problem = (
            f'{type(dataset).__name__} is no StreamingDataset, or has an `__iter__` of its own'
        )
    elif dataset._fetches_in_python:
        problem = 'a stream of the dataset fetches its shards with Python code'
    elif dataset.packing is not None:
        problem = 'the dataset packs its samples'
    elif loader.batch_size is None or loader.batch_size != dataset.batch_size:
        problem = f'`batch_size` is {loader.batch_size}, and {dataset.batch_size} in the dataset'
    else:
        return
    raise UsageError(
        f'the loader cannot use threads: {problem}',
        'config-value',
        'worker_type',
        "leave out `worker_type='threads'` to use worker processes",
    )
