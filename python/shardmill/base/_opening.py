"""Opens the streams of a dataset, again in each process."""

from __future__ import annotations

import os
import zlib
from math import ceil
from typing import TYPE_CHECKING, Any, Optional, Union

from shardmill import _core
from shardmill.base import _arguments as check
from shardmill.base._folders import check_same, folders_of
from shardmill.base._own_world import OwnWorld
from shardmill.base._raw import as_listed, gives_files, holding_options
from shardmill.base._state import refuse_low_limit, with_streaming_prefixes
from shardmill.base.stream import find_index
from shardmill.base.world import World
from shardmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardmill.base._fields import FieldDecoder
    from shardmill.base._packed import TokenReader
    from shardmill.views import View


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


class Opening(OwnWorld):
    """A dataset whose streams are opened by a reader of each process."""

    peers: Optional[list[str]]
    max_shard_size_across_all_streams: int
    _reader: _core.Reader
    _batches: Union[_core.Batches, TokenReader, None]
    #: The process that opened the reader.
    _process: int
    _lookahead: Optional[int]
    _episodes: Optional[list[Optional[View]]]
    _decode_field: Optional[FieldDecoder]
    #: A digest of the list of raw files.
    _files_digest: Optional[str]
    #: Digests of the indexes that the run began with, and of those that this process read.
    _index_digests: Optional[list[str]]
    _read_digests: list[str]

    def _open_reader(self) -> _core.Reader:
        """Opens the streams for the first time, raising the errors that callers of `streaming` expect."""
        for stream in self.streams:
            find_index(stream)
        try:
            with with_streaming_prefixes(), folders_of(self.streams):
                return self._make_reader()
        except UsageError as error:
            if error.id == 'config-cache-limit' and self.cache_limit:
                # The cache has a lower minimum than `streaming`: report one minimum that satisfies both.
                limit, self.cache_limit = self.cache_limit, None
                self._reader = self._make_reader()
                self.cache_limit = limit
                self._check_cache_limit()
            raise

    def _make_reader(self) -> _core.Reader:
        options: dict[str, Any] = {
            'download_retry': max(stream.download_retry for stream in self.streams),
            'download_timeout': max(stream.download_timeout for stream in self.streams),
            'encodings': self._known_encodings(),
        }
        if not self._fetches_in_python:
            if self.cache_limit:
                options['cache_limit'] = self.cache_limit
            if self._lookahead is not None:
                options['lookahead'] = ceil(self._lookahead / (self.batch_size or 1))
            options['peers'] = self._peers()
        if self.peers is not None:
            if self._fetches_in_python:
                text = (
                    'peers exchange shards that Rust fetches, and a stream has methods of its own'
                )
                raise UsageError(text, 'config-streams', 'peers')
            options['cluster'] = cluster_of(self.peers, self._detect_world())
        before: Optional[_core.Reader] = getattr(self, '_reader', None)
        streams = [
            _core.StreamOptions(
                **stream._arguments(
                    self._fetches_in_python, **as_listed(number, self._files_digest, before)
                )
            )
            for number, stream in enumerate(self.streams)
        ]
        if gives_files(self.streams):
            options.update(holding_options())
        if self.window is not None:
            if self._fetches_in_python:
                text = 'windows need shards that Rust fetches, and a stream has methods of its own'
                raise UsageError(text, 'config-streams', 'window')
            if self._episodes is None:
                # Workers receive what this process found.
                reader = _core.ReaderOptions(**options)
                self._episodes = self.window._episodes_of(streams, reader)
            options['window'] = self.window._to_core(self._episodes)
        made = _core.ReaderOptions(**options)
        return _core.Reader(streams, made, decode_field=self._decode_field)

    def _peers(self) -> tuple[int, int, int]:
        """Returns the number of this process on its node, the number of processes there, and an id of the run."""
        world = self._detect_world()
        names = ('TORCHELASTIC_RUN_ID', 'SLURM_JOB_ID', 'MASTER_ADDR', 'MASTER_PORT')
        run = ':'.join(os.environ.get(name, '') for name in names)
        return world.worker_of_node, world.workers_per_node, zlib.crc32(run.encode())

    def _here(self) -> _core.Reader:
        """Returns the reader of this process; a forked child opens its own."""
        if self._process != os.getpid():
            self._reader = self._make_reader()
            self._read_digests = self._reader.index_digests()
            self._batches = None
            self.__dict__.pop('_fetcher', None)
            self._process = os.getpid()
        return self._reader

    def _same_here(self) -> _core.Reader:
        """As `_here`, but raises an error if the index is another one than that of the process that began the run."""
        reader = self._here()
        check_same(self.streams, self._index_digests or [], self._read_digests)
        return reader

    def _refuse_unsafe_types(self) -> None:
        from shardmill.base.format.mds.encodings import _unsafe_encodings

        unsafe = [name for each in _unsafe_encodings for name in self._reader.columns_of(each)]
        if unsafe:
            raise ValueError(
                f'Column {unsafe[0]!r} contains an unsafe type: a pickle, which can run any code when it '
                f'is loaded. Where you trust the dataset, give `allow_unsafe_types=True`.'
            )

    def _check_cache_limit(self) -> None:
        """Rejects a limit that `streaming` or the cache would reject, naming the minimum that satisfies both."""
        if not self.cache_limit:
            return
        indexes = sum(stream.get_index_size() for stream in self.streams)
        largest = self._reader.largest_shard()
        refuse_low_limit(self.cache_limit, indexes, largest, self._reader.least_cache_limit())
        self.max_shard_size_across_all_streams = largest
