"""Shards that a program fetches and removes itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardmill.base import _arguments as check
from shardmill.base._trained import Trained
from shardmill.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardmill.base.format.base.reader import Reader
    from shardmill.base.stream import Stream


def check_shards(
    streams: Sequence[Stream], shards: Sequence[Sequence[Reader]], sizes: Sequence[bytes]
) -> None:
    """Checks that `get_shards` of each stream returned the shards of its index, whose samples the reader counts.

    Raises:
        UnsupportedError: A subclass returned others.
    """
    import numpy as np

    for stream, own, listed in zip(streams, shards, sizes):
        found, expected = [len(shard) for shard in own], np.frombuffer(listed, np.int64).tolist()
        if found != expected:
            name = f'{type(stream).__module__}.{type(stream).__qualname__}'
            raise UnsupportedError(
                f'`get_shards` of {name} returned {len(found)} shards with {sum(found)} samples, and the index of the '
                f'stream has {len(expected)} with {sum(expected)}',
                'config-shards',
                stream.remote or stream.local,
                'choose samples with a view instead: `Stream(view=...)`',
            )


class ShardAccess(Trained):
    """Control of the shards in the local folders."""

    def _make_local(self, start: int, stop: int, /) -> None:
        if self._fetches_in_python:
            self._fetching().prepare_samples(start, stop)

    def _is_local(self, sample_id: int, /) -> bool:
        if self._fetches_in_python:
            return bool(self._fetching().has(sample_id))
        return super()._is_local(sample_id)

    @property
    def cache_usage(self) -> int:
        """The size of shards and indexes in the local folders, in bytes."""
        return int(self._fetching().usage())

    def prepare_shard(self, shard_id: int, blocking: bool = True) -> None:
        """Downloads a shard to the local folder unless it is already there.

        Args:
            shard_id: The number of the shard across all streams.
            blocking: Ignored, for compatibility: the call always waits.
        """
        self._fetching().prepare(check.place('shard_id', shard_id, self.num_shards, 'shard'))

    def evict_shard(self, shard_id: int) -> None:
        """Removes a shard from the local folder.

        Args:
            shard_id: The number of the shard across all streams.
        """
        self._fetching().evict(check.place('shard_id', shard_id, self.num_shards, 'shard'))

    def evict_coldest_shard(self) -> None:
        """Removes the least recently used shard from the local folder.

        Raises:
            ValueError: No shard is in the local folder.
        """
        self._fetching().evict_coldest()
