"""What a dataset's `which` returns: the samples of a step, and the steps that delivered a sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

__all__ = ['Delivery', 'SampleOrigin', 'SampleSteps', 'StepSample', 'StepSamples', 'StreamOrigin']


@dataclass(frozen=True)
class StreamOrigin:
    """What a stream records about the source of its samples.

    Attributes:
        kind: The kind of the source, such as ``parquet`` or ``delta``.
        table_id: The id of the Delta table.
        table_version: The version of the Delta table.
        unknown: What is unknown about file and row, and why; ``None`` if both are known.
    """

    kind: Optional[str]
    table_id: Optional[str]
    table_version: Optional[int]
    unknown: Optional[str]


@dataclass(frozen=True)
class SampleOrigin:
    """Where a sample is stored, and where it comes from.

    Attributes:
        sample: The number of the sample across all streams.
        stream: The number of the stream.
        shard: The number of the shard in its stream.
        shard_name: The name of its file.
        index: The position in the shard, deleted samples counted.
        key: The key, if the sample has one and keys are read.
        file: The file of the source, if it is known.
        row: The row, counted over all rows that the conversion read, if it is known.
        source: What the stream records about the source.
    """

    sample: int
    stream: int
    shard: int
    shard_name: str
    index: int
    key: Optional[str]
    file: Optional[str]
    row: Optional[int]
    source: StreamOrigin


@dataclass(frozen=True)
class StepSample:
    """A sample of a step.

    Attributes:
        rank: The rank that receives it.
        position: The position in the batch of the rank.
        repeated: Whether it is padding.
        origin: Where it is stored, and where it comes from.
    """

    rank: int
    position: int
    repeated: bool
    origin: SampleOrigin


@dataclass(frozen=True)
class StepSamples:
    """The samples of a step.

    Attributes:
        epoch: The epoch.
        step: The step, from the start of the epoch or from where it was resumed.
        sample_in_epoch: How many samples of the epoch all ranks received before.
        samples: The samples, by rank and position.
    """

    epoch: int
    step: int
    sample_in_epoch: int
    samples: tuple[StepSample, ...]


@dataclass(frozen=True)
class Delivery:
    """A step that delivered a sample.

    Attributes:
        epoch: The epoch.
        step: The step, from the start of the epoch or from where it was resumed.
        sample_in_epoch: How many samples of the epoch all ranks received before.
        rank: The rank that received it.
        position: The position in the batch of the rank.
        repeated: Whether it was padding there.
    """

    epoch: int
    step: int
    sample_in_epoch: int
    rank: int
    position: int
    repeated: bool


@dataclass(frozen=True)
class SampleSteps:
    """The steps that delivered a sample.

    Attributes:
        origin: Where the sample is stored, and where it comes from.
        steps: The steps, in order.
    """

    origin: SampleOrigin
    steps: tuple[Delivery, ...]
