"""Makes the functions of the batching methods: they check their arguments, and Rust computes the batches."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Optional

from shardmill import _core
from shardmill.base._arguments import whole, whole_or_none
from shardmill.base._numbers import int64_array, int64_bytes
from shardmill.base.sampling import resample_streams
from shardmill.base.shuffle.py1e import warn_of_small_block

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from shardmill.base.world import World

_logger = logging.getLogger(__name__)


def batching_by(method: str, doc: str) -> Callable[[Any, World, int, int], NDArray[np.int64]]:
    """Returns the function of the module of a batching method, with this documentation."""

    def generate_work(
        dataset: Any, world: World, epoch: int, sample_in_epoch: int
    ) -> NDArray[np.int64]:
        if dataset.num_canonical_nodes is None:
            raise RuntimeError('`num_canonical_nodes` is not known before the first epoch: set it')
        batch_size = whole('batch_size', dataset.batch_size, 1)
        shuffle = None
        if dataset.shuffle:
            shuffle = (
                dataset.shuffle_algo,
                whole('shuffle_block_size', dataset.shuffle_block_size),
            )
        nodes = whole('num_nodes', world.num_nodes, 1)
        ranks = whole('ranks_per_node', world.ranks_per_node, 1)
        start = whole('sample_in_epoch', sample_in_epoch)
        global_batch = batch_size * nodes * ranks
        if method != 'random' and start % global_batch:
            _logger.warning(
                'batching %s resumes after a whole global batch of %d samples: at %d, not at %d',
                method,
                global_batch,
                start - start % global_batch,
                start,
            )
        streams: list[Optional[int]] = [None]
        if method != 'random':
            streams = list(range(len(dataset.streams)))
        resample = getattr(dataset, 'resample_streams', partial(resample_streams, dataset))
        sources = []
        for stream in streams:
            units, samples = resample(epoch, stream)
            proportion = 1.0 if stream is None else float(dataset.streams[stream].proportion)
            sources.append((int64_bytes(units), int64_bytes(samples), proportion))
            if shuffle is not None and shuffle[0] == 'py1e':
                block = shuffle[1] if stream is None else int(shuffle[1] * proportion)
                warn_of_small_block(units, block, stacklevel=4)
        canonical = whole('num_canonical_nodes', dataset.num_canonical_nodes, 1)
        initial = whole_or_none('initial_physical_nodes', dataset.initial_physical_nodes, 1)
        seed, epoch = whole('shuffle_seed', dataset.shuffle_seed), whole('epoch', epoch)
        options = _core.EpochOptions(
            nodes=nodes,
            ranks_per_node=ranks,
            workers_per_rank=whole('workers_per_rank', world.workers_per_rank, 1),
            batch_size=batch_size,
            num_canonical_nodes=canonical,
            shuffle=dataset.shuffle,
            shuffle_algo=None if shuffle is None else shuffle[0],
            shuffle_block_size=None if shuffle is None else shuffle[1],
            shuffle_seed=seed,
            partition_algo=dataset.partition_algo,
            batching_method=method,
            epoch=epoch,
            resume=(epoch, start, seed, canonical, initial),
        )
        data = _core.work(options, bool(dataset.epoch_seed_change), sources)
        return int64_array(data, (nodes, ranks, world.workers_per_rank, -1, batch_size))

    generate_work.__doc__ = f'{doc} See `generate_work`.'
    generate_work.__module__ = f'shardmill.base.batching.{method}'
    generate_work.__name__ = generate_work.__qualname__ = f'generate_work_{method}_batching'
    return generate_work
