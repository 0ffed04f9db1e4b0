"""Mixtures: weights of streams that change over the samples of a run."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Union

from shardmill import _core
from shardmill.base import _arguments as check
from shardmill.base._sharding import RankLayout
from shardmill.base._state import config_of
from shardmill.errors import UsageError

if TYPE_CHECKING:
    from shardmill.base._typing import Path
    from shardmill.base.stream import Stream

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


# The mixture of a dataset: which one applies, and changes while a run progresses.


def check_mixture(mixture: Mixture, streams: Sequence[Stream]) -> str:
    """Checks the argument of a dataset and returns the mixture as JSON."""
    if not isinstance(mixture, Mixture):
        check.refuse_type('mixture', mixture, 'a Mixture')
    for place, stream in enumerate(streams):
        for name in ('proportion', 'repeat', 'choose'):
            if getattr(stream, f'_{name}', None) is not None:
                raise UsageError(
                    f'stream {place} has `{name}`: with a mixture, streams have no weights of their own',
                    'config-mixture',
                    'mixture',
                )
    return mixture.to_json()


def set_weights(
    dataset: Any,
    weights: Sequence[float],
    from_step: Optional[int],
    from_sample: Union[int, str, None],
) -> None:
    """Changes the weights of the streams of a dataset, as `StreamingDataset.set_weights` describes.

    The mixture that applies is shared with the workers: ``applied``, with ``before`` for the epochs up to ``epoch``
    that had already begun when it was changed.
    """
    applied = dataset._mixture_json()
    if applied is None:
        raise UsageError(
            'the dataset has no mixture; pass `mixture` to StreamingDataset',
            'config-mixture',
            'mixture',
        )
    if (from_step is None) == (from_sample is None):
        raise UsageError('give either `from_step` or `from_sample`', 'config-value', 'from_step')
    if from_step is not None:
        world = dataset._set_world()
        order = RankLayout(world, dataset.replication, dataset.batch_size)
        step = check.whole('from_step', from_step)
        epoch, _ = dataset._resume(dataset._parallel_rank_world, max(dataset.next_epoch - 1, 0))
        sample = epoch * dataset.epoch_size + step * order.global_batch
    else:
        sample = samples_of_run('from_sample', from_sample)
    point = {'from_sample': sample, 'weights': weights_of(weights)}
    mixture: dict[str, Any] = json.loads(applied)
    mixture.setdefault('changes', []).append([point])
    changed = json.dumps(mixture)
    # Raises an error for invalid weights.
    windows_of(dataset, changed, 0)
    record = dataset._shared.mixture or {}
    epoch = dataset.next_epoch
    before = record['before'] if record.get('epoch') == epoch else applied
    dataset._shared.mixture = {'applied': changed, 'before': before, 'epoch': epoch}


def windows_of(dataset: Any, mixture: str, epoch: int) -> list[MixtureWindow]:
    """Returns what an epoch takes of each stream with a mixture."""
    sizes = [int(size) for size in dataset.samples_per_stream]
    found = _core.mixture_windows(mixture, sizes, dataset.epoch_size, epoch)
    return [MixtureWindow(*window) for window in found]


def mixture_of_state(dataset: Any, epoch: int, position: int) -> dict[str, Any]:
    """Returns the mixture that a state at a position of an epoch records."""
    record = dataset._shared.mixture
    mixture: dict[str, Any] = json.loads(dataset._mixture_json())
    if record is not None and epoch < record.get('epoch', 0):
        before: dict[str, Any] = json.loads(record['before'])
        new = mixture.get('changes', [])[len(before.get('changes', [])) :]
        first = min((change[0]['from_sample'] for change in new), default=None)
        if first is not None and first < epoch * dataset.epoch_size + position:
            warnings.warn(
                f'The weights were changed from sample {first} on, but the epoch that passed it had begun '
                f'before. The state records the weights that it followed.',
                stacklevel=3,
            )
            return before
    return mixture


def continued_mixture(dataset: Any, state: Mapping[str, Any], order: RankLayout) -> Optional[str]:
    """Returns the mixture with which the run continues from a state, as JSON."""
    recorded = state.get('mixture')
    given: Optional[str] = dataset._mixture_json()
    if recorded is None:
        return given
    config = {**config_of(dataset, order), 'mixture': given}
    epoch = max(state['epoch'], 0)
    resume = (epoch, state['sample_in_epoch'], state['shuffle_seed'], None, None)
    options = _core.EpochOptions(**config, epoch=epoch, resume=resume)
    reader: _core.Reader = dataset._here()
    return reader.continued_mixture(options, json.dumps(recorded))
