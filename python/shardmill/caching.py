"""A local cache of the files of a tree, within a quota, for custom samplers."""

from __future__ import annotations

import os
import time
import weakref
from typing import TYPE_CHECKING, Any, Optional, Union

from shardmill import _core
from shardmill.base import _arguments as check
from shardmill.base._representation import location, representation
from shardmill.base.constant import DEFAULT_TIMEOUT
from shardmill.errors import ResourceError, UsageError
from shardmill.files import FileStream

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from shardmill.base._typing import Path
    from shardmill.stats import CacheClientStats

__all__ = ['CacheClient', 'CachedFile']

#: Seconds between checks of pending downloads.
_TICK = 0.01


class CachedFile:
    """A file that stays in the cache until it is released. It is a context manager.

    Attributes:
        name: Its path in the tree.
    """

    def __init__(self, name: str, held: _core.FileUse) -> None:
        self.name = name
        self._held = held

    @property
    def path(self) -> pathlib.Path:
        """The local path of the file."""
        return self._held.path

    @property
    def is_held(self) -> bool:
        """Whether the file is pinned."""
        return self._held.is_held

    def read(self) -> bytes:
        """Returns the bytes of the file."""
        return self.path.read_bytes()

    def release(self) -> None:
        """Allows the file to be evicted. A second call does nothing."""
        self._held.release()

    def __fspath__(self) -> str:
        return str(self.path)

    def __enter__(self) -> CachedFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class CacheClient:
    """A local cache of the files of a tree, which are downloaded on use or in advance.

    Files in ``local`` are found again after a restart or a kill. All processes of the machine that use the same folder
    share its files and its quota. The quota limits the size of ``local``, including downloads in flight. If pinned
    files fill it, a request for another file waits up to ``timeout`` seconds.

    Threads can share a client. A forked or spawned process opens its own. Files are named by their paths in the tree.
    A name that the list of the files lacks is a FileNotFoundError.

    Args:
        remote: The tree: a folder, or the URL of a prefix.
        local: The folder that files are downloaded to. Without it a folder ``remote`` is read in place.
        quota: Maximum size of ``local`` in bytes. Accepts text such as ``'10gb'``. ``None`` for no limit.
        split: A subfolder of both.
        include: Patterns of the files to list: see `FileStream`.
        exclude: Patterns of files to leave out.
        relist: Whether to list the files again.
        timeout: Seconds to wait for free space, and for another process that downloads the same file.
        download_retry: How many times a failed download is retried.
        download_timeout: Seconds after which a download attempt fails; for a store, seconds without new data.
        storage_options: Store settings that are not in the environment, such as ``{'AWS_PROFILE': 'train'}``.

    Raises:
        ValueError: An argument is invalid.
        FileNotFoundError: The tree does not exist or has no files.
    """

    def __init__(
        self,
        remote: Path,
        local: Optional[Path] = None,
        *,
        quota: Optional[Union[float, str]] = None,
        split: Optional[str] = None,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        relist: bool = False,
        timeout: float = 120.0,
        download_retry: int = 2,
        download_timeout: float = DEFAULT_TIMEOUT,
        storage_options: Optional[Mapping[str, str]] = None,
    ) -> None:
        self._stream = FileStream(
            remote=check.path('remote', remote),
            local=local,
            split=split,
            include=include,
            exclude=exclude,
            yields='file',
            relist=relist,
            download_retry=download_retry,
            download_timeout=download_timeout,
            storage_options=storage_options,
        )
        self._quota = check.byte_size('quota', quota) or None
        self._timeout = check.number('timeout', timeout)
        self._used: dict[str, list[weakref.ref[CachedFile]]] = {}
        self._reader: Optional[_core.Reader] = self._open()
        self._check_quota(self._reader)
        self._process = os.getpid()
        # Forked and spawned processes reuse the list.
        self._stream.relist = False

    def _check_quota(self, reader: _core.Reader) -> None:
        """Rejects a quota too small for the file list."""
        least = reader.least_limit(0)
        if self._quota is not None and self._stream.remote is not None and self._quota <= least:
            raise UsageError(
                f'`quota` is {self._quota} bytes, and the list of the files alone takes {least}',
                'config-cache-limit',
                'quota',
                f'use at least {reader.least_limit(1)} bytes, enough for the largest file',
            )

    def _open(self) -> _core.Reader:
        import resource

        options: dict[str, Any] = {
            'download_retry': self._stream.download_retry,
            'download_timeout': self._stream.download_timeout,
            'cache_timeout': self._timeout,
            'pins': resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2,
        }
        if self._quota is not None:
            options['cache_limit'] = self._quota
        self._stream.keep_zip = False
        stream = _core.StreamOptions(**self._stream._arguments(False))
        return _core.Reader([stream], _core.ReaderOptions(**options))

    def _here(self) -> _core.Reader:
        if self._reader is None or self._process != os.getpid():
            self._reader = self._open()
            self._used = {}
            self._process = os.getpid()
        return self._reader

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, '_reader': None, '_used': {}}

    def __repr__(self) -> str:
        return representation(self, {**location(self._stream), 'quota': self._quota})

    def __len__(self) -> int:
        """Returns the number of files in the tree."""
        return self._here().samples

    def __iter__(self) -> Iterator[str]:
        """Iterates over the names of all files, in order."""
        return iter(self.names())

    def __contains__(self, name: object) -> bool:
        """Returns whether the tree has a file of that name."""
        if not isinstance(name, str):
            return False
        try:
            self._here().find_file(name)
        except FileNotFoundError:
            return False
        return True

    def names(self) -> list[str]:
        """Returns the names of all files: their paths in the tree, sorted by bytes."""
        reader = self._here()
        found = (reader.file_path(number) for number in range(reader.samples))
        return [name for name in found if name is not None]

    def use(self, name: str) -> CachedFile:
        """Pins a file, downloading it if necessary. It stays in place until it is released.

        Raises:
            FileNotFoundError: The file no longer exists.
            ValueError: The file changed since it was listed, or it is larger than the quota.
            OSError: No space became free in time.
        """
        reader = self._here()
        number = reader.find_file(name)
        try:
            file = CachedFile(name, reader.hold_file(number))
        except UsageError as error:
            if error.id != 'config-cache-limit':
                raise
            raise UsageError(
                f'{name}: `quota` is {self._quota} bytes, which have no room for this file',
                error.id,
                'quota',
                error.hint,
            ) from error
        alive = [ref for ref in self._used.get(name, []) if ref() is not None]
        self._used[name] = [*alive, weakref.ref(file)]
        return file

    def release(self, name: str) -> bool:
        """Releases the earliest use of that file that this process still holds.

        Returns:
            Whether the file was in use.
        """
        files = self._used.get(name, [])
        while files:
            file = files.pop(0)()
            if file is not None and file.is_held:
                file.release()
                return True
        self._used.pop(name, None)
        return False

    def read(self, name: str) -> bytes:
        """Returns the bytes of a file. If the cache has no space for the file, reads it without caching.

        Raises:
            FileNotFoundError: The file no longer exists.
            ValueError: The file changed since it was listed.
        """
        try:
            with self.use(name) as file:
                return file.read()
        except (UsageError, ResourceError) as error:
            if error.id not in ('config-cache-limit', 'cache-no-room', 'cache-pins'):
                raise
        reader = self._here()
        return reader.read_file(reader.find_file(name))

    def contains(self, name: str) -> bool:
        """Returns whether a file is in the cache. It may be evicted at any time unless it is in use."""
        reader = self._here()
        return reader.is_here(reader.find_file(name))

    def preload(self, names: Iterable[str], wait: bool = False) -> int:
        """Starts downloading files in the background, in this order, as far as space allows.

        The least recently used files are evicted for them. Files in use, and preloaded files that were not used yet,
        are not. Files that do not fit are downloaded when they are used.

        Args:
            names: Their paths in the tree.
            wait: Whether to wait until all files that fit are downloaded.

        Returns:
            The number of files that were not known to be cached.
        """
        reader = self._here()
        count = reader.preload([reader.find_file(name) for name in names])
        while wait and reader.preloading():
            time.sleep(_TICK)
        return count

    @property
    def preloading(self) -> int:
        """The number of preloaded files that are still pending."""
        return self._here().preloading()

    def check(self, name: str) -> None:
        """Checks at the source that a file is unchanged since it was listed.

        Raises:
            FileNotFoundError: The file no longer exists.
            ValueError: The file changed since it was listed.
        """
        reader = self._here()
        reader.check_file(reader.find_file(name))

    def stats(self) -> CacheClientStats:
        """Returns statistics of the cache and the store in this process.

        ``fetched_shards`` counts downloaded files, and ``found_shards`` counts files found in the cache.
        """
        from shardmill.stats import CacheClientStats

        known: dict[str, Any] = self._here().cache_stats()
        return CacheClientStats(**known, quota=self._quota or 0, preloading=self.preloading)
