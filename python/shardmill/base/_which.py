"""Finds the samples of a step, and the steps of a sample, by computing the order again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional, Union

from shardmill import _core
from shardmill.base import _arguments as check
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
from shardmill.mixtures import continued_mixture
from shardmill.packing import check_packing

#: The column of MDS samples that holds their key.
_KEY = '__key__'


def which(
    dataset: Any,
    step: Optional[int],
    rank: Optional[int],
    sample: Optional[int],
    state: Optional[Mapping[str, Any]],
    epoch: Optional[int],
    epochs: int,
    keys: bool,
) -> Union[StepSamples, SampleSteps]:
    """Finds samples or steps, as `StreamingDataset.which` describes."""
    if (step is None) == (sample is None):
        raise UsageError('give either `step` or `sample`', 'config-value', 'step')
    if sample is not None and rank is not None:
        raise UsageError('`rank` can only be used with `step`', 'config-value', 'rank')
    if state is not None and epoch is not None:
        raise UsageError('give either `state` or `epoch`', 'config-value', 'epoch')
    options = _options(dataset, state, epoch)
    reader = dataset._here()
    tokens = None if dataset.packing is None else dataset.packing._to_core()
    try:
        if sample is None:
            number = check.count('step', step)
            rank = check.whole_or_none('rank', rank)
            of_epoch, before, members = _core.samples_of_step(reader, options, number, rank, tokens)
            origins = _origins(dataset, reader, [member[2] for member in members], keys)
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
    (origin,) = _origins(dataset, reader, [number], keys)
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
    mixture = continued_mixture(dataset, state, order)
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
