"""Checks of the state of a run and of its cache limit, with errors that programs for ``streaming`` know."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import contextmanager
from operator import index
from typing import TYPE_CHECKING, Any, Optional

from shardmill import _torch
from shardmill.base._arguments import refuse_type
from shardmill.base._sharding import check_own_state
from shardmill.errors import DataError, IndexSyntaxError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from shardmill.base._sharding import RankLayout
    from shardmill.base.dataset import StreamingDataset

__all__ = [
    'Progress',
    'check_order',
    'check_state',
    'config_of',
    'counted',
    'in_known_words',
    'in_known_words_of_streams',
    'is_counted',
    'mark_order',
    'own_state',
    'refuse_low_limit',
    'take_own_state',
]


def check_state(state: dict[str, Any]) -> dict[str, Any]:
    """A state, if its values can be those of one."""
    if not isinstance(state, Mapping):
        refuse_type('obj', state, 'a StreamingDataset state dict, as `state_dict` returns it')
    least = {'epoch': -1, 'sample_in_epoch': 0, 'num_canonical_nodes': 1, 'shuffle_seed': 0}
    for key in least:
        if key not in state:
            raise UsageError(
                f'The StreamingDataset state dict has no {key!r} and cannot be resumed',
                'state-field',
            )
    checked = dict(state)
    for key in (*least, 'initial_physical_nodes'):
        value: Any = state.get(key)
        if value is None and key in ('num_canonical_nodes', 'initial_physical_nodes'):
            continue
        try:
            number = index(value)
        except TypeError:
            number = None
        if number is None or not least.get(key, 1) <= number < 1 << 63:
            raise UsageError(
                f'The StreamingDataset state dict has {value!r} as {key!r} and cannot be resumed',
                'state-value',
            )
        checked[key] = number
    return checked


def in_known_words(error: UsageError) -> UsageError:
    """An error of the order, beginning as programs for ``streaming`` may look for."""
    known = {
        'canonical nodes': 'The number of samples assigned to a canonical node is 0',
        'its share of a global batch': 'Number of samples for stream is 0',
    }
    for fact, words in known.items():
        if fact in error.message:
            return UsageError(f'{words}: {error.message}', error.id, error.object, error.hint)
    return error


def refuse_low_limit(limit: int, indexes: int, largest: int, cache: int) -> None:
    """Refuses a cache limit that `streaming` or the cache refuses, with the least one that both accept.

    Args:
        limit: The limit.
        indexes: Bytes of all indexes.
        largest: Bytes of the largest shard, raw and compressed.
        cache: The least limit that the cache can be opened with.

    Raises:
        ValueError: It is too low.
    """
    least = max(4 * largest, indexes + 1, cache)
    if limit >= least:
        return
    # The first words of both are what callers look for.
    fact = f'Cache limit ({limit} bytes) is too low'
    if limit <= indexes:
        fact = f'Minimum cache usage ({indexes} bytes of indexes) is not below the cache limit ({limit} bytes)'
    raise UsageError(
        f'{fact}. Increase the `cache_limit` to at least {least} bytes: the indexes and four times the largest '
        f'shard, which has {largest} bytes raw and compressed, have to fit.',
        'config-cache-limit',
        'cache_limit',
    )


@contextmanager
def in_known_words_of_streams() -> Iterator[None]:
    """Errors of opening streams, beginning as programs for ``streaming`` may look for."""
    try:
        yield
    except DataError as error:
        if error.id in ('index-empty', 'index-not-json', 'index-syntax', 'index-truncated'):
            raise IndexSyntaxError(
                f'Index file at {error.object} is empty or corrupted: {error.message}',
                error.id,
                error.object,
                error.hint,
            ) from error
        raise


# What tells whether a state belongs to a dataset and its order.


def config_of(dataset: StreamingDataset, order: RankLayout) -> dict[str, Any]:
    """The options of the Rust reader that decide the order of samples, in any epoch."""
    return {
        'nodes': order.world.num_nodes,
        'ranks_per_node': order.world.ranks_per_node,
        'workers_per_rank': order.world.workers_per_rank,
        'batch_size': order.batch_size,
        'epoch_size': dataset._epoch_size_given,
        'num_canonical_nodes': dataset.num_canonical_nodes,
        'shuffle_block_size': dataset.shuffle_block_size,
        'replication': order.replication,
        'shuffle': dataset.shuffle,
        'shuffle_algo': dataset.shuffle_algo,
        'shuffle_seed': dataset.shuffle_seed,
        'sampling_method': dataset.sampling_method,
        'sampling_granularity': dataset.sampling_granularity,
        'partition_algo': dataset.partition_algo,
        'batching_method': dataset.batching_method,
    }


def mark_order(dataset: StreamingDataset, order: RankLayout) -> dict[str, Any]:
    """What the order of a dataset depends on, for its states."""
    config = _with_batches(config_of(dataset, order))
    known = dataset._order_identity
    if known is None or known[0] != config:
        known = config, dataset._here().order_identity(config)
        dataset._order_identity = known
    mark: dict[str, Any] = json.loads(known[1])
    return mark


def check_order(dataset: StreamingDataset, state: dict[str, Any], order: RankLayout) -> None:
    """Refuses a state of other shards or of another order.

    States of ``streaming`` and of earlier versions do not say what they belong to.

    Raises:
        FileExistsError: It was made with other shards or in another order.
    """
    mark = state.get('shardmill')
    if mark is None:
        return
    config = _with_batches(config_of(dataset, order))
    config['shuffle_seed'] = state['shuffle_seed']
    if state['num_canonical_nodes']:
        config['num_canonical_nodes'] = state['num_canonical_nodes']
    if dataset.shuffle_block_size == dataset._default_block_size:
        config['shuffle_block_size'] = None
    dataset._here().check_order_identity(config, json.dumps(mark))


def _with_batches(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration with the batch size that iterating needs, and most identities do not."""
    return {**config, 'batch_size': config['batch_size'] or 1}


# States for loaders that ask the dataset itself, in each process that iterates over it.


class Progress:
    """How far the iteration of this process has come.

    Args:
        epoch: Its epoch.
        offset: Samples of the epoch that all ranks together had before.
        order: For which ranks and workers its samples are ordered.
    """

    def __init__(self, epoch: int, offset: int, order: RankLayout) -> None:
        self.epoch = epoch
        self.offset = offset
        self.order = order
        self.samples = 0
        self.is_done = False
        #: Of so many samples of the epoch one is for this process.
        self.share = order.world.num_workers // (order.replication or 1)

    def reached(self, epoch_size: int) -> tuple[int, int]:
        """The epoch, and the samples of it that were yielded, as far as this process can tell."""
        given = self.offset + self.samples * self.share
        return self.epoch, epoch_size if self.is_done else min(given, epoch_size)


def is_counted() -> bool:
    """Whether a loader that asks the dataset for its state is imported."""
    return 'torchdata.stateful_dataloader' in sys.modules


def counted(samples: Iterable[Any], progress: Optional[Progress]) -> Iterator[Any]:
    """The samples, which are counted as they are yielded."""
    if progress is None:
        yield from samples
        return
    for sample in samples:
        progress.samples += 1
        yield sample
    progress.is_done = True


def own_state(dataset: StreamingDataset) -> dict[str, Any]:
    """Where the iteration of this process stands: the keys of its state that differ from those of others.

    A worker process yields every so many batches of its rank. Its state counts those of the others as if they had come
    as far, so that a worker that continues there begins with its own next batch.

    Raises:
        ValueError: The loader that asks has read ahead, or stores the state of another process.
    """
    if not is_counted():
        raise UsageError(
            'only the loader knows how many samples were trained on',
            'state-samples',
            'num_samples',
            'call `state_dict` of the StreamingDataLoader, or give `num_samples`',
        )
    check_own_state()
    progress, info = dataset._progress, _torch.worker_info()
    if progress is None:
        epoch, given = dataset._resume(dataset._parallel_rank_world, dataset.next_epoch)
    else:
        epoch, given = progress.reached(dataset.epoch_size)
    if info is not None:
        worker = {'number': info.id, 'workers': info.num_workers}
        return {'epoch': epoch, 'sample_in_epoch': given, 'worker': worker}
    if progress is not None and progress.is_done:
        epoch, given = epoch + 1, 0
    return {'epoch': epoch, 'sample_in_epoch': given}


def take_own_state(dataset: StreamingDataset, state: dict[str, Any]) -> bool:
    """Has a worker process continue where its state says. Whether it is the state of one.

    Raises:
        ValueError: It is that of another worker.
    """
    worker = state.get('worker')
    if worker is None:
        return False
    info = _torch.worker_info()
    if info is None or worker != {'number': info.id, 'workers': info.num_workers}:
        here = 'no worker process' if info is None else f'worker {info.id} of {info.num_workers}'
        raise UsageError(
            f'The StreamingDataset state dict was made by the worker process {worker}, and this is {here}',
            'state-worker',
            'worker',
            'load the state of the whole loader, with as many workers as it was made with',
        )
    dataset._own_state = state
    # Later epochs have its seed and canonical nodes.
    dataset._board.state = state
    return True
