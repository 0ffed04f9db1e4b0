"""An epoch as a whole: which sample goes to which node, rank, worker and batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable

from shardmill.base._arguments import choice
from shardmill.base.batching.device_per_stream import generate_work_device_per_stream_batching
from shardmill.base.batching.per_stream import generate_work_per_stream_batching
from shardmill.base.batching.random import generate_work_random_batching
from shardmill.base.batching.stratified import generate_work_stratified_batching

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from shardmill.base.dataset import StreamingDataset
    from shardmill.base.world import World

__all__ = [
    'batching_methods',
    'generate_work',
    'generate_work_device_per_stream_batching',
    'generate_work_per_stream_batching',
    'generate_work_random_batching',
    'generate_work_stratified_batching',
]

batching_methods: dict[str, Callable[[StreamingDataset, World, int, int], NDArray[np.int64]]] = {
    'random': generate_work_random_batching,
    'stratified': generate_work_stratified_batching,
    'per_stream': generate_work_per_stream_batching,
    'device_per_stream': generate_work_device_per_stream_batching,
}


def generate_work(
    batching_method: str,
    dataset: StreamingDataset,
    world: World,
    epoch: int,
    sample_in_epoch: int,
) -> NDArray[np.int64]:
    """The samples of an epoch from where it starts, all of them at once: 8 bytes a sample and more.

    Args:
        batching_method: ``random``, ``stratified``, ``per_stream`` or ``device_per_stream``.
        dataset: A dataset, or something with its attributes.
        world: The nodes, ranks and workers; which of them this is does not matter.
        epoch: The epoch.
        sample_in_epoch: How many samples all ranks together were given before.

    Returns:
        Sample ids by node, rank, worker, batch of the worker and place in the batch, int64; -1 is
        padding.

    Raises:
        KeyError: There is no such batching method.
        RuntimeError: The number of canonical nodes is not known yet.
        ValueError: Such an epoch cannot be made.
    """
    return batching_methods[choice('batching_method', batching_method, batching_methods)](
        dataset, world, epoch, sample_in_epoch
    )
