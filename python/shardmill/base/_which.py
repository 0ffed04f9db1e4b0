"""Finds the samples of a step, and the steps of a sample, by computing the order again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional, Union, overload

from shardmill import _core
from shardmill.base import _arguments as check
from shardmill.base._packed import check_packing
from shardmill.base._sharding import RankLayout
from shardmill.base._state import check_order, check_state, config_of, with_streaming_prefix
from shardmill.errors import UsageError
from shardmill.lineage import (
    Delivery,
    SampleOrigin,
    SampleSteps,
    StepSample,
    StepSamples,
    StreamOrigin,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


#: The column of MDS samples that holds their key.
_KEY = '__key__'


class StepAccess:
    """Names the samples of steps, and the steps of samples, without a log."""

    @overload
    def which(
        self,
        step: int,
        rank: Optional[int] = None,
        *,
        state: Optional[Mapping[str, Any]] = None,
        epoch: Optional[int] = None,
        keys: bool = True,
    ) -> StepSamples: ...

    @overload
    def which(
        self,
        *,
        sample: int,
        state: Optional[Mapping[str, Any]] = None,
        epoch: Optional[int] = None,
        epochs: int = 1,
        keys: bool = True,
    ) -> SampleSteps: ...

    def which(
        self: Any,
        step: Optional[int] = None,
        rank: Optional[int] = None,
        *,
        sample: Optional[int] = None,
        state: Optional[Mapping[str, Any]] = None,
        epoch: Optional[int] = None,
        epochs: int = 1,
        keys: bool = True,
    ) -> Union[StepSamples, SampleSteps]:
        """Returns the samples of a step, or the steps that delivered a sample.

        The order is computed again, so no log is needed, and nothing about the iteration changes. A step is a batch
        of all ranks, counted from 0 at the start of the epoch, or at the position of the state that the epoch was
        resumed from. Without `state` and `epoch`, it is a step of the epoch that the last iteration began, or before
        the first iteration of the one that it will begin.

        With packing, these are the samples in the rows of the step, and the steps that delivered a row with the sample.
        The position is the row in the batch of the rank, and a sample is listed for each of its pieces. Positions in
        the epoch count rows.

        Args:
            step: The step whose samples are wanted.
            rank: Only the samples of this rank.
            sample: The number of the sample whose steps are wanted, instead of a step.
            state: Count from this state instead, as returned by `state_dict`.
            epoch: Count from the start of this epoch instead.
            epochs: The number of epochs to search for a sample.
            keys: Whether to read the keys of the samples, which are in the shards.

        Raises:
            ValueError: The step, the rank or the sample does not exist, or arguments contradict each other.
            FileExistsError: The state was made with other shards or in another order.
        """
        if (step is None) == (sample is None):
            raise UsageError('give either `step` or `sample`', 'config-value', 'step')
        if sample is not None and rank is not None:
            raise UsageError('`rank` can only be used with `step`', 'config-value', 'rank')
        if state is not None and epoch is not None:
            raise UsageError('give either `state` or `epoch`', 'config-value', 'epoch')
        options = _options(self, state, epoch)
        reader = self._here()
        tokens = None if self.packing is None else self.packing._to_core()
        try:
            if sample is None:
                number = check.count('step', step)
                rank = check.whole_or_none('rank', rank)
                of_epoch, before, members = _core.samples_of_step(
                    reader, options, number, rank, tokens
                )
                origins = _origins(self, reader, [member[2] for member in members], keys)
                samples = (
                    StepSample(rank=member[0], position=member[1], repeated=member[3], origin=at)
                    for member, at in zip(members, origins)
                )
                return StepSamples(of_epoch, number, before, tuple(samples))
            number = check.count('sample', sample)
            epochs = check.count('epochs', epochs, 1)
            steps = _core.steps_of_sample(reader, options, number, epochs, tokens)
        except UsageError as error:
            raise with_streaming_prefix(error) from error
        (origin,) = _origins(self, reader, [number], keys)
        return SampleSteps(origin, tuple(Delivery(*step) for step in steps))


def _options(
    dataset: Any, state: Optional[Mapping[str, Any]], epoch: Optional[int]
) -> _core.EpochOptions:
    """Returns the options of the epoch that steps are counted in, and where counting begins."""
    world = dataset._set_world()
    order = RankLayout(world, dataset.replication, dataset.batch_size)
    if not isinstance(order.batch_size, int):
        raise UsageError(
            'pass `batch_size` to StreamingDataset: the steps depend on it',
            'config-value',
            'batch_size',
        )
    if state is not None:
        return _from_state(dataset, order, check_state(dict(state)))
    ranks = dataset._parallel_rank_world
    if epoch is not None:
        chosen, offset = check.count('epoch', epoch), 0
        # Fills in the defaults, and applies the seed and the canonical nodes of a loaded state.
        dataset._resume(ranks, chosen)
    else:
        chosen, offset = dataset._resume(ranks, max(dataset.next_epoch - 1, 0))
    resume = (
        chosen,
        offset,
        dataset.shuffle_seed,
        dataset.num_canonical_nodes,
        dataset.initial_physical_nodes,
    )
    return _core.EpochOptions(**config_of(dataset, order), epoch=chosen, resume=resume)


def _from_state(dataset: Any, order: RankLayout, state: dict[str, Any]) -> _core.EpochOptions:
    """Returns the options of an epoch that resumes from a state, without loading the state."""
    check_packing(state, dataset.packing)
    mixture = dataset._continued_mixture(state, order)
    check_order(dataset, state, order, mixture)
    config = config_of(dataset, order)
    if mixture is not None:
        config['mixture'] = mixture
    nodes = state['num_canonical_nodes'] or dataset.num_canonical_nodes
    if dataset.shuffle_block_size == dataset._default_block_size:
        config['shuffle_block_size'] = None
    if not nodes:
        nodes = dataset._parallel_rank_world.num_nodes
        nodes *= 64 if dataset.shuffle_algo in ('py1s', 'py2s') else 1
    epoch = max(state['epoch'], 0)
    config['shuffle_seed'] = state['shuffle_seed']
    config['num_canonical_nodes'] = nodes
    resume = (
        epoch,
        state['sample_in_epoch'],
        state['shuffle_seed'],
        nodes,
        state.get('initial_physical_nodes'),
    )
    return _core.EpochOptions(**config, epoch=epoch, resume=resume)


def _origins(
    dataset: Any, reader: _core.Reader, samples: Sequence[int], keys: bool
) -> list[SampleOrigin]:
    """Returns where samples are stored and come from."""
    places, sources = _core.places_of(reader, samples)
    streams = [StreamOrigin(*source) for source in sources]
    found = []
    for sample, stream, shard, name, index, file, row in places:
        key = _key(dataset, reader, sample) if keys else None
        origin = SampleOrigin(sample, stream, shard, name, index, key, file, row, streams[stream])
        found.append(origin)
    return found


def _key(dataset: Any, reader: _core.Reader, sample: int) -> Optional[str]:
    """Returns the key of a sample: that of a tar file, the path of a raw file, or the column of keys."""
    if dataset._fetches_in_python:
        values = dataset._fetching().sample(sample, 7)
    else:
        key = reader.key_of(sample) or reader.file_path(sample)
        if key is not None:
            return key
        if not reader.has_column(sample, _KEY):
            return None
        values = reader.sample(sample)
    value = values.get(_KEY) if isinstance(values, dict) else None
    return value.decode('utf-8', 'replace') if isinstance(value, bytes) else value
