"""Fetches shards to the local folder from Python: on request, or for streams with their own download methods."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from queue import Queue
from typing import TYPE_CHECKING, Any, Optional

from shardmill.base._arguments import bytes_to_int

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardmill import _core
    from shardmill.base.format.base.reader import Reader
    from shardmill.base.stream import Stream


class Fetcher:
    """Keeps shards in the local folders within the dataset's limit, evicting the least recently used first.

    A lock protects the bookkeeping but is not held during downloads. Threads that need the same shard wait for the
    thread that downloads it. Threads that find no free space wait for downloads in flight, whose space counts.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        #: Downloads in flight, and the maximum of bytes that each needs.
        self._in_flight: dict[int, int] = {}
        #: Local shards and their bytes, least recently used first.
        self._local: OrderedDict[int, int] = OrderedDict()
        self._limit = bytes_to_int(dataset.cache_limit) if dataset.cache_limit else None
        self._index_bytes: int = sum(stream.get_index_size() for stream in dataset.streams)
        for shard_id, shard in enumerate(dataset.shards):
            size = _resident(shard, self._stream(shard_id))
            if size:
                self._local[shard_id] = size

    def _stream(self, shard_id: int) -> Stream:
        stream: Stream = self._dataset.streams[self._dataset.stream_per_shard[shard_id]]
        return stream

    def usage(self) -> int:
        """Returns the size of shards and indexes in the local folders, in bytes."""
        with self._lock:
            return self._index_bytes + sum(
                _resident(shard, self._stream(shard_id))
                for shard_id, shard in enumerate(self._dataset.shards)
            )

    def prepare(self, shard_id: int) -> None:
        """Makes a shard available, evicting others if necessary."""
        shard = self._dataset.shards[shard_id]
        stream = self._stream(shard_id)
        size = shard.get_max_size()
        with self._lock:
            while shard_id in self._in_flight or not self._is_local_or_fits(shard_id, size):
                self._changed.wait()
            if shard_id in self._local:
                self._local.move_to_end(shard_id)
                return
            self._in_flight[shard_id] = size
        try:
            stream.prepare_shard(shard)
        finally:
            with self._lock:
                del self._in_flight[shard_id]
                size = _resident(shard, stream)
                if size:
                    self._local[shard_id] = size
                self._changed.notify_all()

    def prepare_samples(self, start: int, stop: int) -> None:
        """Makes the shards of samples available, by their numbers."""
        if start < stop:
            spanner = self._dataset.spanner
            for shard_id in range(spanner[start][0], spanner[stop - 1][0] + 1):
                self.prepare(shard_id)

    def has(self, sample_id: int) -> bool:
        """Returns whether the shard of a sample is available."""
        shard_id = self._dataset.spanner[sample_id][0]
        return _has_raw(self._dataset.shards[shard_id], self._stream(shard_id))

    def _is_local_or_fits(self, shard_id: int, size: int) -> bool:
        """Returns whether a shard is local, or else whether there is space for it after evicting others."""
        if shard_id in self._local:
            if _has_raw(self._dataset.shards[shard_id], self._stream(shard_id)):
                return True
            # The remaining files are part of the size of the download.
            del self._local[shard_id]
        while self._limit is not None and self._used() + size > self._limit:
            if not self._local:
                # A shard larger than the limit is downloaded alone.
                return not self._in_flight
            self._evict(next(iter(self._local)))
        return True

    def _used(self) -> int:
        return self._index_bytes + sum(self._local.values()) + sum(self._in_flight.values())

    def _evict(self, shard_id: int) -> None:
        self._local.pop(shard_id, None)
        self._dataset.shards[shard_id].evict()

    def evict(self, shard_id: int) -> None:
        """Removes a shard."""
        with self._lock:
            self._evict(shard_id)

    def evict_coldest(self) -> None:
        """Removes the least recently used shard."""
        with self._lock:
            if not self._local:
                raise ValueError('there is no shard in the local folders to remove')
            self._evict(next(iter(self._local)))

    def sample(self, sample_id: int, retry: int) -> Any:
        """Returns one sample, fetching its shard if necessary."""
        shard_id, _ = self._dataset.spanner[sample_id]
        reader = self._dataset._here()
        for attempt in range(1 + retry):
            self.prepare(shard_id)
            try:
                return reader.sample(sample_id)
            except FileNotFoundError:
                # Another process removed the shard after `prepare`.
                if attempt == retry:
                    raise
                with self._lock:
                    self._local.pop(shard_id, None)
                time.sleep(0.01 * attempt)
        raise AssertionError('the last attempt returns or raises')

    def samples(self, order: _core.Order) -> Iterator[Any]:
        """Iterates over the samples of an epoch while a thread prefetches their shards."""
        import numpy as np

        ahead: Queue[Optional[tuple[list[int], Optional[BaseException]]]] = Queue(
            maxsize=max(1, self._batches_ahead())
        )
        stopped = threading.Event()
        thread = threading.Thread(
            target=self._fetch, args=(order, ahead, stopped), name='shardmill-fetch', daemon=True
        )
        thread.start()
        try:
            while True:
                item = ahead.get()
                if item is None:
                    return
                numbers, error = item
                if error is not None:
                    raise error
                # COMPAT: yields NumPy numbers, as `StreamingDataset` does.
                for number in np.asarray(numbers, np.int64):
                    yield self._dataset[number]
        finally:
            stopped.set()
            while not ahead.empty():
                ahead.get_nowait()
            thread.join()

    def _batches_ahead(self) -> int:
        samples = self._dataset.predownload or 0
        return samples // (self._dataset.batch_size or 1)

    def _fetch(
        self,
        order: _core.Order,
        ahead: Queue[Optional[tuple[list[int], Optional[BaseException]]]],
        stopped: threading.Event,
    ) -> None:
        spanner = self._dataset.spanner
        try:
            while not stopped.is_set():
                numbers = order.next_numbers()
                if numbers is None:
                    ahead.put(None)
                    return
                for shard_id in dict.fromkeys(spanner[number][0] for number in numbers):
                    self.prepare(shard_id)
                ahead.put((numbers, None))
        except BaseException as error:
            # Re-raised by the thread that takes the samples.
            ahead.put(([], error))


def _paths(shard: Reader, stream: Stream) -> Iterator[tuple[str, int, bool]]:
    """Yields the possible files of a shard: path, size in bytes, and whether the file is raw."""
    folder = os.path.join(stream.local, stream.split)
    for raw, zipped in shard.file_pairs:
        yield os.path.join(folder, raw.basename), raw.bytes, True
        if zipped is not None:
            yield os.path.join(folder, zipped.basename), zipped.bytes, False


def _resident(shard: Reader, stream: Stream) -> int:
    """Returns the size of a shard's local files in bytes."""
    return sum(size for path, size, _ in _paths(shard, stream) if os.path.isfile(path))


def _has_raw(shard: Reader, stream: Stream) -> bool:
    return all(os.path.isfile(path) for path, _, raw in _paths(shard, stream) if raw)
