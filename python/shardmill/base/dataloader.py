"""A torch ``DataLoader`` with batches assembled in Rust, which can resume in the middle of an epoch."""

from __future__ import annotations

import contextlib
import sys
from collections import deque
from time import perf_counter
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Callable, Optional, Union, cast

from shardmill import _torch
from shardmill.base import _arguments as check
from shardmill.base._collate import collate, packed
from shardmill.base._iteration import Carried
from shardmill.base._limits import Timed, Times, explain, times_here
from shardmill.base._sharding import find_split
from shardmill.base.dataset import StreamingDataset
from shardmill.errors import UsageError
from shardmill.metrics import Callback, Watch

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator
    from concurrent.futures import Future

    from torch.utils.data import DataLoader as _DataLoader
    from torch.utils.data import Dataset, Sampler

    from shardmill.base._typing import SampleT
    from shardmill.stats import Explanation, LoaderStats
else:
    _DataLoader, SampleT = _torch.Placeholder, Any

__all__ = ['StreamingDataLoader']

#: The Linux command that sets the size of a pipe; `fcntl` has a name for it only from Python 3.10 on.
_F_SETPIPE_SZ = 1031
#: The key of this process among the times of workers.
_HERE = -1
#: The maximum size of a pipe for an unprivileged process on Linux.
_PIPE_BYTES = 1 << 20


class _Loader:
    """Keeps the class layout stable, so that torch's class can be added to the bases later."""


class StreamingDataLoader(_Loader, _DataLoader[SampleT]):
    """A ``torch.utils.data.DataLoader`` that counts the samples it has yielded.

    The arguments are those of ``DataLoader``. If the dataset is a `StreamingDataset` with the same batch size,
    batches are assembled without creating Python objects for single samples; the result is the same.

    If also no Python code is involved (text, bytes and numbers, with torch's default collation), ``num_workers`` is
    a number of threads. No process is then started. Moving a batch between processes costs many
    times as much as assembling it. ``multiprocessing_context``, ``persistent_workers``, ``timeout`` and
    ``worker_init_fn`` apply to processes: if one of them is set, the loader starts worker processes.

    For type checkers it is generic in the sample type.

    Args:
        dataset: The dataset.
        batch_size: Samples per batch; ``None`` for single samples.
        shuffle: As in ``DataLoader``, for other datasets only: a `StreamingDataset` shuffles itself.
        sampler: As in ``DataLoader``, for other datasets only.
        batch_sampler: As in ``DataLoader``, for other datasets only.
        num_workers: Threads or worker processes that prepare batches.
        collate_fn: Merges samples into a batch. Defaults to torch's function.
        pin_memory: Whether to copy batches to page-locked memory.
        drop_last: Whether to drop an incomplete last batch.
        timeout: Seconds to wait for a batch from a worker process; 0 for no limit.
        worker_init_fn: Called in each worker process.
        multiprocessing_context: How worker processes are started.
        generator: The random number generator of torch.
        prefetch_factor: Batches that each worker process prefetches.
        persistent_workers: Whether worker processes are kept after an epoch.
        pin_memory_device: The device of the page-locked memory.
        in_order: Whether batches of worker processes are returned in order. Requires torch 2.6.
        worker_type: Where Python code runs if ``num_workers`` is not 0: ``processes`` or ``threads``. Threads share
            the memory of this process. They help if `get_item` and `collate_fn` release the interpreter lock.

    Attributes:
        num_samples_yielded: Samples yielded on this rank since the iteration began.
    """

    if not TYPE_CHECKING:
        __class_getitem__ = classmethod(GenericAlias)

    dataset: Any
    collate_fn: Callable[[list[Any]], Any]
    worker_init_fn: Optional[Callable[[int], None]]
    generator: Any
    _iterator: Any

    def __init__(
        self,
        dataset: Dataset[SampleT],
        batch_size: Optional[int] = 1,
        shuffle: Optional[bool] = None,
        sampler: Union[Sampler[Any], Iterable[Any], None] = None,
        batch_sampler: Union[Sampler[list[Any]], Iterable[list[Any]], None] = None,
        num_workers: int = 0,
        collate_fn: Optional[Callable[[list[Any]], Any]] = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Optional[Callable[[int], None]] = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: Optional[int] = None,
        persistent_workers: bool = False,
        pin_memory_device: str = '',
        in_order: bool = True,
        worker_type: str = 'processes',
    ) -> None:
        if not _torch.adopt(StreamingDataLoader, 'DataLoader', load=True):
            raise ImportError('StreamingDataLoader needs torch: pip install "shardmill[torch]"')
        if not hasattr(dataset, '__iter__') and not hasattr(dataset, '__getitem__'):
            check.refuse_type('dataset', dataset, 'a dataset, such as a StreamingDataset')
        options: dict[str, Any] = {
            'batch_size': check.whole_or_none('batch_size', batch_size, 1),
            'shuffle': None if shuffle is None else check.flag('shuffle', shuffle),
            'sampler': sampler,
            'batch_sampler': batch_sampler,
            'num_workers': check.whole('num_workers', num_workers),
            'collate_fn': check.function('collate_fn', collate_fn),
            'pin_memory': check.flag('pin_memory', pin_memory),
            'drop_last': check.flag('drop_last', drop_last),
            'timeout': check.number('timeout', timeout),
            'worker_init_fn': check.function('worker_init_fn', worker_init_fn),
            'multiprocessing_context': multiprocessing_context,
            'generator': generator,
            'prefetch_factor': check.whole_or_none('prefetch_factor', prefetch_factor, 1),
            'persistent_workers': check.flag('persistent_workers', persistent_workers),
        }
        # Older versions of torch do not have these arguments.
        if pin_memory_device:
            options['pin_memory_device'] = check.text('pin_memory_device', pin_memory_device)
        if not check.flag('in_order', in_order):
            options['in_order'] = False
        self._watch = Watch()
        #: What the processes that read had measured when the iteration began, and last; by worker.
        self._times_before: dict[int, Times] = {}
        self._times: dict[int, Times] = {}
        super().__init__(dataset, **options)
        self.num_samples_yielded = 0
        self.worker_type = check.choice('worker_type', worker_type, ('processes', 'threads'))
        if self.worker_type == 'threads':
            _check_threads(self)

    def _get_batch_size(self, batch: Any) -> int:
        """Returns the number of samples in a batch."""
        if hasattr(batch, 'values') and hasattr(batch, 'keys'):
            for value in batch.values():
                return len(value)
            raise ValueError('Batch is empty')
        if hasattr(batch, 'shape'):
            return len(batch)
        return len(batch[0])

    def _is_native(self) -> bool:
        """Returns whether the dataset can return whole batches."""
        dataset = self.dataset
        return (
            isinstance(dataset, StreamingDataset)
            and dataset._is_plain()
            and self.batch_size is not None
            and self.batch_size == dataset.batch_size
            # No library around this loader splits its samples; otherwise the dataset yields them one by one.
            and find_split(dataset, False) is None
        )

    def _is_threaded(self) -> bool:
        """Returns whether threads can replace worker processes, because no Python code is involved."""
        about_processes = (
            self.worker_init_fn is not None
            or self.multiprocessing_context is not None
            or self.persistent_workers
            or self.timeout > 0
        )
        return not about_processes and self._is_default() and self.dataset._here().is_native()

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        """Iterates over the batches of this rank in the next epoch."""
        self.num_samples_yielded = 0
        native = self._is_native() and (self.num_workers == 0 or self._is_threaded())
        if native:
            batches = self._pinned_if_asked(self._batches())
        elif self.num_workers and self.worker_type == 'threads':
            batches = self._pinned_if_asked(_threaded(self))
        else:
            batches = self._others()
        watch = self._watch
        watch.begin()
        self._begin_times()
        try:
            while True:
                watch.start()
                taken = next(batches, None)
                if taken is None:
                    return
                samples, batch = taken
                watch.stop()
                self.num_samples_yielded += samples
                watch.report(self.stats)
                yield batch
        finally:
            batches.close()

    def _begin_times(self) -> None:
        """Remembers what was measured before this iteration."""
        if isinstance(self.dataset, StreamingDataset):
            if not self.persistent_workers:
                self._times = {}
            self._times_before = {**self._times, _HERE: times_here(self.dataset)}

    def _others(self) -> Generator[tuple[int, Any], None, None]:
        """Yields batches assembled by torch, each after its number of samples."""
        is_own = type(self)._get_batch_size is not StreamingDataLoader._get_batch_size
        is_plain = isinstance(self.dataset, StreamingDataset) and self.dataset._is_plain()
        is_single = self.batch_size is None and not is_own and is_plain
        for batch in super().__iter__():
            if self._is_counted():
                samples, batch, worker = batch
                if worker is not None:
                    self._times[worker[0]] = worker[1]
                yield self._get_batch_size(batch) if is_own else samples, batch
            else:
                yield 1 if is_single else self._get_batch_size(batch), batch

    def _batches(self) -> Generator[tuple[int, Any], None, None]:
        """Yields batches assembled in this process, each after its number of samples."""
        import torch

        # torch's own loop draws a number here. Drawing it keeps the program's later random numbers the same.
        torch.empty((), dtype=torch.int64).random_(generator=self.generator)
        size = cast(int, self.batch_size)
        batches = self.dataset._begin(self.num_workers or None)
        columns = self._is_default()
        transform = Timed(self.dataset, self._collate_fn())
        try:
            while True:
                if columns:
                    taken = batches.next_columns()
                    if taken is None:
                        return
                    samples, batch = taken
                else:
                    batch = batches.next_samples()
                    if batch is None:
                        return
                    samples = len(batch)
                if not samples or (self.drop_last and samples < size):
                    continue
                batch = collate(batch) if columns else transform(batch)
                yield samples, batch
        finally:
            batches.close()

    def _pinned_if_asked(
        self, batches: Generator[tuple[int, Any], None, None]
    ) -> Generator[tuple[int, Any], None, None]:
        """Yields batches in page-locked memory, if `pin_memory` is set and there is a GPU."""
        import torch
        from torch.utils.data._utils.pin_memory import pin_memory

        is_pinned = self.pin_memory and torch.cuda.is_available()
        with contextlib.closing(batches):
            for samples, batch in batches:
                yield samples, pin_memory(batch) if is_pinned else batch  # type: ignore[no-untyped-call]

    def _is_default(self) -> bool:
        """Returns whether batches use torch's default collation."""
        from torch.utils.data import default_collate

        return self.collate_fn is default_collate

    def _collate_fn(self) -> Callable[[list[Any]], Any]:
        """Returns the function that merges samples. The default one keeps fields that only some samples have."""
        return collate if self._is_default() else self.collate_fn

    def _is_counted(self) -> bool:
        """Returns whether each batch comes with its sample count, which a collated batch may not show."""
        return isinstance(self.dataset, StreamingDataset) and self.batch_size is not None

    def _get_iterator(self) -> Any:
        """Returns torch's iterator; workers return whole batches where possible."""
        if not self._is_counted():
            return _widened(super()._get_iterator())
        kept = self.collate_fn, self.worker_init_fn
        if self.num_workers > 0 and self._is_native() and self._is_default():
            self.worker_init_fn = _AsBatches(self.worker_init_fn)
        self.collate_fn = _Counting(Timed(self.dataset, self._collate_fn()))
        try:
            return _widened(super()._get_iterator())
        finally:
            self.collate_fn, self.worker_init_fn = kept

    def state_dict(self) -> Optional[dict[str, Any]]:
        """Returns the position after the last yielded batch; ``None`` for other datasets.

        Samples that workers have prefetched do not count.
        """
        dataset = self.dataset
        if not isinstance(dataset, StreamingDataset):
            return None
        ranks = dataset._set_world().num_ranks
        samples = self.num_samples_yielded * ranks
        if dataset.replication is not None:
            samples //= dataset.replication
        return dataset.state_dict(samples, False)

    def load_state_dict(self, obj: dict[str, Any]) -> None:
        """Resumes from a state in the next iteration.

        Args:
            obj: The result of `state_dict`, from shardmill or ``streaming``.
        """
        if isinstance(self.dataset, StreamingDataset):
            self.dataset.load_state_dict(obj)

    def stats(self) -> LoaderStats:
        """Returns statistics of reading in this process.

        The ``loader_`` counters are since the loader was constructed; ``num_samples_yielded`` counts since the
        iteration began. The rest is from `StreamingDataset.stats`, without what worker processes read.
        """
        from shardmill.stats import LoaderStats

        watch = self._watch
        known: dict[str, Any] = {}
        if isinstance(self.dataset, StreamingDataset):
            known.update(self.dataset.stats())
        return LoaderStats(
            **known,
            loader_batches=watch.batches,
            loader_wait_seconds=watch.wait_seconds,
            loader_last_wait_seconds=watch.last_wait_seconds,
            loader_longest_wait_seconds=watch.longest_wait_seconds,
            num_samples_yielded=self.num_samples_yielded,
        )

    def explain(self) -> Explanation:
        """Returns what limits this loader, from the times of the current iteration.

        It covers the worker processes of this rank. Python code outside of `get_item` and `collate_fn` is not
        measured in them.
        """
        batches, elapsed, waited = self._watch.of_iteration()
        if not isinstance(self.dataset, StreamingDataset):
            return explain(0, elapsed, waited, [])
        times = self._times or {_HERE: times_here(self.dataset)}
        before = self._times_before
        processes = [now.since(before.get(each, Times())) for each, now in times.items()]
        return explain(batches, elapsed, waited, processes)

    def on_stats(self, callback: Callback, every: int = 100) -> None:
        """Calls a function regularly with the result of `stats` and the number of batches so far.

        Args:
            callback: The function.
            every: The number of batches between calls.

        Raises:
            ValueError: `every` is not positive.
        """
        self._watch.add(callback, every)

    def __del__(self) -> None:
        iterator = getattr(self, '_iterator', None)
        if iterator is not None:
            iterator._shutdown_workers()


class _AsBatches:
    """Makes the dataset of a worker process yield whole batches, then calls the user's `worker_init_fn`."""

    def __init__(self, user: Optional[Callable[[int], None]]) -> None:
        self._user = user

    def __call__(self, worker_id: int) -> None:
        info = _torch.worker_info()
        if info is not None:
            info.dataset._as_batches = True
        if self._user is not None:
            self._user(worker_id)


class _Counting:
    """Collates samples and counts them, and reports the times of a worker.

    A batch that was sent in place of a sample is unpacked.
    """

    def __init__(self, user: Callable[[list[Any]], Any]) -> None:
        self._user = user

    def __call__(self, samples: list[Any]) -> tuple[int, Any, Optional[tuple[int, Times]]]:
        first = samples[0]
        worker = _torch.worker_info()
        if isinstance(first, Carried):
            count, batch = first.samples, collate(first.columns)
        else:
            count, batch = len(samples), self._user(samples)
            batch = batch if worker is None else packed(batch)
        return count, batch, worker and (worker.id, times_here(worker.dataset))


def _widened(iterator: Any) -> Any:
    """Returns torch's iterator after enlarging the pipe of its worker processes, so that whole batches fit.

    A pipe holds 64 KiB by default, so that worker and reader wait for each other several times per batch. If the
    system does not allow more, or batches are not sent through a pipe, nothing changes.
    """
    if sys.platform == 'linux':
        writer = getattr(getattr(iterator, '_worker_result_queue', None), '_writer', None)
        if writer is not None:
            import fcntl

            with contextlib.suppress(OSError):
                fcntl.fcntl(writer.fileno(), _F_SETPIPE_SZ, _PIPE_BYTES)
    return iterator


def _threaded(loader: Any) -> Generator[tuple[int, Any], None, None]:
    """Yields the batches of a loader in the order of a single thread, each after its number of samples.

    Each thread makes whole batches.
    """
    from concurrent.futures import ThreadPoolExecutor

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


def _check_threads(loader: Any) -> None:
    """Rejects datasets whose batches cannot be read in this process."""
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


_torch.adopt(StreamingDataLoader, 'DataLoader')
