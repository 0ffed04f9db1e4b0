"""What the parts of a dataset use of it."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import TYPE_CHECKING, Any, Optional, Protocol

from shardmill.base.array import Array
from shardmill.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from shardmill import _core
    from shardmill.base._shared_state import SharedState
    from shardmill.base.format.base.reader import Reader
    from shardmill.base.spanner import Spanner
    from shardmill.base.stream import Stream
    from shardmill.base.world import World
    from shardmill.packing import Packing
    from shardmill.windows import Window


class Ready(threading.local):
    """A sample that the iteration of this thread has read, and its number."""

    sample: Optional[tuple[int, Any]] = None


class Stored(Array):
    """Samples that a reader reads by number."""

    num_samples: int

    def _here(self) -> _core.Reader:
        """Returns the reader of this process."""
        raise NotImplementedError

    @cached_property
    def _columns(self) -> Schema:
        """The columns of the shards, with those that mark nulls."""
        return Schema.of_shards(self._here().schemas(), is_stored=True)

    @cached_property
    def _sample_columns(self) -> Schema:
        """The columns of the samples."""
        return Schema.of_shards(self._here().schemas())

    def _make_local(self, start: int, stop: int, /) -> None:
        """Makes the shards of samples available, if the reader does not fetch them itself."""

    def _is_local(self, sample_id: int, /) -> bool:
        """Returns whether a sample can be read without fetching or decompressing its shard."""
        return self._here().is_here(sample_id)


class Trained(Protocol):
    """A dataset with a sample order, whose next epoch can be begun."""

    streams: Sequence[Stream]
    window: Optional[Window]
    packing: Optional[Packing]
    cache_limit: Optional[int]
    predownload: Optional[int]
    batch_size: Optional[int]
    replication: Optional[int]
    num_canonical_nodes: Optional[int]
    shuffle: bool
    shuffle_algo: str
    shuffle_seed: int
    shuffle_block_size: Optional[int]
    sampling_method: str
    sampling_granularity: int
    partition_algo: str
    batching_method: str
    epoch_size: int
    next_epoch: int
    _epoch_size_given: Optional[int]
    _default_block_size: Optional[int]
    _order_identity: Optional[tuple[dict[str, Any], str]]
    _own_state: Optional[dict[str, Any]]
    _progress: Any
    _shared: SharedState
    _parallel_rank_world: World
    _is_fetched_here: bool
    _as_batches: bool
    _ready: Ready
    _transform_seconds: float

    @property
    def shards(self) -> Sequence[Reader]: ...

    @property
    def samples_per_shard(self) -> NDArray[np.int64]: ...

    @property
    def stream_per_shard(self) -> NDArray[np.int64]: ...

    @property
    def spanner(self) -> Spanner: ...

    @property
    def _columns(self) -> Schema: ...

    @property
    def _sample_columns(self) -> Schema: ...

    def _here(self) -> _core.Reader: ...

    def _begin(self, threads: Optional[int] = None) -> Any: ...

    def _epoch_items(self) -> int: ...

    def _begin_order(self) -> _core.Order: ...

    def _fetching(self) -> Any: ...

    def _is_plain(self) -> bool: ...

    def _mixture_json(self) -> Optional[str]: ...

    def _resume(self, world: World, epoch: int, /) -> tuple[int, int]: ...

    def _set_world(self) -> World: ...

    def state_dict(
        self, num_samples: Optional[int] = None, from_beginning: bool = True
    ) -> dict[str, Any]: ...

    def __getitem__(self, at: Any, /) -> Any: ...

    def __iter__(self) -> Iterator[Any]: ...
