"""Batching in which each batch of a rank comes from one stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardmill.base.batching._work import work

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from shardmill.base.world import World

__all__ = ['generate_work_device_per_stream_batching']


def generate_work_device_per_stream_batching(
    dataset: Any, world: World, epoch: int, sample_in_epoch: int
) -> NDArray[np.int64]:
    """Takes each batch of a rank from one stream. Resumes only after a whole global batch.

    See `generate_work`.
    """
    return work('device_per_stream', dataset, world, epoch, sample_in_epoch)
