from collections.abc import Sequence
from typing import Optional

from shardmill._core.options import EpochOptions
from shardmill._core.reader import Reader

def samples_of_step(
    reader: Reader, options: EpochOptions, step: int, rank: Optional[int] = None
) -> tuple[int, int, list[tuple[int, int, int, bool]]]:
    """Returns the epoch, how many of its samples were delivered before the step, and the samples of the step.

    Each sample is its rank, its position in the batch of the rank, its number, and whether it is repeated.
    """

def steps_of_sample(
    reader: Reader, options: EpochOptions, sample: int, epochs: int
) -> list[tuple[int, int, int, int, int, bool]]:
    """Returns the steps of this and the following epochs that delivered a sample.

    Each is the epoch, the step, how many samples of the epoch were delivered before it, the rank, the position in its
    batch, and whether the sample is repeated.
    """

def places_of(
    reader: Reader, samples: Sequence[int]
) -> tuple[
    list[tuple[int, int, int, str, int, Optional[str], Optional[int]]],
    list[tuple[Optional[str], Optional[str], Optional[int], Optional[str]]],
]:
    """Returns the places of samples, and what is known about the source of each stream.

    A place is the sample, its stream, its shard and the name of the shard, its position in the shard, and the file and
    row of the source. A source is its kind, the id and the version of the table, and what is unknown.
    """
