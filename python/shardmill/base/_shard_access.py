"""Shards that a program fetches and removes itself."""

from __future__ import annotations

from shardmill.base import _arguments as check
from shardmill.base._trained import Trained


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
