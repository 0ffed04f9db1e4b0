"""Iterates over one or several streams in an order that does not depend on the number of nodes, ranks or workers."""

from __future__ import annotations

import os
import threading
import warnings
from functools import cached_property
from math import ceil
from multiprocessing import context
from typing import TYPE_CHECKING, Any, Optional, Union, overload

from shardmill import _core, _torch
from shardmill._lazy import lazy
from shardmill.base import _arguments as check
from shardmill.base import _opening, _state
from shardmill.base._fields import FieldDecoder, field_decoder
from shardmill.base._iteration import later, samples_of, warn_of_shuffle
from shardmill.base._live import given_view
from shardmill.base._own_world import OwnWorld
from shardmill.base._sharding import RankLayout, Split, find_split, in_slots, is_split_length
from shardmill.base._shared_state import SharedState, end_if_orphaned
from shardmill.base._skip import Skips, passed
from shardmill.base._stored import Stored, given_window
from shardmill.base.constant import DEFAULT_TIMEOUT
from shardmill.base.stream import Stream, registered_stream
from shardmill.base.world import World
from shardmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch.distributed.device_mesh import DeviceMesh
    from torch.utils.data import IterableDataset as _IterableDataset

    from shardmill.base._fetching import Fetcher
    from shardmill.base._skip import SkippedStep
    from shardmill.base._training_batches import BatchIterator
    from shardmill.base._typing import Path, SampleT
    from shardmill.base.format.base.reader import Reader
    from shardmill.base.spanner import Spanner
    from shardmill.lineage import SampleSteps, StepSamples
    from shardmill.mixtures import Mixture, MixtureWindow
    from shardmill.packing import Packing, TokenReader
    from shardmill.stats import DatasetStats
    from shardmill.views import View
    from shardmill.windows import Window
else:
    _IterableDataset, SampleT = _torch.Placeholder, Any

__all__ = ['StreamingDataset']


# Programs written for `streaming` import these names from here.
__getattr__, _ = lazy(
    __name__,
    {
        'batching': ('generate_work',),
        'sampling': ('get_sampling',),
        'shared.prefix': ('get_shm_prefix',),
    },
    root='shardmill.base',
)

#: Attributes that each process creates for itself. They are not pickled.
_OWN = (
    '_batches',
    '_reader',
    '_fetcher',
    '_as_batches',
    '_transform_seconds',
    '_ready',
    '_progress',
    '_order_identity',
    '_known_rows',
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


class Ready(threading.local):
    """A sample that the iteration of this thread has read, and its number."""

    sample: Optional[tuple[int, Any]] = None


class StreamingDataset(Stored, _IterableDataset[SampleT]):
    """An iterable dataset for torch that resumes in the middle of an epoch on any number of nodes.

    Pass either ``streams``, or ``remote`` and ``local`` for a single stream. If torch is installed, this is a
    ``torch.utils.data.IterableDataset``. For type checkers it is generic in the sample type, which defaults to
    ``Any``: samples of ``StreamingDataset[Sample]`` are dicts, those of ``StreamingDataset[Tensor]`` are tensors.

    Args:
        streams: The streams to mix.
        remote: The location of a single dataset: a folder, or the URL of a prefix.
        local: The folder to read from. With ``remote``, shards are downloaded to it.
        split: A subfolder of both, such as ``train``.
        format: ``parquet`` or ``delta`` to read the table at ``remote`` in place: see `TableStream`.
        columns: The columns to read of such a table. Defaults to all.
        version: The version of a Delta table. Defaults to the latest.
        where: An SQL expression that selects rows of such a table.
        nulls: How samples of such a table show nulls: ``none``, the default, or ``mask``.
        download_retry: How many times a failed download is retried.
        download_timeout: Seconds after which a download attempt fails; for a store, seconds without new data.
        validate_hash: The hash that is checked for every shard before it is used.
        keep_zip: Whether to keep compressed files after decompression.
        epoch_size: Samples per epoch, for streams with relative weights or none. Accepts text such as ``'100k'``.
        predownload: How many samples ahead to prefetch shards. Defaults to as many as fit in the cache.
        cache_limit: Maximum size of ``local`` in bytes. Accepts text such as ``'10gb'``.
        sampling_method: ``balanced`` draws new samples every epoch, ``fixed`` draws the same ones.
        sampling_granularity: How many samples are drawn from a shard at a time.
        partition_algo: ``relaxed`` or ``orig``.
        num_canonical_nodes: How many parts the sample space is divided into, independent of the number of nodes.
        batch_size: Samples per batch of one rank. Use the batch size of the ``DataLoader``.
        shuffle: Whether to shuffle.
        shuffle_algo: ``py1e``, ``py1br``, ``py1s``, ``py2s``, ``naive`` or ``shardmill``.
        shuffle_seed: The seed of the sample order.
        shuffle_block_size: Samples per shuffle block, which bounds how far a sample moves.
        batching_method: ``random``, ``stratified``, ``per_stream`` or ``device_per_stream``.
        allow_unsafe_types: Whether to load pickled columns. Loading a pickle can run any code.
        replication: How many consecutive ranks receive the same samples.
        stream_name: The class of a single stream, by its name in ``streams_registry``.
        stream_config: Additional arguments for that class.
        rank: This process's rank. By default torch.distributed or the environment decides when iteration begins.
        world_size: The number of ranks.
        local_world_size: The number of ranks per node. Defaults to all ranks.
        worker: The number of this loader process within its rank, for loaders other than torch's.
        num_workers: The number of loader processes per rank, for loaders other than torch's.
        mesh: The ``DeviceMesh`` of the processes, if tensor, context or pipeline parallel ranks share samples.
        data_dims: The dimensions of the mesh along which samples differ, such as ``('dp_replicate', 'dp_shard')``.
            Defaults to all of them.
        data_rank: Instead of ``mesh``, the number of this process among those that receive different samples.
        data_world_size: How many processes receive different samples.
        threads: Threads that prepare batches ahead, in a process that is not a worker.
        decode: How to decode fields of WebDataset streams. By default fields are bytes. ``True`` decodes text,
            numbers, JSON and arrays by extension. ``'pil'``, ``'rgb8'``, ``'torchrgb'`` and similar also decode
            images. A callable receives a field and its bytes, and returns ``None`` to leave it to the default.
        with_deleted: Whether to also read samples that were deleted from the dataset's table.
        view: The samples to read: a `View`, or the path of its file. Each of several ``streams`` has its own.
        window: The neighbours that are returned with each sample: a `Window`.
        packing: How documents of tokens become rows: a `Packing`. The dataset then yields rows, and ``batch_size``
            counts rows.
        skip: Steps that are left out; all others stay as they are. A step is what `which` returns, a pair of epoch and
            step, or a step of epoch 0. Steps count from the start of their epoch. A state records them.
        skip_samples: Samples that are left out. A sample before it in the batch is repeated in its place. With packing,
            its tokens become padding.
        mixture: Weights of the ``streams`` that change over the run. Streams then have no weights of their own.
        storage_options: Store settings that are not in the environment, such as ``{'AWS_PROFILE': 'train'}``, for
            streams that have none of their own.
        peers: The addresses of all nodes, such as ``['node0:7300', 'node1:7300']``, if they share their caches.
            Defaults to the environment variable ``SHARDMILL_PEERS``. All nodes need the same secret in
            ``SHARDMILL_PEERS_TOKEN``.

    Attributes:
        num_samples: Total samples of all streams.
        num_shards: Total shards of all streams.
        epoch_size: Samples per epoch.
        shards: The shards, with their files, sizes and hashes.

    Raises:
        ValueError: Arguments contradict each other or are out of range.
        RuntimeError: A stream has no index or no samples.
    """

    #: For how many batches raw files stay pinned after they were returned; ``None`` for the default of the process.
    hold_batches: Optional[int] = None

    def __init__(
        self,
        *,
        streams: Optional[Sequence[Stream]] = None,
        remote: Optional[Path] = None,
        local: Optional[Path] = None,
        split: Optional[str] = None,
        format: Optional[str] = None,
        columns: Optional[Sequence[str]] = None,
        version: Optional[int] = None,
        where: Optional[str] = None,
        nulls: Optional[str] = None,
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
        mesh: Optional[DeviceMesh] = None,
        data_dims: Union[str, Sequence[str], None] = None,
        data_rank: Optional[int] = None,
        data_world_size: Optional[int] = None,
        threads: int = 1,
        decode: Union[str, bool, FieldDecoder, None] = None,
        with_deleted: bool = False,
        view: Union[View, Path, None] = None,
        window: Optional[Window] = None,
        packing: Optional[Packing] = None,
        skip: Optional[Iterable[SkippedStep]] = None,
        skip_samples: Optional[Iterable[int]] = None,
        mixture: Optional[Mixture] = None,
        storage_options: Optional[Mapping[str, str]] = None,
        peers: Optional[Sequence[str]] = None,
    ) -> None:
        # Not in `__new__`, whose signature would hide these arguments from introspection.
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
        self._own_world = OwnWorld(
            rank=rank,
            world_size=world_size,
            local_world_size=local_world_size,
            worker=worker,
            num_workers=num_workers,
            replication=replication,
            mesh=mesh,
            data_dims=data_dims,
            data_rank=data_rank,
            data_world_size=data_world_size,
        )

        from shardmill.base.batching import batching_methods
        from shardmill.base.partition import algos as partition_algos
        from shardmill.base.shuffle import algos as shuffle_algos

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
        #: How another library splits the samples of the next iteration, here and in the spawning process.
        self._split: Optional[Split] = None
        self._starter_split: Optional[Split] = None
        #: Added to the argument of `set_epoch`: the offset of a loaded state.
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
        default: dict[str, Any] = {
            'remote': remote,
            'local': local,
            'split': check.path_or_none('split', split),
            'download_retry': retries,
            'download_timeout': check.number('download_timeout', timeout, above=0),
            'validate_hash': check.hash_name('validate_hash', validate_hash),
            'keep_zip': check.flag('keep_zip', keep_zip),
        }
        settings = check.storage_options(storage_options)
        if settings is not None:
            # Only if it is given, because streams of programs may not have this argument.
            default['storage_options'] = settings
        table: dict[str, Any] = {
            'format': format,
            'columns': columns,
            'version': version,
            'where': where,
            'nulls': nulls,
        }
        table = {name: value for name, value in table.items() if value is not None}
        if table:
            from shardmill.tables import table_stream

            streams = [table_stream(table, streams, remote, local)]
        if streams:
            for stream in streams:
                stream.apply_default(default)
        else:
            streams = [
                registered_stream(
                    check.text('stream_name', stream_name),
                    {**check.mapping('stream_config', stream_config or {}), **default},
                )
            ]
        _opening.default_live(streams, with_deleted, given_view(view))
        self.window = given_window(window)
        self.peers = _opening.given_peers(peers)
        self._episodes = None
        Stream.validate_weights(streams)
        self._given_mixture: Optional[str] = None
        if mixture is not None:
            from shardmill.mixtures import check_mixture

            self._given_mixture = check_mixture(mixture, streams)
        self.streams = streams
        self.num_streams = len(streams)

        self._shared = SharedState()
        self._files_digest: Optional[str] = None
        self._index_digests: Optional[list[str]] = None
        self._open()
        self._check_cache_limit()
        self._skips = Skips.of_arguments(skip, skip_samples, self.num_samples)
        self.epoch_size = Stream.apply_weights(
            self.streams, self.samples_per_stream, self._epoch_size_given, self.shuffle_seed
        )
        self.packing = packing
        if packing is not None:
            from shardmill.packing import given_packing

            self.packing = given_packing(self, packing, window, mixture)
        self.length = ceil(self.epoch_size / self._parallel_rank_world.num_ranks)
        # Raises an error for an invalid mixture.
        self.mixture_windows()

    # Opening.

    def _open(self) -> None:
        """Opens the streams in this process, reading only their indexes."""
        self._batches: Union[_core.Batches, TokenReader, None] = None
        self._known_rows: Optional[tuple[str, int]] = None
        self.__dict__.pop('_fetcher', None)
        self._ready = Ready()
        self._as_batches = False
        self._transform_seconds = 0.0
        self._progress: Optional[_state.Progress] = None
        self._order_identity: Optional[tuple[dict[str, Any], str]] = None
        self._own_state: Optional[dict[str, Any]] = None
        self._fetches_in_python = any(
            stream._fetches_in_python() or not _core.is_served(stream.remote)
            for stream in self.streams
        )
        # If streams fetch shards with their own methods, the index must be local before it is read.
        shards = self._stored_shards() if self._fetches_in_python else None
        self._reader = _opening.open_reader(self)
        self._process = os.getpid()
        self._read_digests = self._reader.index_digests()
        self._index_digests = self._index_digests or self._read_digests
        if shards is not None:
            self.shards = self._live_shards(shards)
            _opening.check_shards(self.streams, shards, self._reader.shard_sizes())
        if any(stream._is_raw for stream in self.streams):
            self._files_digest = self._reader.files_digest()
        self.num_samples = self._reader.samples
        self.num_shards = self._reader.shards
        if not self.allow_unsafe_types:
            _opening.refuse_unsafe_types(self._reader)
        for stream, samples in zip(self.streams, self.samples_per_stream):
            if not samples:
                index = os.path.join(stream.local, stream.split, 'index.json')
                raise RuntimeError(f'Stream contains no samples: {index}.')

    def _here(self) -> _core.Reader:
        """Returns the reader of this process; a forked child opens its own."""
        if self._process != os.getpid():
            self._reader = _opening.make_reader(self)
            self._read_digests = self._reader.index_digests()
            self._batches = None
            self.__dict__.pop('_fetcher', None)
            self._process = os.getpid()
        return self._reader

    def _same_here(self) -> _core.Reader:
        """As `_here`, but raises an error if the index is another one than that of the process that began the run."""
        reader = self._here()
        _opening.check_same(self.streams, self._index_digests or [], self._read_digests)
        return reader

    def _check_cache_limit(self) -> None:
        """Rejects a limit that `streaming` or the cache would reject, naming the minimum that satisfies both."""
        if not self.cache_limit:
            return
        indexes = sum(stream.get_index_size() for stream in self.streams)
        largest = self._reader.largest_shard()
        _state.refuse_low_limit(
            self.cache_limit, indexes, largest, self._reader.least_cache_limit()
        )
        self.max_shard_size_across_all_streams = largest

    def _set_world(self) -> World:
        """Detects ranks and workers; the attributes describe the rank without its workers."""
        world = self._own_world.detect()
        ranks = World(world.num_nodes, world.ranks_per_node, 1, world.rank)
        self._unique_rank_world = ranks
        self._parallel_rank_world = (
            ranks.copy() if self.replication is None else ranks.replicate(self.replication)
        )
        return world

    @cached_property
    def shards(self) -> list[Reader]:
        """The shards of all streams, without samples that are not read."""
        return self._live_shards(self._stored_shards())

    def _stored_shards(self) -> list[list[Reader]]:
        world, unsafe = self._unique_rank_world, self.allow_unsafe_types
        return [list(stream.get_shards(world, unsafe)) for stream in self.streams]

    def _live_shards(self, shards: list[list[Reader]]) -> list[Reader]:
        """Returns the shards of all streams in one list, without samples that are not read."""
        from shardmill.base.format.base.reader import leave_out

        for number, own in enumerate(shards):
            leave_out(own, self._here().deleted_samples(number))
        return [shard for own in shards for shard in own]

    def __len__(self) -> int:
        """Returns the samples per epoch of one rank, or of all ranks if a library divides them itself."""
        # The launcher may have set the number of ranks only after this dataset was constructed.
        self._set_world()
        items = self._epoch_items()
        self.length = ceil(items / self._parallel_rank_world.num_ranks)
        return items * (self.replication or 1) if is_split_length() else self.length

    # Shards.

    def _sizes(self) -> list[NDArray[np.int64]]:
        import numpy as np

        return [np.frombuffer(sizes, np.int64) for sizes in self._here().shard_sizes()]

    @cached_property
    def samples_per_shard(self) -> NDArray[np.int64]:
        """Samples of each shard. Shape: ``[shards]``."""
        import numpy as np

        return np.concatenate(self._sizes())

    @cached_property
    def sample_offset_per_shard(self) -> NDArray[np.int64]:
        """The first sample of each shard. Shape: ``[shards]``."""
        sizes = self.samples_per_shard
        return sizes.cumsum() - sizes

    @cached_property
    def shards_per_stream(self) -> NDArray[np.int64]:
        """Shards of each stream. Shape: ``[streams]``."""
        import numpy as np

        return np.array([len(sizes) for sizes in self._sizes()], np.int64)

    @cached_property
    def shard_offset_per_stream(self) -> NDArray[np.int64]:
        """The first shard of each stream. Shape: ``[streams]``."""
        shards = self.shards_per_stream
        offsets: NDArray[np.int64] = shards.cumsum() - shards
        return offsets

    @cached_property
    def samples_per_stream(self) -> NDArray[np.int64]:
        """Samples of each stream. Shape: ``[streams]``."""
        import numpy as np

        return np.array([sizes.sum() for sizes in self._sizes()], np.int64)

    @cached_property
    def sample_offset_per_stream(self) -> NDArray[np.int64]:
        """The first sample of each stream. Shape: ``[streams]``."""
        samples = self.samples_per_stream
        offsets: NDArray[np.int64] = samples.cumsum() - samples
        return offsets

    @cached_property
    def stream_per_shard(self) -> NDArray[np.int64]:
        """The stream of each shard. Shape: ``[shards]``."""
        import numpy as np

        return np.repeat(np.arange(self.num_streams), self.shards_per_stream)

    @cached_property
    def spanner(self) -> Spanner:
        """Maps a sample number to its shard and its position in the shard."""
        from shardmill.base.spanner import Spanner

        return Spanner(self.samples_per_shard)

    def _make_local(self, start: int, stop: int, /) -> None:
        if self._fetches_in_python:
            self._fetching().prepare_samples(start, stop)

    def _is_local(self, sample_id: int, /) -> bool:
        if self._fetches_in_python:
            return bool(self._fetching().has(sample_id))
        return super()._is_local(sample_id)

    @property
    def cache_usage(self) -> int:
        """The size of shards and indexes in the local folders, in bytes."""
        return int(self._fetching().usage())

    def prepare_shard(self, shard_id: int, blocking: bool = True) -> None:
        """Downloads a shard to the local folder unless it is already there.

        Args:
            shard_id: The number of the shard across all streams.
            blocking: Ignored, for compatibility: the call always waits.
        """
        self._fetching().prepare(check.place('shard_id', shard_id, self.num_shards, 'shard'))

    def evict_shard(self, shard_id: int) -> None:
        """Removes a shard from the local folder.

        Args:
            shard_id: The number of the shard across all streams.
        """
        self._fetching().evict(check.place('shard_id', shard_id, self.num_shards, 'shard'))

    def evict_coldest_shard(self) -> None:
        """Removes the least recently used shard from the local folder.

        Raises:
            ValueError: No shard is in the local folder.
        """
        self._fetching().evict_coldest()

    # Access by number.

    def get_item(self, sample_id: int, retry: int = 7) -> Any:
        """Returns one sample, downloading its shard if necessary.

        Args:
            sample_id: The number of the sample across all streams, from 0.
            retry: How many times to download a shard again if it is evicted before it was read.

        Returns:
            The values of its columns by name.

        Raises:
            IndexError: The sample does not exist.
        """
        ready = self._ready.sample
        if ready is not None and ready[0] == sample_id:
            # The iteration already read this sample and called `get_item` only because a subclass overrides it.
            self._ready.sample = None
            return ready[1]
        number = check.sample_number(sample_id, self.num_samples)
        reader = self._here()
        if self._fetches_in_python:
            return self._fetching().sample(number, retry)
        return reader.sample(number)

    def _fetching(self) -> Fetcher:
        """Returns the fetcher of this process."""
        from shardmill.base._fetching import Fetcher

        self._here()
        fetcher: Optional[Fetcher] = self.__dict__.get('_fetcher')
        # Threads may create several at once, and all of them use the first: `setdefault` is atomic.
        return fetcher or self.__dict__.setdefault('_fetcher', Fetcher(self))

    # Epochs.

    @property
    def next_epoch(self) -> int:
        """The number of the next epoch."""
        return self._shared.next_epoch

    @next_epoch.setter
    def next_epoch(self, next_epoch: int) -> None:
        self._shared.next_epoch = check.whole('next_epoch', next_epoch)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that the next iteration reads, for accelerate and other programs that call samplers.

        After a state is loaded, the first call refers to the epoch of that state, and later calls count from there.

        Args:
            epoch: The epoch, from 0.

        Raises:
            ValueError: The epoch is negative.
        """
        if epoch < 0:
            raise UsageError(f'epoch is {epoch}: epochs count from 0', 'config-value', 'epoch')
        state = self._shared.state
        reached = -1 if state is None else max(state['epoch'], 0)
        if state is not None and self.next_epoch <= reached:
            self._first_epoch = reached - epoch
            return
        chosen = max(epoch + self._first_epoch, 0)
        if state is not None and chosen <= reached:
            self._shared.state = {**state, 'epoch': chosen, 'sample_in_epoch': 0}
        self.next_epoch = chosen

    def _resume(self, world: World, epoch: int) -> tuple[int, int]:
        """Returns the epoch to start, a loaded state's if that is later, and how many of its samples were delivered."""
        offset = 0
        state = self._own_state or self._shared.state
        if state is not None:
            # After the epoch of the state, its division of the sample space still applies.
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
        """Returns the position of the run as JSON-compatible values. The state is valid for any number of ranks.

        Args:
            num_samples: Samples of this epoch delivered to all ranks together. Only torchdata's loader, which
                requests the state with each batch, may omit it.
            from_beginning: Whether they count from the start of the epoch, or from where it was resumed.

        Returns:
            ``epoch``, ``sample_in_epoch``, ``num_canonical_nodes``, ``shuffle_seed``, ``initial_physical_nodes``.
            ``shardmill`` identifies the sample order. ``files``, for raw files, is a digest of the file list. ``skip``
            are the skipped steps and samples, if any.
        """
        num_samples = check.whole_or_none('num_samples', num_samples)
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
            state.update(_state.own_state(self))
        here = RankLayout(world, None, self.batch_size)
        order = self._progress.order if self._progress else here
        loaded = self._own_state or self._shared.state
        skips = self._skips.with_state(loaded, order.global_batch)
        if skips.steps or skips.samples:
            state['skip'] = skips.as_state()
            if num_samples is not None:
                start = 0 if from_beginning else offset
                state['sample_in_epoch'] = passed(start, num_samples, skips.of_epoch(epoch))
        if self._mixture_json() is not None:
            from shardmill.mixtures import mixture_of_state

            state['mixture'] = mixture_of_state(self, epoch, state['sample_in_epoch'])
        state['shardmill'] = _state.mark_order(self, order)
        if self._files_digest is not None:
            state['files'] = self._files_digest
            state.update(_state.versions_of(self.streams))
        if self.packing is not None:
            state['packing'] = self.packing._identity()
        return state

    def load_state_dict(self, obj: dict[str, Any]) -> None:
        """Resumes from a state in the next iteration, also in persistent workers.

        Args:
            obj: The result of `state_dict`, from shardmill or ``streaming``.

        Raises:
            ValueError: The state is invalid.
            FileExistsError: The state was made with other shards, another order, or another list of raw files.
        """
        state = _state.check_state(obj)
        self._skips.with_state(state, 1)
        _state.check_files(state, self._files_digest)
        if 'packing' in state or self.packing is not None:
            from shardmill.packing import check_packing

            check_packing(state, self.packing)
        order = RankLayout(self._set_world(), None, self.batch_size)
        mixture = self._mixture_json()
        if state.get('mixture') is not None:
            from shardmill.mixtures import continued_mixture

            mixture = continued_mixture(self, state, order)
        if self.batching_method == 'random':
            _state.check_order(self, state, order, mixture)
        self._shared.mixture = None if mixture is None else {'applied': mixture}
        if not _state.take_own_state(self, state):
            self._shared.state = state
            if state['epoch'] >= 0:
                self._shared.next_epoch = state['epoch']

    def resample_streams(
        self, epoch: int, stream_id: Optional[int] = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Draws the samples of an epoch from the streams according to their weights.

        Args:
            epoch: The epoch.
            stream_id: The stream to draw from; by default all.

        Returns:
            Sizes of the shuffle units, shape ``[units]``; the sample numbers in them, shape ``[samples]``.
        """
        from shardmill.base.sampling import resample_streams

        return resample_streams(self, epoch, stream_id)

    def _begin(self, threads: Optional[int] = None) -> Any:
        """Starts the next epoch and returns the batches of this worker."""
        reader = self._same_here()
        world, config = self._next_config()
        if self.packing is not None:
            from shardmill.packing import begin_rows

            self._batches = begin_rows(self, config, world.rank, world.worker_of_rank)
            return self._batches
        if threads is None:
            threads = 0 if world.workers_per_rank > 1 else self.threads
        if self.cache_limit and _opening.gives_files(self.streams):
            # Prepared batches would pin files while they wait.
            threads = 0
        try:
            batches = reader.epoch(
                config,
                world.rank,
                world.worker_of_rank,
                threads,
                hold=_opening.holding(self.hold_batches),
            )
        except UsageError as error:
            raise _state.with_streaming_prefix(error) from error
        self._batches = batches
        return batches

    def _epoch_items(self) -> int:
        """Returns how many items all ranks together yield in the next epoch: samples, or rows of tokens."""
        if self.packing is None:
            return self.epoch_size
        from shardmill.packing import rows_of

        epoch, _ = self._resume(self._parallel_rank_world, self.next_epoch)
        return rows_of(self, RankLayout(self._set_world(), None, self.batch_size), epoch)

    def _begin_order(self) -> _core.Order:
        """Starts the next epoch and returns the sample order of this worker, without prefetching."""
        reader = self._here()
        world, config = self._next_config()
        try:
            return reader.order(config, world.rank, world.worker_of_rank)
        except UsageError as error:
            raise _state.with_streaming_prefix(error) from error

    def _next_config(self) -> tuple[World, _core.EpochOptions]:
        """Starts the next epoch; returns the world and the configuration for the Rust reader."""
        if self._batches is not None and self._process == os.getpid():
            # Only one epoch is active: close the previous one even if it is unfinished.
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
        state = self._own_state or self._shared.state
        reached = 0 if state is None else max(state['epoch'], 0)
        begun = self._shared.begin(world.worker_of_rank, reached, exact=self._own_state is not None)
        if state is not None and reached >= begun and self.batching_method != 'random':
            # The size of a global batch is known only now.
            _state.check_order(self, state, order)
        epoch, offset = self._resume(self._parallel_worker_world, begun)
        skips = self._skips.with_state(state, order.global_batch)
        self._own_state = None
        if not isinstance(order.batch_size, int):
            raise UsageError(
                'Please pass `batch_size` to StreamingDataset, the same as to the DataLoader: the order '
                'of samples depends on it.',
                'config-value',
                'batch_size',
            )
        resume = (
            epoch,
            offset,
            self.shuffle_seed,
            self.num_canonical_nodes,
            self.initial_physical_nodes,
        )
        skipped = skips.of_epoch(epoch)
        config = _core.EpochOptions(
            **_state.config_of(self, order),
            epoch=epoch,
            resume=resume,
            skip=skipped,
            skip_samples=skips.samples,
        )
        self._progress = _state.Progress(epoch, offset, order, skipped)
        warn_of_shuffle(self)
        return order.world, config

    def _is_plain(self) -> bool:
        """Returns whether Rust fetches the shards and no subclass overrides how samples are read."""
        return self._reads_like(StreamingDataset)

    def _reads_like(self, stock: type[StreamingDataset]) -> bool:
        """Returns whether Rust fetches the shards and samples are read as by a class."""
        methods = ('get_item', '__getitem__', '__iter__')
        is_same = all(getattr(type(self), name) is getattr(stock, name) for name in methods)
        return is_same and not self._fetches_in_python

    def __iter__(self) -> Iterator[SampleT]:
        """Iterates over the samples of this rank and worker in the next epoch."""
        # A worker must have started its epoch before its state can be requested.
        at_once = _state.is_counted() and _torch.worker_info() is not None
        samples = self._samples() if at_once else later(self._samples)
        end_if_orphaned()
        return samples

    def _samples(self) -> Iterator[Any]:
        is_plain = type(self).__iter__ is StreamingDataset.__iter__
        split = find_split(self, is_plain) or self._starter_split
        if split is None:
            return samples_of(self)
        split.warn(self.batch_size)
        if split.is_dispatched and split.number:
            # The library reads only on the first rank.
            return iter(())
        self._split = split
        samples = samples_of(self)
        return in_slots(samples, split) if split.is_placed else samples

    # Steps and whole batches.

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
        self,
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
        from shardmill.base._which import which

        return which(self, step, rank, sample, state, epoch, epochs, keys)

    def batches(
        self,
        batch_size: Optional[int] = None,
        *,
        drop_last: bool = False,
        columns: Optional[Sequence[str]] = None,
    ) -> BatchIterator:
        """Returns the batches of this rank in the next epoch, as dicts of NumPy arrays. Does not need torch.

        The samples and their order are those of a `StreamingDataLoader` with the same batch size. Threads of Rust
        prepare batches ahead. If a subclass overrides ``get_item``, ``__getitem__`` or ``__iter__``, the batches are
        stacked from its samples, which must be dicts.

        Numbers become an array ``[batch]``, arrays of one shape become ``[batch, …]``, and other values an array of
        objects. A batch has the columns that one of its samples has, with ``None`` for samples without them.
        `BatchIterator.state_dict` to `load_state_dict` before the next call.

        Args:
            batch_size: Samples per batch. The order of samples depends on it: it must be the ``batch_size`` of the
                dataset, which is set if the dataset has none.
            drop_last: Whether to leave out an incomplete last batch.
            columns: The names of the columns to decode, which every batch then has; by default all columns.

        Raises:
            UsageError: There is no batch size, or another one than that of the dataset; a column does not exist.
        """
        from shardmill.base._training_batches import batches_of

        return batches_of(self, batch_size, drop_last, columns)

    # Weights that change over a run.

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
        from shardmill.mixtures import set_weights

        set_weights(self, weights, from_step, from_sample)

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
        from shardmill.mixtures import windows_of

        return windows_of(self, applied, check.whole('epoch', epoch))

    def _mixture_json(self) -> Optional[str]:
        """Returns the mixture that iterations follow from now on, as JSON."""
        record = self._shared.mixture
        return self._given_mixture if record is None else str(record['applied'])

    # Description.

    def stats(self) -> DatasetStats:
        """Returns statistics of reading in this process.

        Batches, samples, bytes, waits and seconds waited are those of this epoch. Fetched shards and bytes, cache
        hits, requests and retries are counted since the dataset was opened.
        """
        from shardmill.stats import DatasetStats

        known: dict[str, Any] = dict(self._here().cache_stats())
        if self._batches is not None:
            known.update(self._batches.stats())
        return DatasetStats(**known)

    # Pickling.

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in self.__dict__.items() if name not in _OWN}
        # The call stack of this process is not visible in a spawned one.
        split = find_split(self, False) if context.get_spawning_popen() is not None else None
        state['_starter_split'] = split if split is not None and split.is_dispatched else None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()


_torch.adopt(StreamingDataset, 'IterableDataset')
