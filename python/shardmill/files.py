"""Datasets of plain files in a folder tree or prefix: each file is a sample."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from typing import TYPE_CHECKING, Any, Callable, Optional

from shardmill import _core
from shardmill.base import _arguments as check
from shardmill.base._opening import gives_files, kept_batches
from shardmill.base._signatures import defaults_of, lists_arguments
from shardmill.base._typing import DatasetOptions, Path
from shardmill.base.array import Array
from shardmill.base.constant import DEFAULT_TIMEOUT
from shardmill.base.dataset import StreamingDataset
from shardmill.base.stream import Stream, is_folder
from shardmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from typing_extensions import Unpack

    from shardmill.base.world import World

__all__ = ['FileDataset', 'FileStream']

_YIELDS = ('data', 'file', 'both')


class FileStream(Stream):
    """A stream of plain files, each a sample. It can be mixed with streams of shards.

    A sample has the column ``path``, the path of the file in the tree. Depending on ``yields`` it also has ``data``,
    the bytes of the file, ``file``, its local path, or both. Shard datasets with columns named ``data`` and ``path``
    can be mixed with it.

    The files are listed once, sorted by the bytes of their paths. For files that are downloaded, the list is stored in
    ``local``, for all processes of the machine and for the next run. Arguments that are not listed are as in `Stream`.

    Args:
        remote: The tree: a folder, or the URL of a prefix.
        local: The folder that files are downloaded to. Without it a folder is read in place, and a URL uses a folder
            in the temporary directory.
        split: A subfolder of both, such as ``train``.
        include: Patterns such as ``*.jpg`` or ``train/**/*.jpg``, of which a file must match at least one. A pattern
            without ``/`` matches the file name, any other the path. ``**`` matches any number of folders.
        exclude: Patterns of which a file must not match any.
        yields: ``data``, ``file`` or ``both``.
        relist: Whether to list the files again. If the list differs, files downloaded with the old list are removed.

    Raises:
        ValueError: An argument is invalid.
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
        storage_options: Optional[Mapping[str, str]] = None,
    ) -> None:
        self.include = check.texts('include', include, 'a list of patterns')
        self.exclude = check.texts('exclude', exclude, 'a list of patterns')
        self.yields = check.choice('yields', yields, _YIELDS)
        self.relist = check.flag('relist', relist)
        remote = check.path_or_none('remote', remote)
        local = check.path_or_none('local', local)
        if remote is not None and local is None and is_folder(remote):
            remote, local = None, remote
        # Other processes receive these paths and may have another working directory.
        super().__init__(
            remote=remote,
            local=None if local is None else os.path.abspath(local),
            split=split,
            proportion=proportion,
            repeat=repeat,
            choose=choose,
            download_retry=download_retry,
            download_timeout=download_timeout,
            storage_options=storage_options,
        )

    def _get_temporary_directory(self) -> str:
        """Returns a folder for this remote and these patterns: a folder holds the files of a single list."""
        what = json.dumps([self.remote, self.include, self.exclude])
        name = hashlib.blake2s(what.encode(), digest_size=16).hexdigest()
        return os.path.join(tempfile.gettempdir(), f'files-{name}', self.split)

    def _arguments(self, is_fetched_here: bool, **listing: Any) -> dict[str, Any]:
        files = {
            'form': self.yields,
            'include': self.include,
            'exclude': self.exclude,
            'relist': self.relist,
            **listing,
        }
        arguments = super()._arguments(False)
        return {**arguments, 'validate_hash': None, 'files': _core.FileOptions(**files)}


class FileDataset(StreamingDataset[Any]):
    """A dataset of the files in a tree, in an order independent of the number of nodes, ranks and workers.

    Samples are dicts: see `FileStream`. Files that are read in place are never copied or removed. A downloaded file
    stays pinned until the next batch is requested. In a worker process of a ``DataLoader`` it stays pinned for three
    batches, as torch's default ``prefetch_factor`` of 2 requires. Without ``cache_limit`` no file is removed.

    Everything else is as in `StreamingDataset`: epochs, shuffling, states, ranks and workers. A state contains a
    digest of the file list; loading a state of other files is an error. ``include``, ``exclude``, ``yields`` and
    ``relist`` are as in `FileStream`.

    Other arguments are those of `StreamingDataset`, such as ``cache_limit``, ``batch_size``, ``shuffle``, ``rank`` and
    ``world_size``.

    Args:
        remote: The tree: a folder, or the URL of a prefix.
        local: The folder that files are downloaded to: see `FileStream`.
        split: A subfolder of both.
        transform: Converts each sample before it is returned.
        hold_batches: For how many batches files stay pinned; for workers ``prefetch_factor`` plus one.
        download_retry: How many times a failed download is retried.
        download_timeout: Seconds after which a download attempt fails; for a store, seconds without new data.

    Raises:
        ValueError: Arguments contradict each other or are out of range.
        FileNotFoundError: The tree does not exist or has no files.
    """

    @lists_arguments(DatasetOptions, defaults_of(StreamingDataset.__init__))
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
        self._check_room(self._own_world.detect())

    def _check_room(self, world: World) -> None:
        """Rejects a limit below the size of the files that all processes of the node can pin at once."""
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
                f'use at least {least} bytes',
            )

    def _begin(self, threads: Optional[int] = None) -> Any:
        self._check_room(self._own_world.detect())
        return super()._begin(threads)

    def _is_plain(self) -> bool:
        return self.transform is None and self._reads_like(FileDataset)

    def get_item(self, sample_id: int, retry: int = 7) -> Any:
        """Returns one sample. A path in it is valid until the next sample is requested.

        Args:
            sample_id: The number of the file, from 0.
            retry: As in `StreamingDataset`.

        Returns:
            The sample, or the result of ``transform``.

        Raises:
            IndexError: The file does not exist.
        """
        sample = super().get_item(sample_id, retry)
        return sample if self.transform is None else self.transform(sample)

    def __getitem__(self, at: Any) -> Any:
        """Returns one sample, by number or by path in the tree, or several samples.

        Args:
            at: A number, a path, a slice, or an array of numbers.
        """
        if isinstance(at, str):
            return self.get_item(self.number_of(at))
        return Array.__getitem__(self, at)

    def number_of(self, path: str, /) -> int:
        """Returns the number of a file, by its path in the tree.

        Raises:
            FileNotFoundError: The list has no such file.
        """
        return self._here().find_file(check.path('path', path))

    def path_of(self, sample_id: int) -> str:
        """Returns the path of a file in the tree, by its number from 0.

        Raises:
            IndexError: The list has no such file.
        """
        number = check.sample_number(sample_id, self.num_samples)
        path = self._here().file_path(number)
        if path is None:
            raise IndexError(f'there is no file {number}: the tree has {self.num_samples}')
        return path

    def paths(self) -> list[str]:
        """Returns the paths of all files in the tree, in order."""
        return [self.path_of(number) for number in range(self.num_samples)]

    @property
    def digest(self) -> str:
        """The digest of the paths and lengths of all files."""
        return self._files_digest or ''
