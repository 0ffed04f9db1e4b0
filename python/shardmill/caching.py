"""Files of a tree on this machine, within a quota, for samplers of one's own."""

from __future__ import annotations

import os
import time
import weakref
from typing import TYPE_CHECKING, Any, Optional, Union

from shardmill import _core
from shardmill.base import _arguments as check
from shardmill.base._lines import decode_line
from shardmill.base._representation import location, representation
from shardmill.base.constant import DEFAULT_TIMEOUT
from shardmill.errors import ResourceError, UsageError
from shardmill.files import FileStream

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterable, Iterator, Sequence
    from types import TracebackType

    from shardmill.base._typing import Path

__all__ = ['CacheClient', 'CachedFile']

#: How long to sleep between looks at what is on its way.
_TICK = 0.01


class CachedFile:
    """A file that stays where it is until it is released: a context manager.

    Attributes:
        name: Its path in the tree.
    """

    def __init__(self, name: str, held: _core.FileUse) -> None:
        self.name = name
        self._held = held

    @property
    def path(self) -> pathlib.Path:
        """Where it lies on this machine."""
        return self._held.path

    @property
    def is_held(self) -> bool:
        """Whether it stays where it is."""
        return self._held.is_held

    def read(self) -> bytes:
        """Its bytes."""
        return self.path.read_bytes()

    def release(self) -> None:
        """From now on it may be removed. A second call does nothing."""
        self._held.release()

    def __fspath__(self) -> str:
        return str(self.path)

    def __enter__(self) -> CachedFile:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.release()


class CacheClient:
    """The files of a tree, brought to this machine when they are used, or before.

    What lies in ``local`` is known again after a restart or a kill. All processes of the machine that name the same
    folder share it, and its quota. The quota is the most that ``local`` takes, with what is on its way: where all of it
    is held, whoever wants another file waits, at most ``timeout`` seconds.

    A client can be used by several threads. A forked or spawned process opens its own.

    Args:
        remote: The tree: a folder, or the URL of a prefix.
        local: The folder that files are fetched to. A folder as ``remote`` without it is read where it lies.
        quota: Most bytes that ``local`` may take; ``'10gb'`` and the like are understood. ``None`` for no limit.
        split: A folder beneath both.
        include: Patterns of the files that there are: see `FileStream`.
        exclude: Patterns of those that there are not.
        relist: Whether the files are listed anew.
        timeout: Seconds to wait for room, and for another process that fetches the same file.
        download_retry: How many times a download is tried again.
        download_timeout: Seconds that an attempt may take, or a wait for its bytes where they come from a store.

    Raises:
        ValueError: An argument is none of those that it can be.
        FileNotFoundError: The tree is not there, or has no files.
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
        )
        self._quota = check.byte_size('quota', quota) or None
        self._timeout = check.number('timeout', timeout)
        self._used: dict[str, list[weakref.ref[CachedFile]]] = {}
        self._reader: Optional[_core.Reader] = self._open()
        self._check_quota(self._reader)
        self._process = os.getpid()
        # Those who are forked or spawned list nothing.
        self._stream.relist = False

    def _check_quota(self, reader: _core.Reader) -> None:
        """Refuses a quota that has no room for the list of the files, let alone for one of them."""
        least = reader.least_limit(0)
        if self._quota is not None and self._stream.remote is not None and self._quota <= least:
            raise UsageError(
                f'`quota` is {self._quota} bytes, and the list of the files alone takes {least}',
                'config-cache-limit',
                'quota',
                f'give at least {reader.least_limit(1)} bytes, which have room for the largest file',
            )

    def _open(self) -> _core.Reader:
        import resource

        from shardmill.base.format.mds.encodings import mds_decode

        options: dict[str, Any] = {
            'download_retry': self._stream.download_retry,
            'download_timeout': self._stream.download_timeout,
            'cache_timeout': self._timeout,
            'pins': resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2,
        }
        if self._quota is not None:
            options['cache_limit'] = self._quota
        if (self._stream.remote or '').startswith('s3:'):
            from shardmill.base.storage import _s3

            options['settings'] = _s3.settings()
        self._stream.keep_zip = False
        return _core.Reader([self._stream._describe(False)], options, mds_decode, decode_line, None)

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
        """Files of the tree."""
        return self._here().samples

    def __iter__(self) -> Iterator[str]:
        """The names of all files, in order."""
        return iter(self.names())

    def __contains__(self, name: object) -> bool:
        """Whether the tree has a file of that name."""
        if not isinstance(name, str):
            return False
        try:
            self._here().find_file(name)
        except FileNotFoundError:
            return False
        return True

    def names(self) -> list[str]:
        """The names of all files: their paths in the tree, in the order of their bytes."""
        reader = self._here()
        found = (reader.file_path(number) for number in range(reader.samples))
        return [name for name in found if name is not None]

    def use(self, name: str) -> CachedFile:
        """A file that stays where it is until it is released.

        Args:
            name: Its path in the tree.

        Raises:
            FileNotFoundError: The list has no such file, or it is gone.
            ValueError: It has changed since it was listed; or it takes more than the quota.
            OSError: There was no room for it in time.
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
        """Releases the file of that name that was used first and is still held by this process.

        Args:
            name: Its path in the tree.

        Returns:
            Whether there was one.
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
        """The bytes of a file. One that there is no room for is read past the cache.

        Args:
            name: Its path in the tree.

        Raises:
            FileNotFoundError: The list has no such file, or it is gone.
            ValueError: It has changed since it was listed.
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
        """Whether a file is on this machine now. It may leave as long as it is not used.

        Args:
            name: Its path in the tree.

        Raises:
            FileNotFoundError: The list has no such file.
        """
        reader = self._here()
        return reader.is_here(reader.find_file(name))

    def preload(self, names: Iterable[str], wait: bool = False) -> int:
        """Has files fetched in the background, in this order, as far as there is room.

        Files that were used longest ago leave for them; files that are used, and those that were preloaded and not used
        yet, do not. What finds no room is fetched when it is used.

        Args:
            names: Their paths in the tree.
            wait: Whether to wait until all have come that find room.

        Returns:
            How many were not known to be here.

        Raises:
            FileNotFoundError: The list has no such file.
        """
        reader = self._here()
        count = reader.preload([reader.find_file(name) for name in names])
        while wait and reader.preloading():
            time.sleep(_TICK)
        return count

    @property
    def preloading(self) -> int:
        """How many files that were to be preloaded are still to come."""
        return self._here().preloading()

    def check(self, name: str) -> None:
        """Asks the place that a file comes from whether it is still the one that was listed.

        Args:
            name: Its path in the tree.

        Raises:
            FileNotFoundError: The list has no such file, or it is gone.
            ValueError: It has changed since it was listed.
        """
        reader = self._here()
        reader.check_file(reader.find_file(name))

    def stats(self) -> dict[str, Any]:
        """What the cache and the store have done so far in this process, by name; times in seconds.

        ``fetched_shards`` and ``found_shards`` count files that were fetched, and files that were found to be here.
        """
        return {**self._here().cache_stats(), 'quota': self._quota, 'preloading': self.preloading}
