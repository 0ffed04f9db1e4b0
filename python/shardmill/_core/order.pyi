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

def partitions(options: EpochOptions, samples: int) -> tuple[bytearray, bool, bool]:
    """Returns positions by node, rank, worker, batch and position in the batch.

    Also returns whether there are too few samples for the canonical nodes, and for the ranks of a node.
    """

def shuffle(
    algo: str, sizes: bytes, canonical_nodes: int, seed: int, epoch: int, block: int
) -> bytearray:
    """Returns a big id by position: an index into the samples of all units in sequence."""

def sample_counts(sizes: bytes, choose: int, sampling: Sampling) -> bytearray:
    """Returns how many samples to draw from each shard."""

def resample(
    shards: bytes, streams: list[tuple[int, int, int]], sampling: Sampling
) -> tuple[bytearray, bytearray]:
    """Returns the sizes of units, and the sample ids of all units in sequence.

    A stream is its first shard, the exclusive end of its shards, and how many samples to choose.
    """

def work(
    options: EpochOptions, epoch_seed: bool, sources: list[tuple[bytes, bytes, float]]
) -> bytearray:
    """Returns an epoch: sample ids by node, rank, worker, batch and position.

    `epoch_seed` is whether the epoch is added to the seed for the order of batches. A source is the sizes of its units,
    the sample ids of all units in sequence, and its proportion.
    """

def replicate(nodes: int, ranks: int, replication: int) -> tuple[int, int]:
    """Returns the nodes and ranks per node if each group of consecutive ranks receives the same samples."""
