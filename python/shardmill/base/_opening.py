"""Opens the streams of a dataset, again in each process."""

from __future__ import annotations

import os
import resource
import zlib
from contextlib import contextmanager
from math import ceil
from typing import TYPE_CHECKING, Any, Optional

from shardmill import _core, _torch
from shardmill.base import _arguments as check
from shardmill.base._shared_state import training_process
from shardmill.base._state import with_streaming_prefixes
from shardmill.base.stream import Stream, find_index
from shardmill.base.world import World
from shardmill.errors import ConflictError, UnsupportedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shardmill.base.format.base.reader import Reader
    from shardmill.views import View


#: For how many batches a worker pins files: torch prefetches two batches after the one that is used.
_OF_WORKER = 3


def gives_files(streams: Sequence[Stream]) -> bool:
    """Returns whether samples contain file paths, so that the files must be pinned for a while."""
    return any(getattr(stream, 'yields', 'data') != 'data' for stream in streams)


def kept_batches(given: Optional[int]) -> int:
    """Returns for how many batches files stay pinned."""
    if given is not None:
        return given
    return 1 if _torch.worker_info() is None else _OF_WORKER


def holding(given: Optional[int]) -> tuple[int, Optional[int]]:
    """Returns for how many batches files stay pinned, and the process that may use the last ones for a while."""
    # The training process uses the last batches of a worker after the worker has exited.
    return kept_batches(given), None if _torch.worker_info() is None else training_process()


def holding_options() -> dict[str, int]:
    """Returns the options of a reader that pins files. Each may be an open file on systems without range locks."""
    return {
        'pins': resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2,
        'owner': training_process(),
    }


def as_listed(number: int, digest: Optional[str], before: Optional[_core.Reader]) -> dict[str, Any]:
    """Returns how a stream lists its raw files, so that all processes of a run read the same ones.

    Files may have been added or removed since the first listing. A forked child takes the list from its parent's
    reader, which it must not use otherwise. Other processes list the files again, and the result must be the same.
    """
    if digest is None:
        return {}
    known = None if before is None else before.known_files(number)
    return {'relist': False, 'expect': digest, 'known': known}


def given_peers(peers: Optional[Sequence[str]]) -> Optional[list[str]]:
    """Returns the addresses of all nodes, from the argument or else the environment."""
    if peers is None:
        listed = os.environ.get('SHARDMILL_PEERS', '')
        return [peer.strip() for peer in listed.split(',')] if listed else None
    return list(check.instances('peers', peers, str))


#: The files of encrypted connections: the certificate of this node, its key, and the authorities of the other nodes.
_TLS_FILES = ('SHARDMILL_PEERS_CERT', 'SHARDMILL_PEERS_KEY', 'SHARDMILL_PEERS_CA')

#: The addresses of all nodes, the number of this node, the number of nodes, their secret, and the files of TLS.
Cluster = tuple[list[str], int, int, str, Optional[list[str]]]


def cluster_of(peers: list[str], world: World) -> Cluster:
    """Returns what the nodes of the run know of each other."""
    # Ranks of a mesh count those that receive different samples, while the launcher counts machines.
    launched = World.detect()
    if launched.is_multinode:
        world = launched
    files = [os.environ.get(name, '') for name in _TLS_FILES]
    token = os.environ.get('SHARDMILL_PEERS_TOKEN', '')
    return peers, world.node, world.num_nodes, token, files if any(files) else None


def open_reader(dataset: Any) -> _core.Reader:
    """Opens the streams for the first time, raising the errors that callers of `streaming` expect."""
    for stream in dataset.streams:
        find_index(stream)
    try:
        with with_streaming_prefixes(), folders_of(dataset.streams):
            return make_reader(dataset)
    except UsageError as error:
        if error.id == 'config-cache-limit' and dataset.cache_limit:
            # The cache has a lower minimum than `streaming`: report one minimum that satisfies both.
            limit, dataset.cache_limit = dataset.cache_limit, None
            dataset._reader = make_reader(dataset)
            dataset.cache_limit = limit
            dataset._check_cache_limit()
        raise


def make_reader(dataset: Any) -> _core.Reader:
    """Opens the streams in this process."""
    options: dict[str, Any] = {
        'download_retry': max(stream.download_retry for stream in dataset.streams),
        'download_timeout': max(stream.download_timeout for stream in dataset.streams),
        'encodings': dataset._known_encodings(),
    }
    if not dataset._fetches_in_python:
        if dataset.cache_limit:
            options['cache_limit'] = dataset.cache_limit
        if dataset._lookahead is not None:
            options['lookahead'] = ceil(dataset._lookahead / (dataset.batch_size or 1))
        options['peers'] = _peers(dataset)
    if dataset.peers is not None:
        if dataset._fetches_in_python:
            text = 'peers exchange shards that Rust fetches, and a stream has methods of its own'
            raise UsageError(text, 'config-streams', 'peers')
        options['cluster'] = cluster_of(dataset.peers, dataset._own_world.detect())
    before: Optional[_core.Reader] = getattr(dataset, '_reader', None)
    streams = [
        _core.StreamOptions(
            **stream._arguments(
                dataset._fetches_in_python, **as_listed(number, dataset._files_digest, before)
            )
        )
        for number, stream in enumerate(dataset.streams)
    ]
    if gives_files(dataset.streams):
        options.update(holding_options())
    if dataset.window is not None:
        if dataset._fetches_in_python:
            text = 'windows need shards that Rust fetches, and a stream has methods of its own'
            raise UsageError(text, 'config-streams', 'window')
        if dataset._episodes is None:
            # Workers receive what this process found.
            reader = _core.ReaderOptions(**options)
            dataset._episodes = dataset.window._episodes_of(streams, reader)
        options['window'] = dataset.window._to_core(dataset._episodes)
    made = _core.ReaderOptions(**options)
    return _core.Reader(streams, made, decode_field=dataset._decode_field)


def _peers(dataset: Any) -> tuple[int, int, int]:
    """Returns the number of this process on its node, the number of processes there, and an id of the run."""
    world = dataset._own_world.detect()
    names = ('TORCHELASTIC_RUN_ID', 'SLURM_JOB_ID', 'MASTER_ADDR', 'MASTER_PORT')
    run = ':'.join(os.environ.get(name, '') for name in names)
    return world.worker_of_node, world.workers_per_node, zlib.crc32(run.encode())


def refuse_unsafe_types(reader: _core.Reader) -> None:
    """Rejects columns whose values can run code when they are loaded."""
    from shardmill.base.format.mds.encodings import _unsafe_encodings

    unsafe = [name for each in _unsafe_encodings for name in reader.columns_of(each)]
    if unsafe:
        raise ValueError(
            f'Column {unsafe[0]!r} contains an unsafe type: a pickle, which can run any code when it '
            f'is loaded. Where you trust the dataset, give `allow_unsafe_types=True`.'
        )


def default_live(streams: Sequence[Stream], with_deleted: bool, view: Optional[View]) -> None:
    """Sets which samples are read, for streams that do not specify it.

    Not passed as arguments of the streams, because subclasses may not accept them.

    Raises:
        ValueError: There is a view for several streams, or for one that has a view.
    """
    for stream in streams:
        if stream.with_deleted is None:
            stream.with_deleted = with_deleted
    if view is None:
        return
    if len(streams) > 1 or streams[0].view is not None:
        raise UsageError(
            'a view is of one dataset: give each of the streams its own', 'config-streams', 'view'
        )
    streams[0].view = view


def check_shards(
    streams: Sequence[Stream], shards: Sequence[Sequence[Reader]], sizes: Sequence[bytes]
) -> None:
    """Checks that `get_shards` of each stream returned the shards of its index, whose samples the reader counts.

    Raises:
        UnsupportedError: A subclass returned others.
    """
    import numpy as np

    for stream, own, listed in zip(streams, shards, sizes):
        found, expected = [len(shard) for shard in own], np.frombuffer(listed, np.int64).tolist()
        if found != expected:
            name = f'{type(stream).__module__}.{type(stream).__qualname__}'
            raise UnsupportedError(
                f'`get_shards` of {name} returned {len(found)} shards with {sum(found)} samples, and the index of the '
                f'stream has {len(expected)} with {sum(expected)}',
                'config-shards',
                stream.remote or stream.local,
                'choose samples with a view instead: `Stream(view=...)`',
            )


#: The remote that each folder was opened with. An index without hashes can match several datasets, so the folder
#: alone does not show whose shards it holds.
_REMOTES: dict[str, str] = {}


@contextmanager
def folders_of(streams: Sequence[Stream]) -> Iterator[None]:
    """Registers the local folders of the streams that are opened in this context.

    A folder whose index was removed can be used again.
    """
    owned = {}
    for stream in streams:
        if stream.remote is None or stream._is_raw:
            # Read in place; or a tree of files, whose list contains its source.
            continue
        folder = os.path.realpath(os.path.join(stream.local, stream.split))
        remote = _without_spelling(os.path.join(stream.remote, stream.split))
        if remote == folder:
            continue
        known = _REMOTES.get(folder, remote)
        if known != remote and os.path.exists(os.path.join(folder, 'index.json')):
            # COMPAT: programs match the beginning of this message.
            raise UsageError(
                f'Reused local directory: {folder} keeps the shards of {known}, not those of {remote}',
                'config-stream-folder',
                folder,
                'Provide a different one, or remove it',
            )
        owned[folder] = remote
    yield
    _REMOTES.update(owned)


def check_same(streams: Sequence[Stream], known: Sequence[str], found: Sequence[str]) -> None:
    """Raises an error if another process of the run, which opened the streams first, read other indexes.

    The processes would divide different samples among them.
    """
    for stream, before, now in zip(streams, known, found):
        if before != now:
            raise ConflictError(
                'the index has changed since this run opened the dataset',
                'dataset-changed',
                stream.remote or stream.local,
                'restart the run, or read a dataset that does not change during a run',
            )


def _without_spelling(remote: str) -> str:
    """Normalizes the spelling of a remote."""
    remote = remote[len('file://') :] if remote.startswith('file://') else remote
    if '://' in remote or remote.startswith('dbfs:'):
        return remote.rstrip('/')
    return os.path.realpath(remote)
