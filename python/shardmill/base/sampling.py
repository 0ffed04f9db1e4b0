"""Draws the samples of an epoch from shards and streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from shardmill import _core
from shardmill.base._arguments import place, whole
from shardmill.base._numbers import int64_array, int64_bytes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ['get_sampling']


def get_sampling(
    samples_per_shard: NDArray[np.int64],
    choose: int,
    granularity: int,
    seed: int,
    epoch: int,
    use_epoch: bool,
) -> NDArray[np.int64]:
    """Returns how many samples to draw from each shard, as int64.

    Args:
        samples_per_shard: The number of samples in each shard.
        choose: How many samples to draw in total, which may exceed the number of samples.
        granularity: How many samples are drawn from a shard at a time.
        seed: The seed of the run.
        epoch: The epoch.
        use_epoch: Whether to add the epoch to the seed.

    Raises:
        ValueError: A number is negative, or the granularity is 0.
    """
    counts = _core.sample_counts(
        int64_bytes(samples_per_shard),
        whole('choose', choose),
        _core.Sampling(
            whole('granularity', granularity, 1),
            whole('seed', seed),
            whole('epoch', epoch),
            epoch_counts=bool(use_epoch),
            epoch_members=bool(use_epoch),
        ),
    )
    return int64_array(counts)


def resample_streams(
    dataset: Any, epoch: int, stream_id: Optional[int] = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Implements `StreamingDataset.resample_streams`, using only attributes of the dataset.

    Args:
        dataset: An object with `streams` (each with `choose`), `shard_offset_per_stream`, `shards_per_stream`,
            `samples_per_shard`, `sampling_granularity`, `sampling_method`, `shuffle_seed` and `epoch_seed_change`.
        epoch: The epoch.
        stream_id: The stream; None for all streams.

    Returns:
        The sizes of the units, and the sample ids of all units in sequence; both int64. A shard is one unit for each
        time it is used completely, and one for a partial draw.
    """
    count = len(dataset.streams)
    wanted = range(count)
    if stream_id is not None:
        number = place('stream_id', stream_id, count, 'stream')
        wanted = range(number, number + 1)
    streams = []
    for number in wanted:
        first = int(dataset.shard_offset_per_stream[number])
        last = first + int(dataset.shards_per_stream[number])
        streams.append((first, last, whole('choose', dataset.streams[number].choose)))
    units, samples = _core.resample(
        int64_bytes(dataset.samples_per_shard),
        streams,
        _core.Sampling(
            whole('sampling_granularity', dataset.sampling_granularity, 1),
            whole('shuffle_seed', dataset.shuffle_seed),
            whole('epoch', epoch),
            epoch_counts=bool(dataset.epoch_seed_change),
            epoch_members=dataset.sampling_method == 'balanced',
        ),
    )
    return int64_array(units), int64_array(samples)
