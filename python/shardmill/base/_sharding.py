"""Recognizes libraries that split the samples of a dataset among ranks themselves.

accelerate, and with it the Trainer of transformers, expects that an ``IterableDataset`` yields the same samples on
every rank. It keeps a part of them on each rank (``IterableDatasetShard``), or reads them on the first rank and sends
every rank its part (``DataLoaderDispatcher``). A `StreamingDataset` that yielded its own share to them would lose the
others. It therefore looks for their methods among its callers. See docs/decisions/0024-trainers.md.
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

__all__ = ['RankLayout', 'Split', 'check_own_state', 'find_split', 'in_slots', 'is_split_length']

#: Classes that keep the samples of one rank, and discard the others.
_SHARDS = (
    ('accelerate.data_loader', 'IterableDatasetShard'),
    ('transformers.trainer_pt_utils', 'IterableDatasetShard'),
)
#: The class that reads on the first rank, and sends the others their part.
_DISPATCHER = ('accelerate.data_loader', 'DataLoaderDispatcher')
#: Methods that want the samples of all ranks counted, because their loader is one of the above.
_COUNTERS = ('num_examples', 'evaluation_loop', 'prediction_loop')


class RankLayout(NamedTuple):
    """For which ranks, workers and batches samples are ordered."""

    world: World
    replication: Optional[int]
    batch_size: Optional[int]


class Split(NamedTuple):
    """How another library splits what a dataset yields."""

    #: The class that does it, for messages.
    name: str
    #: Whether one rank reads for all.
    is_dispatched: bool
    #: Whether it takes samples from the dataset as they are, with nothing in between that looks at them.
    is_direct: bool
    #: Processes that get different samples, and which of them this is.
    processes: int
    number: int
    #: Samples of a batch of the loader that reads.
    batch_size: int
    #: Whether an incomplete batch at the end is discarded.
    drop_last: bool

    @property
    def is_placed(self) -> bool:
        """Whether this rank reads only its own samples, and has to put them where the library expects them."""
        return self.is_direct and not self.is_dispatched

    def order(self, world: World, replication: Optional[int]) -> RankLayout:
        """The order in which this process yields samples.

        Args:
            world: The world of this process.
            replication: How many consecutive ranks the dataset gives the same samples.

        Raises:
            ValueError: The library gives ranks different samples where the dataset is to give them the same.
        """
        if not self.is_placed:
            self._check_replication(replication, 1)
            whole = World(1, 1, world.workers_per_rank, world.worker_of_rank)
            size = self.batch_size if self.is_dispatched else self.batch_size * self.processes
            return RankLayout(whole, None, size)
        if (self.processes, self.number) == (world.num_ranks, world.rank):
            return RankLayout(world, replication, self.batch_size)
        each, rest = divmod(world.num_ranks, self.processes)
        if not rest and world.rank // each == self.number:
            # As with tensor parallelism: these ranks form one replica of the model.
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

    def warn(self) -> None:
        """Says what the split costs, where this rank reads more than its own samples."""
        if self.processes == 1 or self.is_placed:
            return
        if self.is_dispatched:
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
    """The code of methods of a class by their names, if its module is imported."""
    module, name = names
    cls = getattr(sys.modules.get(module), name, None)
    codes = ((getattr(getattr(cls, method, None), '__code__', None), method) for method in methods)
    return {code: method for code, method in codes if code is not None}


def _caller(codes: dict[CodeType, Any]) -> Optional[tuple[CodeType, Any]]:
    """The innermost of these methods that this call comes from, and the object that it belongs to.

    A worker process that was forked has the calls of the training process beneath its own.
    """
    frame = sys._getframe(1) if codes else None
    while frame is not None:
        if frame.f_code in codes:
            return frame.f_code, frame.f_locals['self']
        frame = frame.f_back
    return None


def find_split(dataset: Any, is_plain: bool) -> Optional[Split]:
    """How the library that iterates over a dataset splits its samples; `None` where none does.

    Args:
        dataset: The dataset.
        is_plain: Whether it yields samples as they are read, so that placeholders may be among them.
    """
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
    """Whether the length is for a method that divides it by the number of ranks."""
    codes = _codes(('transformers.trainer', 'Trainer'), *_COUNTERS)
    for names in (*_SHARDS, _DISPATCHER):
        codes.update(_codes(names, '__len__'))
    return _caller(codes) is not None


def check_own_state() -> None:
    """Refuses to give a state to a loader that would store that of another rank.

    Raises:
        ValueError: A `DataLoaderDispatcher` over several ranks wants it.
    """
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
    """The samples of a rank, at the places of those that the library keeps for it.

    Between them are placeholders, which the library discards. An incomplete batch at the end is filled with samples
    from the beginning, as the library itself does, or discarded.
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
