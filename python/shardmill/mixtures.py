"""Mixtures: weights of streams that change over the samples of a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Union

from shardmill.base import _arguments as check
from shardmill.errors import UsageError

if TYPE_CHECKING:
    from shardmill.base._typing import Path

__all__ = ['Mixture', 'MixtureWindow']


class MixtureWindow(NamedTuple):
    """Samples of an epoch between two changes of the weights, or between two points of a ramp and the epoch."""

    #: The first sample of the run in the window, and the exclusive end.
    from_sample: int
    to_sample: int
    #: The exact share of each stream, in samples.
    planned: list[float]
    #: The samples of each stream.
    taken: list[int]


class Mixture:
    """Weights of the streams of a dataset, which change over the samples of a run.

    Positions count the samples that all ranks together have received since the run began, over all epochs. In each
    window between two changes, a stream gets its exact share, to within one sample.

    Args:
        weights: A weight for each stream from the start on. Only their relations matter.
        max_epochs: How often each stream is read at most; ``None`` for a stream without a limit. A stream that is read
            again gets a new shuffle.
        when_exhausted: What happens when a stream has been read that often: ``drop`` gives its share to the others,
            ``stop`` ends the run.

    Raises:
        ValueError: An argument is out of range.
    """

    def __init__(
        self,
        weights: Sequence[float],
        *,
        max_epochs: Optional[Sequence[Optional[int]]] = None,
        when_exhausted: str = 'drop',
    ) -> None:
        limits = None
        if max_epochs is not None:
            limits = [None if one is None else check.whole('max_epochs', one) for one in max_epochs]
        when = check.choice('when_exhausted', when_exhausted, ('drop', 'stop'))
        self._schedule = [_point(0, weights, False)]
        self._limits = limits
        self._when_exhausted = when

    def step(self, from_sample: Union[int, str], weights: Sequence[float]) -> Mixture:
        """Returns a mixture whose weights are these from a sample on.

        Args:
            from_sample: The sample of the run. Accepts text such as ``'10m'``.
            weights: A weight for each stream.
        """
        return self._with(_point(samples_of_run('from_sample', from_sample), weights, False))

    def ramp(self, to_sample: Union[int, str], weights: Sequence[float]) -> Mixture:
        """Returns a mixture whose weights change linearly from the last ones to these, and then stay.

        Args:
            to_sample: The sample of the run at which the weights are reached. Accepts text such as ``'10m'``.
            weights: A weight for each stream.
        """
        return self._with(_point(samples_of_run('to_sample', to_sample), weights, True))

    def _with(self, point: dict[str, Any]) -> Mixture:
        last = self._schedule[-1]['from_sample']
        if point['from_sample'] <= last:
            raise UsageError(
                f'sample {point["from_sample"]} does not follow sample {last}: add steps and ramps in order',
                'config-mixture',
                'mixture',
            )
        new = Mixture.__new__(Mixture)
        new._schedule = [*self._schedule, point]
        new._limits = self._limits
        new._when_exhausted = self._when_exhausted
        return new

    def to_json(self) -> str:
        """Returns the mixture as JSON, which `shardmill plan --mixture` reads from a file."""
        described: dict[str, Any] = {'schedule': self._schedule}
        if self._limits is not None:
            described['epochs'] = self._limits
        described['when_exhausted'] = self._when_exhausted
        return json.dumps(described)

    def save(self, file: Path) -> None:
        """Writes the mixture to a file for ``shardmill plan --mixture``.

        Args:
            file: The path of the file.
        """
        with open(file, 'w', encoding='utf-8') as out:
            out.write(self.to_json() + '\n')

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mixture) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __repr__(self) -> str:
        return f'Mixture({self.to_json()})'


def samples_of_run(name: str, value: Union[int, str, None]) -> int:
    """Returns a number of samples, which may be text."""
    found = check.epoch_samples(value, name) if isinstance(value, str) else check.whole(name, value)
    return found or 0


def _point(sample: int, weights: Sequence[float], is_ramp: bool) -> dict[str, Any]:
    listed = weights_of(weights)
    return {'from_sample': sample, 'weights': listed, 'ramp': is_ramp}


def weights_of(weights: Sequence[float]) -> list[float]:
    """Checks the weights of all streams."""
    if isinstance(weights, (str, bytes)) or not isinstance(weights, Sequence):
        check.refuse_type('weights', weights, 'a list of numbers')
    return [float(check.number('weights', weight)) for weight in weights]
