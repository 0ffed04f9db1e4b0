"""Batching that mixes all streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardmill.base.batching._work import work

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from shardmill.base.world import World

__all__ = ['generate_work_random_batching']


def generate_work_random_batching(
    dataset: Any, world: World, epoch: int, sample_in_epoch: int
) -> NDArray[np.int64]:
    """Mixes all streams.

    See `generate_work`.
    """
    return work('random', dataset, world, epoch, sample_in_epoch)
