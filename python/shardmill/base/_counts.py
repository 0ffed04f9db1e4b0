"""The numbers of shards and samples in the streams of a dataset, and their offsets."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from shardmill.base._stored import Stored

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from shardmill.base.spanner import Spanner


class Counts(Stored):
    """Tables that are computed on first use."""

    num_streams: int

    def _sizes(self) -> list[NDArray[np.int64]]:
        import numpy as np

        return [np.frombuffer(sizes, np.int64) for sizes in self._here().shard_sizes()]

    @cached_property
    def samples_per_shard(self) -> NDArray[np.int64]:
        """Samples of each shard. Shape: ``[shards]``."""
        import numpy as np

        return np.concatenate(self._sizes())

    @cached_property
    def sample_offset_per_shard(self) -> NDArray[np.int64]:
        """The first sample of each shard. Shape: ``[shards]``."""
        sizes = self.samples_per_shard
        offsets: NDArray[np.int64] = sizes.cumsum() - sizes
        return offsets

    @cached_property
    def shards_per_stream(self) -> NDArray[np.int64]:
        """Shards of each stream. Shape: ``[streams]``."""
        import numpy as np

        return np.array([len(sizes) for sizes in self._sizes()], np.int64)

    @cached_property
    def shard_offset_per_stream(self) -> NDArray[np.int64]:
        """The first shard of each stream. Shape: ``[streams]``."""
        shards = self.shards_per_stream
        offsets: NDArray[np.int64] = shards.cumsum() - shards
        return offsets

    @cached_property
    def samples_per_stream(self) -> NDArray[np.int64]:
        """Samples of each stream. Shape: ``[streams]``."""
        import numpy as np

        return np.array([sizes.sum() for sizes in self._sizes()], np.int64)

    @cached_property
    def sample_offset_per_stream(self) -> NDArray[np.int64]:
        """The first sample of each stream. Shape: ``[streams]``."""
        samples = self.samples_per_stream
        offsets: NDArray[np.int64] = samples.cumsum() - samples
        return offsets

    @cached_property
    def stream_per_shard(self) -> NDArray[np.int64]:
        """The stream of each shard. Shape: ``[shards]``."""
        import numpy as np

        return np.repeat(np.arange(self.num_streams), self.shards_per_stream)

    @cached_property
    def spanner(self) -> Spanner:
        """Maps a sample number to its shard and its position in the shard."""
        from shardmill.base.spanner import Spanner

        return Spanner(self.samples_per_shard)
