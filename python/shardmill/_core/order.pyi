"""Complete orders as arrays: partitions, shuffles, sampling and epochs. Arrays are little-endian int64."""

from shardmill._core.options import EpochOptions

class Sampling:
    """How samples are drawn from shards.

    `epoch_counts` and `epoch_members` are whether the epoch is added to the seed: for how many samples are drawn from
    each shard, and for which.
    """

    def __new__(
        cls, granularity: int, seed: int, epoch: int, epoch_counts: bool, epoch_members: bool
    ) -> Sampling: ...

def partitions(options: EpochOptions, samples: int) -> tuple[bytearray, bool, bool]: ...
def shuffle(
    algo: str, sizes: bytes, canonical_nodes: int, seed: int, epoch: int, block: int
) -> bytearray: ...
def sample_counts(sizes: bytes, choose: int, sampling: Sampling) -> bytearray: ...
def resample(
    shards: bytes, streams: list[tuple[int, int, int]], sampling: Sampling
) -> tuple[bytearray, bytearray]: ...
def work(
    options: EpochOptions, epoch_seed: bool, sources: list[tuple[bytes, bytes, float]]
) -> bytearray: ...
def mixture_windows(
    mixture: str, sizes: list[int], epoch_size: int, epoch: int
) -> list[tuple[int, int, list[float], list[int]]]: ...
def replicate(nodes: int, ranks: int, replication: int) -> tuple[int, int]: ...
