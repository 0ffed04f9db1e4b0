"""How many samples of each shard an epoch takes, and which."""

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
    """How many samples to draw from each shard, int64, one number for each shard.

    Args:
        samples_per_shard: How many samples each shard has.
        choose: How many to draw from all of them together; may be more than there are.
        granularity: How many are drawn from a shard at a time.
        seed: The seed of the run.
        epoch: The epoch.
        use_epoch: Whether the epoch is added to the seed.

    Raises:
        ValueError: A number is negative, or the granularity is 0.
    """
    counts = _core.sampling(
        int64_bytes(samples_per_shard),
        whole('choose', choose),
        whole('granularity', granularity, 1),
        whole('seed', seed),
        whole('epoch', epoch),
        bool(use_epoch),
    )
    return int64_array(counts)


def resample_streams(
    dataset: Any, epoch: int, stream_id: Optional[int] = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """What `StreamingDataset.resample_streams` returns, from the attributes of the dataset.

    Args:
        dataset: Has `streams` (each with `choose`), `shard_offset_per_stream`, `shards_per_stream`,
            `samples_per_shard`, `sampling_granularity`, `sampling_method`, `shuffle_seed` and
            `epoch_seed_change`.
        epoch: The epoch.
        stream_id: The stream; None stands for all of them.

    Returns:
        The sizes of the units (a shard as often as it is used whole, and what is drawn of it in
        part), and the sample id of each of their samples in a row; int64 both.
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
        whole('sampling_granularity', dataset.sampling_granularity, 1),
        whole('shuffle_seed', dataset.shuffle_seed),
        whole('epoch', epoch),
        bool(dataset.epoch_seed_change),
        dataset.sampling_method == 'balanced',
    )
    return int64_array(units), int64_array(samples)
