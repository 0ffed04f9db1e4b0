"""Builds, checks and restores the states of datasets, with the errors that programs for ``streaming`` expect."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import index
from typing import TYPE_CHECKING, Any, Optional

from shardmill import _core, _torch
from shardmill.base._arguments import refuse_type
from shardmill.base._sharding import RankLayout, check_own_state
from shardmill.base._skip import passed
from shardmill.errors import ConflictError, DataError, IndexSyntaxError, UsageError

if TYPE_CHECKING:
    from shardmill.base.stream import Stream


def check_state(state: dict[str, Any]) -> dict[str, Any]:
    """Checks the values of a state and returns a copy with plain integers."""
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


def with_streaming_prefix(error: UsageError) -> UsageError:
    """Gives an error about the sample order the prefix that programs for ``streaming`` search for."""
    known = {
        'canonical nodes': 'The number of samples assigned to a canonical node is 0',
        'its share of a global batch': 'Number of samples for stream is 0',
    }
    for fact, words in known.items():
        if fact in error.message:
            return UsageError(f'{words}: {error.message}', error.id, error.object, error.hint)
    return error


def refuse_low_limit(limit: int, indexes: int, largest: int, cache: int) -> None:
    """Rejects a cache limit that `streaming` or the cache would reject, naming the minimum that satisfies both."""
    least = max(4 * largest, indexes + 1, cache)
    if limit >= least:
        return
    # COMPAT: programs match the beginning of both messages.
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
def with_streaming_prefixes() -> Iterator[None]:
    """Gives errors of opening streams the prefix that programs for ``streaming`` search for."""
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


def versions_of(streams: Sequence[Stream]) -> dict[str, Any]:
    """Returns the versions of the Delta tables among some streams, for a state."""
    versions = [getattr(stream, 'version', None) for stream in streams]
    return {'versions': versions} if any(version is not None for version in versions) else {}


def check_files(state: dict[str, Any], digest: Optional[str]) -> None:
    """Rejects a state made with another list of files.

    A dataset without a list is accepted, because a table can have been converted since. The identity of the order
    covers the sizes of its shards.
    """
    files = state.get('files')
    if files is not None and digest is not None and files != digest:
        hint = 'resume with the files that the run began with, or start a new run'
        if 'versions' in state:
            hint = f'open the Delta tables at the versions {state["versions"]} of the state'
        raise ConflictError(
            f'The StreamingDataset state dict was made with the list of files {files}, and this one is {digest}',
            'state-files',
            hint=hint,
        )


# The identity of a sample order, which decides whether a state belongs to it.


def config_of(dataset: Any, order: RankLayout) -> dict[str, Any]:
    """Returns the options of the Rust reader that decide the sample order of every epoch.

    A missing batch size becomes 1: iterating requires one, but most identities do not depend on it.
    """
    mixture = dataset._mixture_json()
    return {
        **({} if mixture is None else {'mixture': mixture}),
        'nodes': order.world.num_nodes,
        'ranks_per_node': order.world.ranks_per_node,
        'workers_per_rank': order.world.workers_per_rank,
        'batch_size': order.batch_size or 1,
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


def mark_order(dataset: Any, order: RankLayout) -> dict[str, Any]:
    """Returns the identity of a sample order, for states."""
    config = config_of(dataset, order)
    known = dataset._order_identity
    if known is None or known[0] != config:
        known = config, dataset._here().order_identity(_core.EpochOptions(**config))
        dataset._order_identity = known
    mark: dict[str, Any] = json.loads(known[1])
    return mark


def check_order(
    dataset: Any, state: dict[str, Any], order: RankLayout, mixture: Optional[str] = None
) -> None:
    """Rejects a state made with other shards or in another order.

    States of ``streaming`` and of earlier versions do not contain an identity, and are accepted. `mixture` is the one
    with which the run continues, unless it is that of the dataset.
    """
    mark = state.get('shardmill')
    if mark is None:
        return
    config = config_of(dataset, order)
    config['shuffle_seed'] = state['shuffle_seed']
    if mixture is not None:
        config['mixture'] = mixture
    if state['num_canonical_nodes']:
        config['num_canonical_nodes'] = state['num_canonical_nodes']
    if dataset.shuffle_block_size == dataset._default_block_size:
        config['shuffle_block_size'] = None
    dataset._here().check_order_identity(_core.EpochOptions(**config), json.dumps(mark))


# States for loaders that request them from the dataset, in each process that iterates over it.


class Progress:
    """The progress of this process's iteration.

    Args:
        epoch: The epoch.
        offset: Samples of the epoch delivered to all ranks together before this iteration.
        order: The order.
        skipped: Ranges of samples of the epoch that are left out.
    """

    #: Samples that this process has yielded, and whether these are all.
    samples = 0
    is_done = False

    def __init__(
        self, epoch: int, offset: int, order: RankLayout, skipped: Sequence[tuple[int, int]]
    ) -> None:
        self.epoch, self.offset, self.order, self.skipped = epoch, offset, order, skipped

    def reached(self, epoch_size: int) -> tuple[int, int]:
        """Returns the epoch and an estimate of how many of its samples all processes have yielded."""
        # This process yields one of so many samples of the epoch.
        share = self.order.world.num_workers // (self.order.replication or 1)
        given = passed(self.offset, self.samples * share, self.skipped)
        return self.epoch, epoch_size if self.is_done else min(given, epoch_size)


def is_counted() -> bool:
    """Returns whether a loader that requests states from the dataset is imported."""
    return 'torchdata.stateful_dataloader' in sys.modules


def counted(samples: Iterable[Any], progress: Optional[Progress]) -> Iterator[Any]:
    """Yields the samples and counts them."""
    if progress is None:
        yield from samples
        return
    for sample in samples:
        progress.samples += 1
        yield sample
    progress.is_done = True


def own_state(dataset: Any) -> dict[str, Any]:
    """Returns the position of this process's iteration, as the keys of its state that differ between processes.

    Workers yield the batches of their rank in turn. The state of a worker counts the samples of the others as if they
    had progressed equally. A worker that resumes from it therefore begins with its own next batch.
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
        epoch, given = progress.reached(dataset._epoch_items())
    if info is not None:
        worker = {'number': info.id, 'workers': info.num_workers}
        return {'epoch': epoch, 'sample_in_epoch': given, 'worker': worker}
    if progress is not None and progress.is_done:
        epoch, given = epoch + 1, 0
    return {'epoch': epoch, 'sample_in_epoch': given}


def take_own_state(dataset: Any, state: dict[str, Any]) -> bool:
    """Makes a worker process resume from its own state. Returns whether the state is of a worker."""
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
    # Later epochs use its seed and its number of canonical nodes.
    dataset._shared.state = state
    return True
