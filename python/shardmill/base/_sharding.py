"""Detects libraries that split the samples of a dataset among ranks themselves.

accelerate, and with it the Trainer of transformers, expects an ``IterableDataset`` to yield the same samples on every
rank. It keeps a part of them on each rank (``IterableDatasetShard``), or reads them on the first rank and sends each
rank its part (``DataLoaderDispatcher``). If a `StreamingDataset` yielded only its own share, the other samples would
be lost. It therefore searches the call stack for these classes. See docs/decisions/0024-trainers.md.
"""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from shardmill.base.world import World
from shardmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import CodeType

#: Classes that keep the samples of one rank and discard the others.
_SHARDS = (
    ('accelerate.data_loader', 'IterableDatasetShard'),
    ('transformers.trainer_pt_utils', 'IterableDatasetShard'),
)
#: The class that reads on the first rank and sends the other ranks their part.
_DISPATCHER = ('accelerate.data_loader', 'DataLoaderDispatcher')
#: Methods that expect a length counting the samples of all ranks, because they use one of the loaders above.
_COUNTERS = ('num_examples', 'evaluation_loop', 'prediction_loop')


class RankLayout(NamedTuple):
    """The ranks, workers and batch size that a sample order is made for."""

    world: World
    replication: Optional[int]
    batch_size: Optional[int]

    @property
    def global_batch(self) -> int:
        """Samples of all ranks in a step, with replicas counted once."""
        return self.world.num_ranks // (self.replication or 1) * (self.batch_size or 1)


class Split(NamedTuple):
    """How another library splits the samples of a dataset."""

    #: The class that splits, for messages.
    name: str
    #: Whether one rank reads for all ranks.
    is_dispatched: bool
    #: Whether it takes samples directly from the dataset, with no code in between that uses them.
    is_direct: bool
    #: The number of processes that receive different samples, and the number of this process.
    processes: int
    number: int
    #: The batch size of the loader that reads.
    batch_size: int
    #: Whether an incomplete last batch is dropped.
    drop_last: bool

    @property
    def is_placed(self) -> bool:
        """Whether this rank reads only its own samples and must yield them at the positions the library expects."""
        return self.is_direct and not self.is_dispatched

    def order(self, world: World, replication: Optional[int]) -> RankLayout:
        """Returns the order in which this process yields samples."""
        if not self.is_placed:
            self._check_replication(replication, 1)
            whole = World(1, 1, world.workers_per_rank, world.worker_of_rank)
            size = self.batch_size if self.is_dispatched else self.batch_size * self.processes
            return RankLayout(whole, None, size)
        if (self.processes, self.number) == (world.num_ranks, world.rank):
            return RankLayout(world, replication, self.batch_size)
        each, rest = divmod(world.num_ranks, self.processes)
        if not rest and world.rank // each == self.number:
            # As with tensor parallelism, these ranks form one replica of the model.
            self._check_replication(replication, each)
            return RankLayout(world, each, self.batch_size)
        self._check_replication(replication, 1)
        worker = self.number * world.workers_per_rank + world.worker_of_rank
        return RankLayout(
            World(1, self.processes, world.workers_per_rank, worker), None, self.batch_size
        )

    def _check_replication(self, replication: Optional[int], expected: int) -> None:
        if replication not in (None, expected):
            raise UsageError(
                f'replication is {replication}, and {self.name} gives {expected} consecutive ranks the '
                f'same samples',
                'config-split',
                'replication',
                'leave out `replication`, or do not pass the loader to `accelerator.prepare`',
            )

    def warn(self, batch_size: Optional[int]) -> None:
        """Warns if this rank has to read more than its own samples, or others than with the dataset's batch size."""
        if self.is_placed and batch_size not in (None, self.batch_size):
            text = (
                f'the batch size of the loader is {self.batch_size}, and that of the dataset is {batch_size}: the '
                f'order of samples is that of the loader. The Trainer of transformers takes it from its checkpoint.'
            )
        elif self.processes == 1 or self.is_placed:
            return
        elif self.is_dispatched:
            text = (
                f'{self.name} of accelerate reads all samples on the first rank and sends the others their '
                f'part. Pass `dispatch_batches=False`, so that every rank reads only its own samples.'
            )
        else:
            text = (
                f'{self.name} of accelerate splits the samples of a dataset that changes those of a '
                f'StreamingDataset, so that every rank has to read all samples. Change them in `get_item` '
                f'or `collate_fn`, so that every rank reads only its own.'
            )
        warnings.warn(text, stacklevel=2)


def _codes(names: tuple[str, str], *methods: str) -> dict[CodeType, str]:
    """Returns the code objects of methods by name, if their module is imported."""
    module, name = names
    cls = getattr(sys.modules.get(module), name, None)
    codes = ((getattr(getattr(cls, method, None), '__code__', None), method) for method in methods)
    return {code: method for code, method in codes if code is not None}


def _caller(codes: dict[CodeType, Any]) -> Optional[tuple[CodeType, Any]]:
    """Finds the innermost of these methods on the call stack, and its object.

    In a forked worker, the stack includes the calls of the training process.
    """
    frame = sys._getframe(1) if codes else None
    while frame is not None:
        if frame.f_code in codes:
            return frame.f_code, frame.f_locals['self']
        frame = frame.f_back
    return None


def find_split(dataset: Any, is_plain: bool) -> Optional[Split]:
    """Returns how the iterating library splits the samples of a dataset; `None` if it does not."""
    dispatchers = _codes(_DISPATCHER, '__iter__')
    shards: dict[CodeType, Any] = {}
    for names in _SHARDS:
        shards.update(_codes(names, '__iter__'))
    found = _caller({**shards, **dispatchers})
    if found is None:
        return None
    code, owner = found
    name = type(owner).__name__
    if code in dispatchers:
        state = owner.state
        ranks = state.num_processes, state.process_index
        return Split(name, True, True, *ranks, owner.batch_size, owner._drop_last)
    size = owner.batch_size
    if getattr(owner, 'split_batches', False):
        size //= owner.num_processes
    is_direct = is_plain and owner.dataset is dataset
    ranks = owner.num_processes, owner.process_index
    return Split(name, False, is_direct, *ranks, size, owner.drop_last)


def is_split_length() -> bool:
    """Returns whether the caller divides the length by the number of ranks."""
    codes = _codes(('transformers.trainer', 'Trainer'), *_COUNTERS)
    for names in (*_SHARDS, _DISPATCHER):
        codes.update(_codes(names, '__len__'))
    return _caller(codes) is not None


def check_own_state() -> None:
    """Rejects a request for a state from a loader that would store the state of another rank."""
    found = _caller(_codes(_DISPATCHER, '__init__', '__iter__'))
    state = getattr(sys.modules.get('accelerate.state'), 'PartialState', None)
    if found is not None and state is not None and state().num_processes > 1:
        raise UsageError(
            'DataLoaderDispatcher of accelerate stores the state of every rank in one file, and only that '
            'of the first rank is one of a loader that reads',
            'config-split',
            'use_stateful_dataloader',
            'pass `dispatch_batches=False`, or resume with `skip_first_batches`',
        )


def in_slots(samples: Iterable[Any], split: Split) -> Iterator[Any]:
    """Yields the samples of a rank at the positions that the library keeps for it.

    Other positions hold placeholders, which the library discards. An incomplete last batch is filled with samples
    from the beginning, as the library itself does, or dropped.
    """
    size = split.batch_size
    before = (None,) * (split.number * size)
    after = (None,) * ((split.processes - 1 - split.number) * size)
    first: list[Any] = []
    batch: list[Any] = []
    for sample in samples:
        batch.append(sample)
        if len(batch) == size:
            yield from before
            yield from batch
            yield from after
            first = first or batch
            batch = []
    if batch and not split.drop_last:
        source = first or list(batch)
        while len(batch) < size:
            batch += source[: size - len(batch)]
        yield from before
        yield from batch
        yield from after
