"""Steps and samples that a dataset leaves out, while everything else stays as it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Union

from shardmill.base import _arguments as check
from shardmill.errors import UsageError

if TYPE_CHECKING:
    from shardmill.lineage import Delivery, StepSamples

    SkippedStep = Union[int, tuple[int, int], StepSamples, Delivery]

#: The most skipped samples and skipped steps: a state records them, and has at most 64 KiB.
MAX_ENTRIES = 1_000


class _Steps(NamedTuple):
    """Skipped steps of an epoch, as samples of the epoch."""

    epoch: int
    first: int
    end: int


class Skips:
    """Skipped steps and samples.

    Args:
        steps: Steps from the start of their epoch, each with its epoch.
        places: Steps by their epoch and how many samples of it were delivered before.
        samples: Sample numbers, sorted.
    """

    def __init__(
        self,
        steps: Iterable[tuple[int, int]] = (),
        places: Iterable[tuple[int, int]] = (),
        samples: Iterable[int] = (),
    ) -> None:
        self.steps = sorted(set(steps))
        self.places = sorted(set(places))
        self.samples = sorted(set(samples))

    @staticmethod
    def of_arguments(
        skip: Optional[Iterable[SkippedStep]], skip_samples: Optional[Iterable[int]], size: int
    ) -> Skips:
        """Checks the arguments of a dataset with so many samples."""
        steps, places = [], []
        for one in _listed('skip', skip):
            if hasattr(one, 'sample_in_epoch'):
                # A `StepSamples` or `Delivery`.
                places.append((one.epoch, one.sample_in_epoch))
            elif isinstance(one, (tuple, list)) and len(one) == 2:
                steps.append((check.whole('skip', one[0]), check.whole('skip', one[1])))
            else:
                steps.append((0, check.whole('skip', one)))
        samples = [
            check.whole('skip_samples', one, 0, max(size - 1, 0))
            for one in _listed('skip_samples', skip_samples)
        ]
        return Skips(steps, places, samples)

    def __bool__(self) -> bool:
        return bool(self.steps or self.places or self.samples)

    def with_state(self, state: Optional[Mapping[str, Any]], global_batch: int) -> Recorded:
        """Returns these skips and those of a state, in samples of the epoch."""
        before = Recorded.of_state(state)
        steps = [
            _Steps(epoch, step * global_batch, (step + 1) * global_batch)
            for epoch, step in self.steps
        ]
        steps += [_Steps(epoch, first, first + global_batch) for epoch, first in self.places]
        recorded = Recorded(
            sorted({*before.steps, *steps}), sorted({*before.samples, *self.samples})
        )
        for name, listed in (('skip', recorded.steps), ('skip_samples', recorded.samples)):
            if len(listed) > MAX_ENTRIES:
                raise UsageError(
                    f'{name} has {len(listed)} entries with those of the state; a state records at most {MAX_ENTRIES}',
                    'config-skip',
                    name,
                )
        return recorded


class Recorded(NamedTuple):
    """Skips as a state records them."""

    steps: Sequence[_Steps]
    samples: Sequence[int]

    @staticmethod
    def of_state(state: Optional[Mapping[str, Any]]) -> Recorded:
        """Returns the skips of a state."""
        record = None if state is None else state.get('skip')
        if record is None:
            return Recorded([], [])
        try:
            steps = [_Steps(*map(_number, one)) for one in record['steps']]
            return Recorded(steps, [_number(one) for one in record['samples']])
        except (KeyError, TypeError, ValueError):
            raise UsageError(
                f"The StreamingDataset state dict has {record!r:.200} as 'skip' and cannot be resumed",
                'state-value',
            ) from None

    def as_state(self) -> dict[str, Any]:
        """Returns the entry of a state."""
        return {'steps': [list(one) for one in self.steps], 'samples': list(self.samples)}

    def of_epoch(self, epoch: int) -> list[tuple[int, int]]:
        """Returns the skipped samples of an epoch, as ranges in order."""
        return [(one.first, one.end) for one in self.steps if one.epoch == epoch]


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError(value)
    return value


def _listed(name: str, values: Any) -> list[Any]:
    if values is None:
        return []
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        check.refuse_type(name, values, 'a list')
    listed = list(values)
    if len(listed) > MAX_ENTRIES:
        raise UsageError(
            f'{name} has {len(listed)} entries, and a state records at most {MAX_ENTRIES}',
            'config-skip',
            name,
        )
    return listed


def passed(start: int, given: int, ranges: Iterable[tuple[int, int]]) -> int:
    """Returns the position in an epoch after so many samples were delivered from `start` on, without skipped ones."""
    position = start
    for first, end in sorted(ranges):
        if end <= position:
            continue
        if given <= first - position:
            break
        given -= max(first - position, 0)
        position = end
    return position + given
