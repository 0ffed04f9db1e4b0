"""Trees of files as datasets: each file is a sample."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from typing import TYPE_CHECKING, Any, Callable, Optional

from shardmill.base import _arguments as check
from shardmill.base._raw import gives_files, kept_batches
from shardmill.base.array import Array
from shardmill.base.constant import DEFAULT_TIMEOUT
from shardmill.base.dataset import StreamingDataset
from shardmill.base.stream import Stream, is_folder
from shardmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Unpack

    from shardmill import _core
    from shardmill.base._typing import DatasetOptions, Path
    from shardmill.base.world import World

__all__ = ['FileDataset', 'FileStream']

_YIELDS = ('data', 'file', 'both')


class FileStream(Stream):
    """A tree of files, of which each is a sample: alone, or in a mix with streams of shards.

    A sample has the column ``path``, the path of the file in the tree, and by ``yields`` the column ``data``, its
    bytes, or ``file``, the path where it lies on this machine. The columns ``data`` and ``path`` are those that a dataset
    of shards with the same names is mixed with.

    The files are listed once, in the order of the bytes of their paths. Where they are fetched to ``local`` the list is
    kept beside it, for all processes of the machine and for the next run.

    Args:
        remote: The tree: a folder, or the URL of a prefix.
        local: The folder that files are fetched to. A folder without it is read where it lies; for a URL it is by
            default one of the temporary directory.
        split: A folder beneath both, such as ``train``.
        proportion: Its share of an epoch.
        repeat: How many times an epoch takes each of its samples.
        choose: How many samples an epoch takes.
        include: Patterns of which a file has to match one, such as ``*.jpg`` or ``train/**/*.jpg``. One without a ``/``
            is compared with the name of the file, another one with its path; ``**`` stands for any number of folders.
        exclude: Patterns of which it must not match any.
        yields: ``data``, ``file`` or ``both``.
        relist: Whether the files are listed anew. What was fetched by a list that differs is removed.
        download_retry: How many times a download is tried again.
        download_timeout: Seconds that an attempt may take, or a wait for its bytes where they come from a store.

    Raises:
        ValueError: An argument is none of those that it can be.
    """

    _is_raw = True

    def __init__(
        self,
        *,
        remote: Optional[Path] = None,
        local: Optional[Path] = None,
        split: Optional[str] = None,
        proportion: Optional[float] = None,
        repeat: Optional[float] = None,
        choose: Optional[int] = None,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        yields: str = 'data',
        relist: bool = False,
        download_retry: Optional[int] = None,
        download_timeout: Optional[float] = None,
    ) -> None:
        self.include = check.texts('include', include, 'a list of patterns')
        self.exclude = check.texts('exclude', exclude, 'a list of patterns')
        self.yields = check.choice('yields', yields, _YIELDS)
        self.relist = check.flag('relist', relist)
        remote = check.path_or_none('remote', remote)
        local = check.path_or_none('local', local)
        if remote is not None and local is None and is_folder(remote):
            remote, local = None, remote
        # Paths are given to others, who may be in another folder.
        super().__init__(
            remote=remote,
            local=None if local is None else os.path.abspath(local),
            split=split,
            proportion=proportion,
            repeat=repeat,
            choose=choose,
            download_retry=download_retry,
            download_timeout=download_timeout,
        )

    def _get_temporary_directory(self) -> str:
        """One for each remote and what is taken of it: a folder keeps the files of one list."""
        what = json.dumps([self.remote, self.include, self.exclude])
        name = hashlib.blake2s(what.encode(), digest_size=16).hexdigest()
        return os.path.join(tempfile.gettempdir(), f'files-{name}', self.split)

    def _is_whole_here(self) -> bool:
        return False

    def _describe(self, is_fetched_here: bool) -> dict[str, Any]:
        files = {
            'form': self.yields,
            'include': self.include,
            'exclude': self.exclude,
            'relist': self.relist,
        }
        return {**super()._describe(False), 'validate_hash': None, 'files': files}

    def get_index_size(self) -> int:
        """There is no index."""
        return 0


class FileDataset(StreamingDataset[Any]):
    """The files of a tree, each a sample, in an order that is the same on any number of nodes, ranks and workers.

    Samples are dicts: see `FileStream`. A file of a folder that is read where it lies is never copied and never
    removed. One that was fetched stays where it is until the next batch is asked for; in a worker process of a
    ``DataLoader`` until the third batch behind it is, which is what torch's ``prefetch_factor`` of 2 needs. Without
    ``cache_limit`` nothing is removed at all.

    Everything else is as in `StreamingDataset`: epochs, shuffling, states, ranks and workers. A state has a digest of
    the list of files in it, and one that was made with other files is refused.

    Args:
        remote: The tree: a folder, or the URL of a prefix.
        local: The folder that files are fetched to: see `FileStream`.
        split: A folder beneath both.
        include: Patterns of the files that are read.
        exclude: Patterns of those that are not.
        yields: ``data`` for their bytes, ``file`` for the path where they lie on this machine, ``both``.
        transform: Makes of a sample what is given out.
        relist: Whether the files are listed anew.
        hold_batches: Of how many batches files stay where they are; for workers ``prefetch_factor`` and one.
        download_retry: How many times a download is tried again.
        download_timeout: Seconds that an attempt may take, or a wait for its bytes where they come from a store.
        **options: Of `StreamingDataset`: ``cache_limit``, ``predownload``, ``batch_size``, ``shuffle``,
            ``shuffle_algo``, ``shuffle_seed``, ``num_canonical_nodes``, ``rank``, ``world_size`` and others.

    Raises:
        ValueError: Arguments that contradict each other or are out of range.
        FileNotFoundError: The tree is not there, or has no files.
    """

    def __init__(
        self,
        *,
        remote: Optional[Path] = None,
        local: Optional[Path] = None,
        split: Optional[str] = None,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        yields: str = 'data',
        transform: Optional[Callable[[dict[str, Any]], Any]] = None,
        relist: bool = False,
        hold_batches: Optional[int] = None,
        download_retry: int = 2,
        download_timeout: float = DEFAULT_TIMEOUT,
        **options: Unpack[DatasetOptions],
    ) -> None:
        if not remote and not local:
            raise UsageError('give `remote`, `local` or both', 'config-streams')
        stream = FileStream(
            remote=remote,
            local=local,
            split=split,
            include=include,
            exclude=exclude,
            yields=yields,
            relist=relist,
            download_retry=download_retry,
            download_timeout=download_timeout,
        )
        self.transform = check.function('transform', transform)
        self.hold_batches = check.whole_or_none('hold_batches', hold_batches, 1)
        super().__init__(streams=[stream], **options)

    def _check_cache_limit(self) -> None:
        self._check_room(self._detect_world())

    def _check_room(self, world: World) -> None:
        """Refuses a limit that has no room for the files that all processes of the node hold at a time."""
        if not self.cache_limit or not gives_files(self.streams):
            return
        held = world.workers_per_node * kept_batches(self.hold_batches) * (self.batch_size or 1)
        least = self._here().least_limit(held)
        if self.cache_limit < least:
            raise UsageError(
                f'cache_limit: {self.cache_limit} bytes, less than the {least} bytes of the list and the {held} '
                f'largest files, which {world.workers_per_node} processes can hold at a time',
                'config-cache-limit',
                'cache_limit',
                f'give at least {least} bytes',
            )

    def _begin(self, threads: Optional[int] = None) -> _core.Batches:
        self._check_room(self._detect_world())
        return super()._begin(threads)

    def _is_plain(self) -> bool:
        own = type(self)
        return (
            self.transform is None
            and own.get_item is FileDataset.get_item
            and own.__getitem__ is FileDataset.__getitem__
            and own.__iter__ is StreamingDataset.__iter__
        )

    def get_item(self, sample_id: int, retry: int = 7) -> Any:
        """One sample. A path in it is good until the next sample is asked for.

        Args:
            sample_id: The number of the file, from 0.
            retry: As in `StreamingDataset`.

        Returns:
            The sample, or what ``transform`` makes of it.

        Raises:
            IndexError: There is no such file.
        """
        sample = super().get_item(sample_id, retry)
        return sample if self.transform is None else self.transform(sample)

    def __getitem__(self, at: Any) -> Any:
        """One sample by its number or by its path in the tree, or several.

        Args:
            at: A number, a path, a slice, or an array of numbers.
        """
        if isinstance(at, str):
            return self.get_item(self.number_of(at))
        return Array.__getitem__(self, at)

    def number_of(self, path: str, /) -> int:
        """The number of a file.

        Args:
            path: Its path in the tree.

        Raises:
            FileNotFoundError: There is no such file in the list.
        """
        return self._here().find_file(check.path('path', path))

    def path_of(self, number: int) -> str:
        """The path of a file in the tree.

        Args:
            number: Its number, from 0.

        Raises:
            IndexError: There is no such file.
        """
        number = check.sample_number(number, self.num_samples)
        path = self._here().file_path(number)
        if path is None:
            raise IndexError(f'there is no file {number}: the tree has {self.num_samples}')
        return path

    def paths(self) -> list[str]:
        """The paths of all files in the tree, in order."""
        return [self.path_of(number) for number in range(self.num_samples)]

    @property
    def digest(self) -> str:
        """The digest of the list of files: of their paths and lengths."""
        return self._files_digest or ''
