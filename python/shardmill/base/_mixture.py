"""The mixture of a dataset: which one applies, and changes while a run progresses."""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any, Optional, Union

from shardmill import _core
from shardmill.base import _arguments as check
from shardmill.base._sharding import RankLayout
from shardmill.base._state import config_of
from shardmill.base._trained import Trained
from shardmill.errors import UsageError
from shardmill.mixtures import Mixture, MixtureWindow, samples_of_run, weights_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shardmill.base.stream import Stream


def check_mixture(mixture: Optional[Mixture], streams: Sequence[Stream]) -> Optional[str]:
    """Checks the argument of a dataset and returns the mixture as JSON."""
    if mixture is None:
        return None
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


class MixtureAccess(Trained):
    """Weights of streams that change over a run.

    The mixture that applies is shared with the workers: ``applied``, with ``before`` for the epochs up to ``epoch``
    that had already begun when it was changed.
    """

    def set_weights(
        self,
        weights: Sequence[float],
        *,
        from_step: Optional[int] = None,
        from_sample: Union[int, str, None] = None,
    ) -> None:
        """Changes the weights of the streams from a step on, instead of what the mixture plans from there on.

        All that comes before the step stays as it is. Iterations that begin after this call follow the change, so call
        it on all ranks before an epoch, or before `load_state_dict`. A state records the change.

        Args:
            weights: A weight for each stream.
            from_step: The step of the current epoch from which they apply, counted from the start of that epoch.
            from_sample: Instead, the sample of the run, counted over all epochs. Accepts text such as ``'10m'``.

        Raises:
            ValueError: The dataset has no mixture, or an argument is out of range.
        """
        applied = self._mixture_json()
        if applied is None:
            raise UsageError(
                'the dataset has no mixture; pass `mixture` to StreamingDataset',
                'config-mixture',
                'mixture',
            )
        if (from_step is None) == (from_sample is None):
            raise UsageError(
                'give either `from_step` or `from_sample`', 'config-value', 'from_step'
            )
        if from_step is not None:
            world = self._set_world()
            order = RankLayout(world, self.replication, self.batch_size)
            step = check.whole('from_step', from_step)
            epoch, _ = self._resume(self._parallel_rank_world, max(self.next_epoch - 1, 0))
            sample = epoch * self.epoch_size + step * order.global_batch
        else:
            sample = samples_of_run('from_sample', from_sample)
        point = {'from_sample': sample, 'weights': weights_of(weights)}
        mixture: dict[str, Any] = json.loads(applied)
        mixture.setdefault('changes', []).append([point])
        changed = json.dumps(mixture)
        # Raises an error for invalid weights.
        self._mixture_windows(changed, 0)
        record = self._shared.mixture or {}
        epoch = self.next_epoch
        before = record['before'] if record.get('epoch') == epoch else applied
        self._shared.mixture = {'applied': changed, 'before': before, 'epoch': epoch}

    def mixture_windows(self, epoch: int = 0) -> list[MixtureWindow]:
        """Returns what an epoch takes of each stream, in windows between changes of the weights.

        Args:
            epoch: The epoch.

        Returns:
            The windows in order; none without a mixture.
        """
        applied = self._mixture_json()
        if applied is None:
            return []
        return self._mixture_windows(applied, check.whole('epoch', epoch))

    def _mixture_windows(self, mixture: str, epoch: int) -> list[MixtureWindow]:
        sizes = [int(size) for size in self.samples_per_stream]
        found = _core.mixture_windows(mixture, sizes, self.epoch_size, epoch)
        return [MixtureWindow(*window) for window in found]

    def _mixture_json(self) -> Optional[str]:
        """Returns the mixture that iterations follow from now on, as JSON."""
        record = self._shared.mixture
        applied: Optional[str] = self._given_mixture if record is None else record['applied']
        return applied

    def _mixture_of_state(self, epoch: int, position: int) -> Optional[dict[str, Any]]:
        """Returns the mixture that a state at a position of an epoch records."""
        record = self._shared.mixture
        applied = self._mixture_json()
        if applied is None:
            return None
        mixture: dict[str, Any] = json.loads(applied)
        if record is not None and epoch < record.get('epoch', 0):
            before: dict[str, Any] = json.loads(record['before'])
            new = mixture.get('changes', [])[len(before.get('changes', [])) :]
            first = min((change[0]['from_sample'] for change in new), default=None)
            if first is not None and first < epoch * self.epoch_size + position:
                warnings.warn(
                    f'The weights were changed from sample {first} on, but the epoch that passed it had begun '
                    f'before. The state records the weights that it followed.',
                    stacklevel=3,
                )
                return before
        return mixture

    def _continued_mixture(self, state: Mapping[str, Any], order: RankLayout) -> Optional[str]:
        """Returns the mixture with which the run continues from a state, as JSON."""
        recorded = state.get('mixture')
        given = self._mixture_json()
        if recorded is None:
            return given
        config = {**config_of(self, order), 'mixture': given}
        epoch = max(state['epoch'], 0)
        resume = (epoch, state['sample_in_epoch'], state['shuffle_seed'], None, None)
        options = _core.EpochOptions(**config, epoch=epoch, resume=resume)
        return self._here().continued_mixture(options, json.dumps(recorded))
