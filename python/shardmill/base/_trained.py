"""What the parts of a dataset use of one another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from shardmill.base._counts import Counts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shardmill import _core
    from shardmill.base._shared_state import SharedState
    from shardmill.base._stored import Ready
    from shardmill.base.format.base.reader import Reader
    from shardmill.base.stream import Stream
    from shardmill.base.world import World
    from shardmill.packing import Packing
    from shardmill.windows import Window


class Trained(Counts):
    """A dataset with a sample order, whose next epoch can be begun."""

    streams: Sequence[Stream]
    num_shards: int
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
    _given_mixture: Optional[str]
    _order_identity: Optional[tuple[dict[str, Any], str]]
    _own_state: Optional[dict[str, Any]]
    _progress: Any
    _shared: SharedState
    _parallel_rank_world: World
    _fetches_in_python: bool
    _as_batches: bool
    _ready: Ready
    _transform_seconds: float

    if TYPE_CHECKING:

        @property
        def shards(self) -> list[Reader]: ...
        def _begin(self, threads: Optional[int] = None) -> Any: ...
        def _begin_order(self) -> _core.Order: ...
        def _epoch_items(self) -> int: ...
        def _fetching(self) -> Any: ...
        def _is_plain(self) -> bool: ...
        def _mixture_json(self) -> Optional[str]: ...
        def _resume(self, world: World, epoch: int, /) -> tuple[int, int]: ...
        def _set_world(self) -> World: ...
        def __iter__(self) -> Iterator[Any]: ...
        def state_dict(
            self, num_samples: Optional[int] = None, from_beginning: bool = True
        ) -> dict[str, Any]: ...
