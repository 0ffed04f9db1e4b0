"""Samples of one or several streams, in an order that is the same on any number of nodes, ranks and workers."""

from __future__ import annotations

import logging
import multiprocessing
import os
import warnings
import zlib
from functools import cached_property
from math import ceil
from multiprocessing import context
from typing import TYPE_CHECKING, Any, Optional, Union

from shardmill import _core, _torch
from shardmill.base import _arguments as check
from shardmill.base._board import Board
from shardmill.base._counts import Counts
from shardmill.base._deleted import default_deleted, live_shards, stored_shards
from shardmill.base._fetching import Fetcher
from shardmill.base._fields import field_decoder
from shardmill.base._folders import folders_of
from shardmill.base._iteration import later, samples_of, warn_of_shuffle
from shardmill.base._keys import KeyAccess
from shardmill.base._lines import decode_line
from shardmill.base._raw import (
    as_listed,
    check_files,
    gives_files,
    holding,
    holding_options,
    kept_batches,
)
from shardmill.base._representation import dataset_representation
from shardmill.base._sharding import RankLayout, Split, find_split, in_slots, is_split_length
from shardmill.base._state import (
    Progress,
    check_order,
    check_state,
    config_of,
    in_known_words,
    in_known_words_of_streams,
    is_counted,
    mark_order,
    own_state,
    refuse_low_limit,
    take_own_state,
)
from shardmill.base._typing import SampleT
from shardmill.base.array import Array
from shardmill.base.batching import batching_methods
from shardmill.base.batching import generate_work as generate_work
from shardmill.base.constant import DEFAULT_TIMEOUT
from shardmill.base.partition import algos as partition_algos
from shardmill.base.registry_utils import construct_from_registry
from shardmill.base.sampling import get_sampling as get_sampling
from shardmill.base.shared.prefix import get_shm_prefix as get_shm_prefix
from shardmill.base.shuffle import algos as shuffle_algos
from shardmill.base.stream import Stream, find_index, streams_registry
from shardmill.base.world import World
from shardmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch.utils.data import IterableDataset as _IterableDataset

    from shardmill.base._fields import FieldDecoder
    from shardmill.base._typing import Path
    from shardmill.base.format.base.reader import Reader
else:
    _IterableDataset = _torch.Placeholder

__all__ = ['StreamingDataset']

logger = logging.getLogger(__name__)


#: What a process makes for itself, and a pickled dataset leaves behind.
_OWN = (
    '_batches',
    '_reader',
    '_fetcher',
    '_as_batches',
    '_ready',
    '_progress',
    '_order_identity',
    'shards',
    'spanner',
    'stream_per_shard',
    'samples_per_shard',
    'sample_offset_per_shard',
    'shard_offset_per_stream',
    'shards_per_stream',
    'sample_offset_per_stream',
    'samples_per_stream',
)


class StreamingDataset(Counts, Array, KeyAccess, _IterableDataset[SampleT]):
    """An iterable dataset for torch, resumed in the middle of an epoch on any number of nodes.

    Give either ``streams``, or ``remote`` and ``local`` of a single one. Where torch is installed this is a
    ``torch.utils.data.IterableDataset``. For type checkers it is generic in the type of a sample, which is
    anything by default: ``StreamingDataset[Sample]`` has dicts, ``StreamingDataset[Tensor]`` tensors.

    Args:
        streams: Several datasets, mixed.
        remote: Where the only dataset is kept: a folder, or the URL of a prefix.
        local: The folder it is read from, or that its shards are fetched to.
        split: A folder beneath both, such as ``train``.
        download_retry: How many times a download is tried again.
        download_timeout: Seconds that an attempt may take, or a wait for its bytes where they come from a store.
        validate_hash: The hash that every shard has to pass before it is used.
        keep_zip: Whether compressed files are kept beside the raw ones.
        epoch_size: Samples of an epoch where streams have relative weights or none; ``'100k'`` is understood.
        predownload: How many samples ahead shards are fetched; by default as many as the cache has room for.
        cache_limit: Most bytes that ``local`` may take; ``'10gb'`` and the like are understood.
        sampling_method: ``balanced`` draws anew every epoch, ``fixed`` takes the same samples.
        sampling_granularity: How many samples at a time are drawn from a shard.
        partition_algo: ``relaxed`` or ``orig``.
        num_canonical_nodes: Into how many parts sample space is divided, whatever the number of nodes.
        batch_size: Samples of a batch of one rank: that of the ``DataLoader``.
        shuffle: Whether to shuffle.
        shuffle_algo: ``py1e``, ``py1br``, ``py1s``, ``py2s``, ``naive`` or ``shardmill``.
        shuffle_seed: Decides the order.
        shuffle_block_size: How far a sample may move.
        batching_method: ``random``, ``stratified``, ``per_stream`` or ``device_per_stream``.
        allow_unsafe_types: Whether columns of pickles are loaded. A pickle can run any code.
        replication: How many consecutive ranks are given the same samples.
        stream_name: The class of the only stream, by its name in ``streams_registry``.
        stream_config: Further arguments of it.
        rank: Which rank this is. Without it torch.distributed and the environment are asked, when iteration begins.
        world_size: How many ranks there are.
        local_world_size: How many of them a node has; by default all.
        worker: Which loader process of the rank this is, for loaders other than torch's.
        num_workers: How many loader processes a rank has, for loaders other than torch's.
        threads: Threads that fill batches ahead in a process that is no worker.
        decode: What becomes of the fields of WebDataset streams. By default they are their bytes; ``True`` decodes
            text, numbers, JSON and arrays by their extension; ``'pil'``, ``'rgb8'``, ``'torchrgb'`` and so on decode
            images too; a callable is given a field and its bytes, and answers ``None`` for what it leaves to others.
        with_deleted: Whether samples that the table of a dataset no longer has are read like all others.

    Attributes:
        num_samples: Samples of all streams.
        num_shards: Shards of all streams.
        epoch_size: Samples of an epoch.
        shards: The shards, with their files, sizes and hashes.

    Raises:
        ValueError: Arguments that contradict each other or are out of range.
        RuntimeError: A stream has no index or no samples.
    """

    #: Of how many batches the raw files stay once they were given out; ``None`` for what the process needs.
    hold_batches: Optional[int] = None

    def __init__(
        self,
        *,
        streams: Optional[Sequence[Stream]] = None,
        remote: Optional[Path] = None,
        local: Optional[Path] = None,
        split: Optional[str] = None,
        download_retry: int = 2,
        download_timeout: float = DEFAULT_TIMEOUT,
        validate_hash: Optional[str] = None,
        keep_zip: bool = False,
        epoch_size: Optional[Union[int, str]] = None,
        predownload: Optional[int] = None,
        cache_limit: Optional[Union[float, str]] = None,
        sampling_method: str = 'balanced',
        sampling_granularity: int = 1,
        partition_algo: str = 'relaxed',
        num_canonical_nodes: Optional[int] = None,
        batch_size: Optional[int] = None,
        shuffle: bool = False,
        shuffle_algo: str = 'py1e',
        shuffle_seed: int = 9176,
        shuffle_block_size: Optional[int] = None,
        batching_method: str = 'random',
        allow_unsafe_types: bool = False,
        replication: Optional[int] = None,
        stream_name: str = 'stream',
        stream_config: Optional[Mapping[str, Any]] = None,
        rank: Optional[int] = None,
        world_size: Optional[int] = None,
        local_world_size: Optional[int] = None,
        worker: Optional[int] = None,
        num_workers: Optional[int] = None,
        threads: int = 1,
        decode: Union[str, bool, FieldDecoder, None] = None,
        with_deleted: bool = False,
    ) -> None:
        # Here and not in `__new__`, which would hide the arguments from whoever looks for them.
        _torch.adopt(StreamingDataset, 'IterableDataset', load=True)
        if streams is not None:
            streams = check.instances('streams', streams, Stream)
        remote = check.path_or_none('remote', remote)
        local = check.path_or_none('local', local)
        if bool(streams) == (bool(remote) or bool(local)):
            raise UsageError(
                'give either `streams`, or `remote` and `local`; not both, not neither',
                'config-streams',
            )
        check.given_together(rank=rank, world_size=world_size)
        check.given_together(worker=worker, num_workers=num_workers)
        rank = check.whole_or_none('rank', rank)
        world_size = check.whole_or_none('world_size', world_size, 1)
        local_world_size = check.whole_or_none('local_world_size', local_world_size)
        num_workers = check.whole_or_none('num_workers', num_workers, 1)
        worker = check.whole_or_none('worker', worker)
        if worker is not None and num_workers is not None and worker >= num_workers:
            raise UsageError(
                f'`worker` is {worker} and `num_workers` is {num_workers}: workers count from 0',
                'config-world',
                'worker',
            )

        self.predownload = None if predownload is None else check.count('predownload', predownload)
        self.cache_limit = check.byte_size('cache_limit', cache_limit)
        self.sampling_method = check.choice(
            'sampling_method', sampling_method, ('balanced', 'fixed')
        )
        self.sampling_granularity = check.count('sampling_granularity', sampling_granularity, 1)
        self.partition_algo = check.choice('partition_algo', partition_algo, partition_algos)
        self.num_canonical_nodes = check.whole_or_none('num_canonical_nodes', num_canonical_nodes)
        self.batch_size = check.whole_or_none('batch_size', batch_size, 1)
        self.shuffle = check.flag('shuffle', shuffle)
        self.shuffle_algo = check.choice('shuffle_algo', shuffle_algo, shuffle_algos)
        self.shuffle_seed = check.whole('shuffle_seed', shuffle_seed)
        self.shuffle_block_size = check.whole_or_none('shuffle_block_size', shuffle_block_size)
        self._default_block_size: Optional[int] = None
        self.batching_method = check.choice('batching_method', batching_method, batching_methods)
        self.allow_unsafe_types = check.flag('allow_unsafe_types', allow_unsafe_types)
        self.replication = check.whole_or_none('replication', replication, 1)
        self.threads = check.whole('threads', threads)
        self.decode = decode
        self._decode_field = field_decoder(decode)
        self.initial_physical_nodes: Optional[int] = None
        self.epoch_seed_change = self.shuffle and self.sampling_method == 'balanced'
        self._given_world = (rank, world_size, local_world_size, worker, num_workers)
        self._starter: Optional[tuple[int, World]] = None
        #: How another library splits what the next iteration yields; that of the process that spawned this one.
        self._split: Optional[Split] = None
        self._starter_split: Optional[Split] = None
        #: How many epochs `set_epoch` counts from: those of a state that was loaded.
        self._first_epoch = 0
        self._set_world()

        self._lookahead = self.predownload
        if self.predownload is None:
            self.predownload = 8 * self.batch_size if self.batch_size is not None else 64
        elif self.batch_size is not None and self.predownload < self.batch_size:
            warnings.warn(
                f'predownload < batch_size ({self.predownload} < {self.batch_size}). This may result '
                f'in slower batch time. Recommendation is to set it to at least the batch size.',
                stacklevel=2,
            )

        self._epoch_size_given = check.epoch_samples(epoch_size)
        retries = check.count('download_retry', 2 if download_retry is None else download_retry)
        timeout = DEFAULT_TIMEOUT if download_timeout is None else download_timeout
        default = {
            'remote': remote,
            'local': local,
            'split': check.path_or_none('split', split),
            'download_retry': retries,
            'download_timeout': check.number('download_timeout', timeout, above=0),
            'validate_hash': check.hash_name('validate_hash', validate_hash),
            'keep_zip': check.flag('keep_zip', keep_zip),
        }
        if streams:
            for stream in streams:
                stream.apply_default(default)
        else:
            streams = [
                construct_from_registry(
                    name=check.text('stream_name', stream_name),
                    registry=streams_registry,
                    partial_function=False,
                    pre_validation_function=None,
                    post_validation_function=None,
                    kwargs={**check.mapping('stream_config', stream_config or {}), **default},
                )
            ]
        default_deleted(streams, with_deleted)
        Stream.validate_weights(streams)
        self.streams = streams
        self.num_streams = len(streams)

        self._board = Board()
        self._files_digest: Optional[str] = None
        self._open()
        self._check_cache_limit()
        self.epoch_size = Stream.apply_weights(
            self.streams, self.samples_per_stream, self._epoch_size_given, self.shuffle_seed
        )
        self.length = ceil(self.epoch_size / self._parallel_rank_world.num_ranks)

    # Where this is: which rank, which worker.

    def _detect_world(self) -> World:
        """This rank and worker, by what was given, by torch, by the environment."""
        rank, world_size, local_world_size, worker, num_workers = self._given_world
        starter = self._world_of_starter()
        if rank is not None and world_size is not None:
            world = World.of_ranks(rank, world_size, local_world_size or world_size)
        elif rank is None and starter is not None:
            world = starter
        else:
            world = World.detect()
        if worker is not None and num_workers is not None and world.workers_per_rank == 1:
            number = world.rank * num_workers + worker
            world = World(world.num_nodes, world.ranks_per_node, num_workers, number)
        return world

    def _world_of_starter(self) -> Optional[World]:
        """In a worker that was spawned: what only the process group knows, its training process does."""
        if self._starter is None:
            return None
        pid, starter = self._starter
        # While a process that was spawned is given its arguments, nobody can tell whether it will be a worker.
        is_arriving = getattr(multiprocessing.current_process(), '_inheriting', False)
        parent = multiprocessing.parent_process()
        is_worker = _torch.worker_info() is not None and parent is not None and parent.pid == pid
        return starter.detect_workers() if is_arriving or is_worker else None

    def _set_world(self) -> World:
        """Finds out where this is; the attributes are those of the rank, without its workers."""
        world = self._detect_world()
        ranks = World(world.num_nodes, world.ranks_per_node, 1, world.rank)
        self._unique_rank_world = ranks
        self._parallel_rank_world = (
            ranks.copy() if self.replication is None else ranks.replicate(self.replication)
        )
        return world

    # What is read.

    def _open(self) -> None:
        """Opens the streams in this process: reads their indexes, nothing else."""
        self._batches: Optional[_core.Batches] = None
        self._fetcher: Optional[Fetcher] = None
        self._ready: Optional[tuple[int, Any]] = None
        self._as_batches = False
        self._progress: Optional[Progress] = None
        self._order_identity: Optional[tuple[dict[str, Any], str]] = None
        self._own_state: Optional[dict[str, Any]] = None
        self._is_fetched_here = any(
            stream._is_fetched_here() or not _core.is_served(stream.remote)
            for stream in self.streams
        )
        # Shards may come by the methods of the streams; then the index has to be there before it is read.
        shards = stored_shards(self) if self._is_fetched_here else None
        self._reader = self._open_reader()
        self._process = os.getpid()
        if shards is not None:
            self.shards = live_shards(self._reader, shards)
        if any(stream._is_raw for stream in self.streams):
            self._files_digest = self._reader.files_digest()
        self.num_samples = self._reader.samples
        self.num_shards = self._reader.shards
        if not self.allow_unsafe_types:
            self._refuse_unsafe_types()
        for stream, samples in zip(self.streams, self.samples_per_stream):
            if not samples:
                index = os.path.join(stream.local, stream.split, 'index.json')
                raise RuntimeError(f'Stream contains no samples: {index}.')

    def _open_reader(self) -> _core.Reader:
        """Opens the streams for the first time, with errors that callers of `streaming` know."""
        for stream in self.streams:
            find_index(stream)
        try:
            with in_known_words_of_streams(), folders_of(self.streams):
                return self._make_reader()
        except UsageError as error:
            if error.id == 'config-cache-limit' and self.cache_limit:
                # The cache refuses less than `streaming` does: one error with one figure says both.
                limit, self.cache_limit = self.cache_limit, None
                self._reader = self._make_reader()
                self.cache_limit = limit
                self._check_cache_limit()
            raise

    def _make_reader(self) -> _core.Reader:
        from shardmill.base.format.mds.encodings import mds_decode

        options: dict[str, Any] = {
            'download_retry': max(stream.download_retry for stream in self.streams),
            'download_timeout': max(stream.download_timeout for stream in self.streams),
        }
        if not self._is_fetched_here:
            if self.cache_limit:
                options['cache_limit'] = self.cache_limit
            if self._lookahead is not None:
                options['lookahead'] = ceil(self._lookahead / (self.batch_size or 1))
            options['peers'] = self._peers()
        if any((stream.remote or '').startswith('s3:') for stream in self.streams):
            from shardmill.base.storage import _s3

            # Keys may be in the files of AWS's own tools, which the Rust reader does not look into.
            options['settings'] = _s3.settings()
        streams = [stream._describe(self._is_fetched_here) for stream in self.streams]
        as_listed(streams, self._files_digest, getattr(self, '_reader', None))
        if gives_files(self.streams):
            options.update(holding_options())
        return _core.Reader(
            streams,
            options,
            mds_decode,
            decode_line,
            self._decode_field,
        )

    def _peers(self) -> tuple[int, int, int]:
        """Which of the processes of this node this is, how many there are, and a number of this run."""
        world = self._detect_world()
        names = ('TORCHELASTIC_RUN_ID', 'SLURM_JOB_ID', 'MASTER_ADDR', 'MASTER_PORT')
        run = ':'.join(os.environ.get(name, '') for name in names)
        return world.worker_of_node, world.workers_per_node, zlib.crc32(run.encode())

    def _here(self) -> _core.Reader:
        """The reader of this process: a forked child makes its own."""
        if self._process != os.getpid():
            self._reader = self._make_reader()
            self._batches = None
            self._fetcher = None
            self._process = os.getpid()
        return self._reader

    def _refuse_unsafe_types(self) -> None:
        unsafe = self._reader.columns_of('pkl')
        if unsafe:
            raise ValueError(
                f'Column {unsafe[0]!r} contains an unsafe type: a pickle, which can run any code when it '
                f'is loaded. Where you trust the dataset, give `allow_unsafe_types=True`.'
            )

    def _check_cache_limit(self) -> None:
        """Refuses what `streaming` or the cache refuses, with the least limit that both accept."""
        if not self.cache_limit:
            return
        indexes = sum(stream.get_index_size() for stream in self.streams)
        largest = self._reader.largest_shard()
        refuse_low_limit(self.cache_limit, indexes, largest, self._reader.least_cache_limit())
        self.max_shard_size_across_all_streams = largest

    @cached_property
    def shards(self) -> list[Reader]:
        """The shards of all streams, with their samples that are read."""
        return live_shards(self._here(), stored_shards(self))

    @property
    def size(self) -> int:
        """Samples of all streams, each counted once."""
        return self.num_samples

    def __len__(self) -> int:
        """Samples of an epoch for one rank; those of all ranks where a library divides them itself."""
        # A launcher may have said only now how many ranks there are.
        self._set_world()
        self.length = ceil(self.epoch_size / self._parallel_rank_world.num_ranks)
        return self.epoch_size * (self.replication or 1) if is_split_length() else self.length

    # Single samples.

    def get_item(self, sample_id: int, retry: int = 7) -> Any:
        """One sample; its shard is fetched if it is not there.

        Args:
            sample_id: Its number through all streams, from 0.
            retry: How many times a shard is fetched again that is removed before it was read.

        Returns:
            The values of its columns by name.

        Raises:
            IndexError: There is no such sample.
        """
        ready = self._ready
        if ready is not None and ready[0] == sample_id:
            # The iteration has it already; `get_item` was only called because a subclass has its own.
            self._ready = None
            return ready[1]
        number = check.sample_number(sample_id, self.num_samples)
        reader = self._here()
        if self._is_fetched_here:
            return self._fetching().sample(number, retry)
        return reader.sample(number)

    def _fetching(self) -> Fetcher:
        if self._fetcher is None:
            self._fetcher = Fetcher(self)
        return self._fetcher

    # Epochs.

    @property
    def next_epoch(self) -> int:
        """The epoch that begins next."""
        return self._board.next_epoch

    @next_epoch.setter
    def next_epoch(self, next_epoch: int) -> None:
        self._board.next_epoch = check.whole('next_epoch', next_epoch)

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch that the next iteration reads, as accelerate and programs with samplers do.

        Where a state was loaded, the first call afterwards names the epoch of the state, and later calls count from it.

        Args:
            epoch: The epoch, from 0.

        Raises:
            ValueError: It is negative.
        """
        if epoch < 0:
            raise UsageError(f'epoch is {epoch}: epochs count from 0', 'config-value', 'epoch')
        state = self._board.state
        reached = -1 if state is None else max(state['epoch'], 0)
        if state is not None and self.next_epoch <= reached:
            self._first_epoch = reached - epoch
            return
        chosen = max(epoch + self._first_epoch, 0)
        if state is not None and chosen <= reached:
            self._board.state = {**state, 'epoch': chosen, 'sample_in_epoch': 0}
        self.next_epoch = chosen

    def _resume(self, world: World, epoch: int) -> tuple[int, int]:
        """Where an epoch starts: at a state that was loaded, or at its beginning.

        Args:
            world: Where this is.
            epoch: The epoch, if no state says otherwise.

        Returns:
            The epoch, and the samples of it that were delivered before.
        """
        offset = 0
        state = self._own_state or self._board.state
        if state is not None:
            # A state that the run has passed still says how sample space is divided.
            if state['num_canonical_nodes']:
                self.num_canonical_nodes = state['num_canonical_nodes']
            self.shuffle_seed = state['shuffle_seed']
            self.initial_physical_nodes = state.get('initial_physical_nodes')
            if state['epoch'] >= epoch:
                epoch, offset = state['epoch'], state['sample_in_epoch']
        if not self.num_canonical_nodes:
            many = self.shuffle_algo in ('py1s', 'py2s')
            self.num_canonical_nodes = 64 * world.num_nodes if many else world.num_nodes
        if self.shuffle_block_size == self._default_block_size:
            self._default_block_size = max(4_000_000 // self.num_canonical_nodes, 1 << 18)
            self.shuffle_block_size = self._default_block_size
        return epoch, offset

    def state_dict(
        self, num_samples: Optional[int] = None, from_beginning: bool = True
    ) -> dict[str, Any]:
        """Where the run stands, as JSON can hold it. One state serves every rank and any number of them.

        Args:
            num_samples: Samples of this epoch that all ranks together were given. Only the loader of torchdata, which
                asks for the state together with each batch, may leave it out.
            from_beginning: Whether they are counted from the start of the epoch, or from where it was resumed.

        Returns:
            ``epoch``, ``sample_in_epoch``, ``num_canonical_nodes``, ``shuffle_seed``, ``initial_physical_nodes``;
            ``shardmill``, what the order depends on; where raw files are read ``files``, a digest of their list.
        """
        num_samples = check.whole('num_samples', num_samples)
        world = self._parallel_rank_world
        epoch, offset = self._resume(world, self.next_epoch - 1)
        nodes = self.initial_physical_nodes
        state: dict[str, Any] = {
            'epoch': epoch,
            'sample_in_epoch': num_samples if from_beginning else offset + (num_samples or 0),
            'num_canonical_nodes': self.num_canonical_nodes,
            'shuffle_seed': self.shuffle_seed,
            'initial_physical_nodes': world.num_nodes if nodes is None else nodes,
        }
        if num_samples is None:
            state.update(own_state(self))
        here = RankLayout(world, None, self.batch_size)
        state['shardmill'] = mark_order(self, self._progress.order if self._progress else here)
        if self._files_digest is not None:
            state['files'] = self._files_digest
        return state

    def load_state_dict(self, obj: dict[str, Any]) -> None:
        """Goes on where a state says, from the next iteration on; in persistent workers too.

        Args:
            obj: What `state_dict` gave, here or in ``streaming``.

        Raises:
            ValueError: It is no such state.
            FileExistsError: It was made with other shards, in another order, or with another list of raw files.
        """
        state = check_state(obj)
        check_files(state, self._files_digest)
        if self.batching_method == 'random':
            check_order(self, state, RankLayout(self._set_world(), None, self.batch_size))
        if not take_own_state(self, state):
            self._board.state = state
            if state['epoch'] >= 0:
                self._board.next_epoch = state['epoch']

    def resample_streams(
        self, epoch: int, stream_id: Optional[int] = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Draws the samples of an epoch from the streams, by their weights.

        Args:
            epoch: The epoch.
            stream_id: The only stream to draw from; by default all.

        Returns:
            Sizes of the units that are shuffled, shape ``[units]``; the samples in them, shape ``[samples]``.
        """
        from shardmill.base.sampling import resample_streams

        return resample_streams(self, epoch, stream_id)

    def _begin(self, threads: Optional[int] = None) -> _core.Batches:
        """The batches of this worker in the next epoch.

        Args:
            threads: Threads that fill batches ahead; by default those of the dataset, and none in a worker process.
        """
        reader = self._here()
        world, config = self._next_config()
        if threads is None:
            threads = 0 if world.workers_per_rank > 1 else self.threads
        if self.cache_limit and gives_files(self.streams):
            # Batches that wait to be taken would hold files.
            threads = 0
        try:
            batches = reader.epoch(
                config,
                world.rank,
                world.worker_of_rank,
                threads,
                **holding(kept_batches(self.hold_batches)),
            )
        except UsageError as error:
            raise in_known_words(error) from error
        self._batches = batches
        return batches

    def _begin_order(self) -> _core.Order:
        """The samples of this worker in the next epoch, which nobody reads ahead."""
        reader = self._here()
        world, config = self._next_config()
        try:
            return reader.order(config, world.rank, world.worker_of_rank)
        except UsageError as error:
            raise in_known_words(error) from error

    def _next_config(self) -> tuple[World, dict[str, Any]]:
        """Where this is, and what the Rust reader is told of the next epoch, which begins now."""
        if self._batches is not None and self._process == os.getpid():
            # One epoch at a time: the one before ends, wherever it was.
            self._batches.close()
        split, self._split = self._split, None
        world = self._set_world()
        self._unique_worker_world = world
        self._parallel_worker_world = (
            world.copy() if self.replication is None else world.replicate(self.replication)
        )
        order = RankLayout(world, self.replication, self.batch_size)
        if split is not None:
            order = split.order(world, self.replication)
            order = order._replace(batch_size=order.batch_size or self.batch_size)
        state = self._own_state or self._board.state
        reached = 0 if state is None else max(state['epoch'], 0)
        begun = self._board.begin(world.worker_of_rank, reached, exact=self._own_state is not None)
        if state is not None and reached >= begun and self.batching_method != 'random':
            # Only now it is certain how large a global batch is.
            check_order(self, state, order)
        epoch, offset = self._resume(self._parallel_worker_world, begun)
        self._own_state = None
        if not isinstance(order.batch_size, int):
            raise UsageError(
                'Please pass `batch_size` to StreamingDataset, the same as to the DataLoader: the order '
                'of samples depends on it.',
                'config-value',
                'batch_size',
            )
        config = config_of(self, order)
        config['epoch'] = epoch
        config['resume'] = {
            'epoch': epoch,
            'sample_in_epoch': offset,
            'num_canonical_nodes': self.num_canonical_nodes,
            'shuffle_seed': self.shuffle_seed,
            'initial_physical_nodes': self.initial_physical_nodes,
        }
        self._progress = Progress(epoch, offset, order)
        warn_of_shuffle(self)
        return order.world, config

    def _is_plain(self) -> bool:
        """Whether samples are what the columns say: no subclass has a hand in them."""
        own = type(self)
        return (
            own.get_item is StreamingDataset.get_item
            and own.__getitem__ is Array.__getitem__
            and own.__iter__ is StreamingDataset.__iter__
            and not self._is_fetched_here
        )

    def __iter__(self) -> Iterator[SampleT]:
        """The samples of this rank and worker in the next epoch."""
        # A worker process whose state is asked for has to be in an epoch as soon as it has an iterator.
        at_once = is_counted() and _torch.worker_info() is not None
        return self._samples() if at_once else later(self._samples)

    def _samples(self) -> Iterator[Any]:
        is_plain = type(self).__iter__ is StreamingDataset.__iter__
        split = find_split(self, is_plain) or self._starter_split
        if split is None:
            return samples_of(self)
        split.warn()
        if split.is_dispatched and split.number:
            # The library does not read on this rank.
            return iter(())
        self._split = split
        samples = samples_of(self)
        return in_slots(samples, split) if split.is_placed else samples

    # The cache by hand.

    @property
    def cache_usage(self) -> int:
        """Bytes of shards and indexes in the local folders."""
        return self._fetching().usage()

    def prepare_shard(self, shard_id: int, blocking: bool = True) -> None:
        """Sees to it that a shard is in the local folder.

        Args:
            shard_id: Its number through all streams.
            blocking: Kept for compatibility: the call always waits.
        """
        self._fetching().prepare(check.place('shard_id', shard_id, self.num_shards, 'shard'))

    def evict_shard(self, shard_id: int) -> None:
        """Removes a shard from the local folder.

        Args:
            shard_id: Its number through all streams.
        """
        self._fetching().evict(check.place('shard_id', shard_id, self.num_shards, 'shard'))

    def evict_coldest_shard(self) -> None:
        """Removes the shard from the local folder that was not asked for for longest.

        Raises:
            ValueError: There is none.
        """
        self._fetching().evict_coldest()

    def stats(self) -> dict[str, Any]:
        """What reading has cost in this process, by name.

        Batches, samples, bytes, waits and their seconds are those of this epoch; shards and bytes fetched, shards found
        in the cache, requests and retries are counted since the dataset was opened.
        """
        stats: dict[str, Any] = dict(self._here().cache_stats())
        if self._batches is not None:
            stats.update(self._batches.stats())
        return stats

    def __repr__(self) -> str:
        return dataset_representation(self)

    # Between processes.

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in self.__dict__.items() if name not in _OWN}
        state['_starter'] = os.getpid(), self._detect_world()
        # A process that is spawned has no calls of this one beneath its own.
        split = find_split(self, False) if context.get_spawning_popen() is not None else None
        state['_starter_split'] = split if split is not None and split.is_dispatched else None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()


_torch.adopt(StreamingDataset, 'IterableDataset')
