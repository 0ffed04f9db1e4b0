"""Batching in which each global batch has the same share of each stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardmill.base.batching._work import work

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from shardmill.base.world import World

__all__ = ['generate_work_stratified_batching']


def generate_work_stratified_batching(
    dataset: Any, world: World, epoch: int, sample_in_epoch: int
) -> NDArray[np.int64]:
    """Gives each global batch the same share of each stream. Resumes only after a whole global batch.

    See `generate_work`.
    """
    return work('stratified', dataset, world, epoch, sample_in_epoch)
