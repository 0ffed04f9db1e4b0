"""The mixture of a dataset: which one applies, and changes while a run progresses."""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any, Optional, Union

from shardmill import _core
from shardmill.base import _arguments as check
from shardmill.base._sharding import RankLayout
from shardmill.base._state import config_of
from shardmill.errors import UsageError
from shardmill.mixtures import Mixture, MixtureWindow, samples_of_run, weights_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shardmill.base.stream import Stream


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
