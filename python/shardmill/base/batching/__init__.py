"""Assigns the samples of an epoch to nodes, ranks, workers and batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from shardmill.base._arguments import choice
from shardmill.base.batching.device_per_stream import generate_work_device_per_stream_batching
from shardmill.base.batching.per_stream import generate_work_per_stream_batching
from shardmill.base.batching.random import generate_work_random_batching
from shardmill.base.batching.stratified import generate_work_stratified_batching

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from shardmill.base.world import World

__all__ = [
    'batching_methods',
    'generate_work',
    'generate_work_device_per_stream_batching',
    'generate_work_per_stream_batching',
    'generate_work_random_batching',
    'generate_work_stratified_batching',
]

batching_methods: dict[str, Callable[[Any, World, int, int], NDArray[np.int64]]] = {
    'random': generate_work_random_batching,
    'stratified': generate_work_stratified_batching,
    'per_stream': generate_work_per_stream_batching,
    'device_per_stream': generate_work_device_per_stream_batching,
}


def generate_work(
    batching_method: str,
    dataset: Any,
    world: World,
    epoch: int,
    sample_in_epoch: int,
) -> NDArray[np.int64]:
    """Returns all samples of an epoch from its start position. Needs at least 8 bytes of memory per sample.

    Args:
        batching_method: ``random``, ``stratified``, ``per_stream`` or ``device_per_stream``.
        dataset: A dataset, or an object with the same attributes.
        world: The nodes, ranks and workers; the number of this worker is not used.
        epoch: The epoch.
        sample_in_epoch: How many samples all ranks together have already received.

    Returns:
        Sample ids by node, rank, worker, batch of the worker and position in the batch, int64; -1 is padding.

    Raises:
        KeyError: The batching method is unknown.
        RuntimeError: The number of canonical nodes is not known yet.
        ValueError: The arguments do not allow such an epoch.
    """
    return batching_methods[choice('batching_method', batching_method, batching_methods)](
        dataset, world, epoch, sample_in_epoch
    )
