"""A stream: one dataset of a mix, with its remote and local location and its share of an epoch."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import sys
import tempfile
from functools import cache
from typing import TYPE_CHECKING, Any, Optional, Union

from shardmill import _core
from shardmill.base import _arguments as check
from shardmill.base._files import whole
from shardmill.base._live import given_view
from shardmill.base._representation import stream_representation
from shardmill.base._retrying import retry
from shardmill.base.compression import decompress
from shardmill.base.constant import TICK
from shardmill.base.distributed import barrier, get_local_rank
from shardmill.base.format.index import PROVENANCE, TOMBSTONES, get_index_basename
from shardmill.base.hashing import get_hash
from shardmill.base.util import wait_for_file_to_exist
from shardmill.base.world import World as World
from shardmill.errors import ArgumentTypeError, MissingIndexError, UnsupportedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from shardmill.base._typing import Path
    from shardmill.base.format.base.reader import FileInfo, Reader
    from shardmill.base.registry_utils import TypedRegistry
    from shardmill.base.storage.download import CloudDownloader
    from shardmill.views import View

    streams_registry: TypedRegistry[type[Stream]]

__all__ = ['Stream', 'streams_registry']

#: Methods that fetch files to the local folder. If a subclass overrides one, it fetches every shard. Otherwise the
#: Rust reader fetches them.
_FETCHING = (
    '_decompress_shard_part',
    '_download_file',
    '_prepare_shard_part',
    'get_shards',
    'prepare_shard',
)


def __getattr__(name: str) -> Any:
    # Loaded on first use, because loading them eagerly would slow down imports.
    if name == 'CloudDownloader':
        # Programs written for `streaming` import it from here.
        from shardmill.base.storage.download import CloudDownloader

        return CloudDownloader
    if name == 'streams_registry':
        return _registry()
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')


class Stream:
    """A dataset from which samples are streamed and cached.

    Args:
        remote: The location of the dataset: a folder, the URL of a prefix, a tar file, or a pattern of tar files,
            such as ``data/train-{000000..000146}.tar``. ``None`` if the dataset is local.
        local: The folder to read from. With ``remote``, shards are downloaded to it. Defaults to a folder in the
            temporary directory, whose name depends only on ``remote`` and ``split``.
        split: A subfolder of both, such as ``train``.
        proportion: The stream's share of an epoch. Set it for all streams of a dataset or for none.
        repeat: How often an epoch contains each sample; 0.5 for every second one.
        choose: How many samples an epoch contains.
        download_retry: How many times a failed download is retried.
        download_timeout: Seconds after which a download attempt fails; for a store, seconds without new data.
        validate_hash: The hash that is checked for every shard before it is used.
        keep_zip: Whether to keep compressed files after decompression.
        with_deleted: Whether to also read samples that were deleted from the dataset's table. ``None`` for the
            setting of the ``StreamingDataset``.
        view: The samples to read: a `View`, or the path of its file. Defaults to all.
        storage_options: Store settings that are not in the environment, such as ``{'AWS_PROFILE': 'train'}``. ``None``
            for those of the ``StreamingDataset``.

    Raises:
        ValueError: More than one of ``proportion``, ``repeat`` and ``choose`` is set, or a value is out of range.
        FileExistsError: Neither ``remote`` nor ``local`` is set, and the temporary folder exists.
    """

    #: Whether samples are plain files, listed without an index.
    _is_raw = False

    proportion: float
    repeat: float
    choose: int
    download_retry: int
    download_timeout: float
    keep_zip: bool
    safe_keep_zip: bool
    with_deleted: Optional[bool] = None
    view: Optional[View] = None
    storage_options: Optional[dict[str, str]] = None
    _proportion: Optional[float]
    _repeat: Optional[float]
    _choose: Optional[int]

    def __init__(
        self,
        *,
        remote: Optional[Path] = None,
        local: Optional[Path] = None,
        split: Optional[str] = None,
        proportion: Optional[float] = None,
        repeat: Optional[float] = None,
        choose: Optional[int] = None,
        download_retry: Optional[int] = None,
        download_timeout: Optional[float] = None,
        validate_hash: Optional[str] = None,
        keep_zip: Optional[bool] = None,
        with_deleted: Optional[bool] = None,
        view: Union[View, Path, None] = None,
        storage_options: Optional[Mapping[str, str]] = None,
    ) -> None:
        self.storage_options = check.storage_options(storage_options)
        self.remote = check.path_or_none('remote', remote) or None
        self._local = check.path_or_none('local', local)
        self.split = check.path_or_none('split', split) or ''
        self.with_deleted = (
            None if with_deleted is None else check.flag('with_deleted', with_deleted)
        )
        self.view = given_view(view)
        weights = {'proportion': proportion, 'repeat': repeat, 'choose': choose}
        given = sorted(name for name, value in weights.items() if value is not None)
        if len(given) > 1:
            raise UsageError(
                f'a stream has at most one of `proportion`, `repeat` and `choose`, not {given}',
                'config-value',
            )
        self._proportion = self._repeat = self._choose = None
        if proportion is not None:
            self.proportion = self._proportion = check.number('proportion', proportion)
        if repeat is not None:
            self.repeat = self._repeat = check.number('repeat', repeat)
        if choose is not None:
            self.choose = self._choose = check.count('choose', choose)
        self._download_retry = download_retry
        if download_retry is not None:
            self.download_retry = check.count('download_retry', download_retry)
        self._download_timeout = download_timeout
        if download_timeout is not None:
            self.download_timeout = check.number('download_timeout', download_timeout, above=0)
        self.validate_hash = check.hash_name('validate_hash', validate_hash)
        self.local = self._make_temporary_directory() if self._local is None else self._local
        self._keep_zip = keep_zip
        if keep_zip is not None:
            self._set_keep_zip(check.flag('keep_zip', keep_zip))
        self._downloader_made: Optional[CloudDownloader] = None

    def _set_keep_zip(self, keep_zip: bool) -> None:
        self.keep_zip = keep_zip
        # Never remove compressed files of a dataset that is read in place.
        self.safe_keep_zip = keep_zip or self.remote in {None, self.local}

    def _get_temporary_directory(self) -> str:
        """Returns the folder in the temporary directory for this remote and split."""
        name = ''
        if self.remote is not None:
            name = hashlib.blake2s(self.remote.encode(), digest_size=16).hexdigest()
        return os.path.join(tempfile.gettempdir(), name, self.split)

    def _make_temporary_directory(self) -> str:
        local = self._get_temporary_directory()
        if get_local_rank() == 0:
            if self.remote is None and os.path.exists(local):
                raise FileExistsError(
                    f'Could not create a temporary local directory {local}: it is there already, and '
                    f'without `remote` there is nothing to fetch to it; give `local`'
                )
            os.makedirs(local, mode=0o700, exist_ok=True)
        barrier()
        return local

    @property
    def _downloader(self) -> CloudDownloader:
        """Created on first use, because importing a store's SDK is slow."""
        if self._downloader_made is None:
            from shardmill.base.storage.download import CloudDownloader

            self._downloader_made = CloudDownloader.get(self.remote)
            self._downloader_made.storage_options = self.storage_options
        return self._downloader_made

    def __repr__(self) -> str:
        return stream_representation(self)

    def __getstate__(self) -> dict[str, Any]:
        # Store clients cannot be shared between processes.
        return {**self.__dict__, '_downloader_made': None}

    def apply_default(self, default: dict[str, Any]) -> None:
        """Sets the arguments that were omitted.

        Args:
            default: ``split``, ``download_retry``, ``download_timeout``, ``validate_hash``, ``keep_zip``, and
                optionally ``storage_options``.

        Raises:
            ValueError: Neither ``remote`` nor ``local`` is set.
        """
        if not (self.remote or self._local):
            raise UsageError('a stream needs `remote`, `local` or both', 'config-streams')
        if not self.split:
            self.split = default['split'] or ''
        if self._download_retry is None:
            self.download_retry = default['download_retry']
        if self._download_timeout is None:
            self.download_timeout = default['download_timeout']
        if self.validate_hash is None:
            self.validate_hash = default['validate_hash']
        if self._keep_zip is None:
            self._set_keep_zip(default['keep_zip'])
        if self.storage_options is None:
            self.storage_options = default.get('storage_options')

    @classmethod
    def validate_weights(cls, streams: Sequence[Stream]) -> tuple[bool, bool]:
        """Checks that the weights of the streams are compatible.

        Args:
            streams: All streams of a dataset.

        Returns:
            Whether the weights are relative (``proportion``), and whether no stream has one.

        Raises:
            ValueError: A stream has several weights, or relative and absolute weights are mixed.
        """
        names = ('proportion', 'repeat', 'choose')
        weights = [[name for name in names if hasattr(stream, name)] for stream in streams]
        relative = 'proportion' in weights[0]
        for place, given in enumerate(weights):
            if len(given) > 1:
                raise UsageError(
                    f'stream {place} has more than one weight: {", ".join(given)}', 'config-value'
                )
            if ('proportion' in given) != relative:
                raise UsageError(
                    f'stream {place}: relative weights (`proportion`) and absolute ones (`repeat`, '
                    f'`choose`, none) cannot be mixed',
                    'config-value',
                )
        return relative, not any(weights)

    @classmethod
    def apply_weights(
        cls,
        streams: Sequence[Stream],
        samples_per_stream: NDArray[np.int64],
        choose_per_epoch: Optional[int],
        seed: int,
    ) -> int:
        """Computes how many samples of each stream an epoch contains, and sets all three weights of each stream.

        Args:
            streams: All streams of a dataset.
            samples_per_stream: The number of samples in each stream. Shape: ``[streams]``.
            choose_per_epoch: Samples per epoch, if weights are relative or absent.
            seed: Decides which streams receive the samples left over by rounding.

        Returns:
            Samples per epoch.

        Raises:
            ValueError: The weights are incompatible, or an epoch size is combined with absolute weights.
        """
        import numpy as np

        relative, absent = cls.validate_weights(streams)
        if relative or (absent and choose_per_epoch):
            total = choose_per_epoch or int(sum(samples_per_stream))
            if relative:
                shares = np.array([stream.proportion for stream in streams], np.float64)
                if not shares.any():
                    raise UsageError('`proportion` is 0 for every stream', 'config-value')
            else:
                shares = samples_per_stream.astype(np.float64)
            shares /= shares.sum()
            chosen = (total * shares).astype(np.int64)
            generator = np.random.default_rng(seed)
            lucky = generator.choice(len(streams), total - chosen.sum(), False)
            chosen[lucky] += 1
        else:
            if choose_per_epoch:
                raise UsageError(
                    '`epoch_size` goes with relative weights (`proportion`) or none',
                    'config-value',
                    'epoch_size',
                )
            chosen = np.array(
                [
                    cls._absolute(stream, int(samples))
                    for stream, samples in zip(streams, samples_per_stream)
                ],
                np.int64,
            )
            total = int(chosen.sum())
            shares = chosen / chosen.sum()
        repeats = chosen / samples_per_stream
        for stream, proportion, repeat, choose in zip(streams, shares, repeats, chosen):
            stream.proportion = proportion
            stream.repeat = repeat
            stream.choose = choose
        return total

    @staticmethod
    def _absolute(stream: Stream, samples: int) -> int:
        if hasattr(stream, 'repeat'):
            return int(stream.repeat * samples)
        return getattr(stream, 'choose', samples)

    def _fetches_in_python(self) -> bool:
        """Returns whether the program has replaced how shards are fetched to the local folder."""
        return self._is_replaced(*_FETCHING) or self._has_own_downloader()

    def _is_replaced(self, *methods: str) -> bool:
        """Returns whether one of these methods is not of this module, in a subclass or because it was assigned."""
        return any(
            name in vars(self) or getattr(type(self), name) is not _STOCK[name] for name in methods
        )

    def _has_own_downloader(self) -> bool:
        """Returns whether the program registered the class that downloads from the remote."""
        module = sys.modules.get('shardmill.base.storage.download')
        return module is not None and module.is_registered(self.remote)

    def _is_local_copy_complete(self) -> bool:
        """Returns whether the remote folder no longer exists and the local folder holds the dataset."""
        if self._is_raw:
            return False
        name = os.path.join(self.split, get_index_basename())
        folder = _core.tar_folder(self.remote) if self.remote is not None else None
        if folder is not None:
            # The index of a tar pattern is always generated locally.
            gone = '://' not in folder and not os.path.exists(folder)
            return gone and os.path.exists(os.path.join(self.local, name))
        return (
            self.remote is not None
            and '://' not in self.remote
            and not os.path.exists(os.path.join(self.remote, name))
            and not _has_tars(os.path.join(self.remote, self.split))
            and os.path.exists(os.path.join(self.local, name))
        )

    def _arguments(self, is_fetched_here: bool, **listing: Any) -> dict[str, Any]:
        """Describes this stream for the Rust reader, with the arguments of `_core.StreamOptions`."""
        is_here = is_fetched_here or self._is_local_copy_complete()
        return {
            'remote': None if is_here else self.remote,
            'local': self.local,
            'split': self.split,
            'proportion': self._proportion,
            'repeat': self._repeat,
            'choose': self._choose,
            'keep_zip': self.keep_zip,
            'with_deleted': self.with_deleted,
            'view': None if self.view is None else self.view._view,
            # A subclass that fetches files also checks them.
            'validate_hash': None if is_fetched_here else self.validate_hash,
            'settings': self._settings(),
        }

    def _settings(self) -> dict[str, str]:
        """Returns the settings of the store that are not in the environment."""
        if not (self.remote or '').startswith('s3:'):
            return self.storage_options or {}
        from shardmill.base.storage import _s3

        bucket = _s3.split_url(self.remote or '')[1]
        return {**_s3.settings(bucket), **(self.storage_options or {})}

    def _download_file(self, from_basename: str, to_basename: Optional[str] = None) -> str:
        """Downloads a file to the local folder."""
        remote = None
        if self.remote is not None:
            remote = os.path.join(self.remote, self.split, from_basename)
        local = os.path.join(self.local, self.split, to_basename or from_basename)
        downloader = self._downloader
        again = retry(clean_up_fn=downloader.clean_up, num_attempts=1 + self.download_retry)
        again(lambda: downloader.download(remote, local, self.download_timeout))()
        return local

    def _check(self, info: FileInfo, path: str, data: bytes) -> None:
        """Checks downloaded bytes against ``validate_hash``."""
        name = self.validate_hash
        if not name:
            return
        if name not in info.hashes:
            raise ValueError(
                f'{path}: `validate_hash` is {name!r}, and the index has {sorted(info.hashes)} of it'
            )
        found = get_hash(name, data)
        if found != info.hashes[name]:
            raise ValueError(
                f'Checksum failure: {path}: {name} is {found}, and {info.hashes[name]} in the index'
            )

    def _decompress_shard_part(
        self, zip_info: FileInfo, zip_filename: str, raw_filename: str, compression: Optional[str]
    ) -> None:
        """Decompresses a file."""
        with open(zip_filename, 'rb') as file:
            data = file.read()
        self._check(zip_info, zip_filename, data)
        with whole(raw_filename) as part, open(part, 'wb') as file:
            file.write(decompress(compression, data))
        if not self.safe_keep_zip:
            os.remove(zip_filename)

    def _prepare_shard_part(
        self,
        raw_info: FileInfo,
        zip_info: Optional[FileInfo] = None,
        compression: Optional[str] = None,
    ) -> int:
        """Makes a raw file of a shard available in the local folder."""
        folder = os.path.join(self.local, self.split)
        raw = os.path.join(folder, raw_info.basename)
        zipped = None if zip_info is None else os.path.join(folder, zip_info.basename)
        if os.path.isfile(raw):
            if zip_info and zipped and not self.safe_keep_zip and os.path.isfile(zipped):
                os.remove(zipped)
                return -zip_info.bytes
            return 0
        if zip_info is None or zipped is None:
            self._download_file(raw_info.basename)
            if self.validate_hash:
                with open(raw, 'rb') as file:
                    self._check(raw_info, raw, file.read())
            return raw_info.bytes
        delta = raw_info.bytes
        if not os.path.isfile(zipped):
            self._download_file(zip_info.basename)
            delta += zip_info.bytes
        self._decompress_shard_part(zip_info, zipped, raw, compression)
        return delta if self.safe_keep_zip else delta - zip_info.bytes

    def prepare_shard(self, shard: Reader) -> int:
        """Makes the raw files of a shard available: downloaded, checked and decompressed.

        Args:
            shard: The shard.

        Returns:
            The growth of the local folder in bytes.
        """
        return sum(
            self._prepare_shard_part(raw, zipped, shard.compression)
            for raw, zipped in shard.file_pairs
        )

    def get_shards(self, world: World, allow_unsafe_types: bool) -> list[Reader]:
        """Reads the index, downloading it first if it is missing.

        Args:
            world: This rank: one rank per node downloads, the others wait.
            allow_unsafe_types: Whether to accept pickled columns.

        Returns:
            The shards.

        Raises:
            RuntimeError: The index is missing, and there is no remote to download it from.
            ValueError: The index is damaged, has an unsupported version, or requires unsafe types.
        """
        from shardmill.base.format import reader_from_json

        name = get_index_basename()
        path = os.path.join(self.local, self.split, name)
        if not os.path.exists(path):
            self._fetch_index(world, name, path)
        with open(path, encoding='utf-8') as file:
            try:
                index = json.load(file)
            except json.JSONDecodeError as error:
                error.args = (f'the index {path} is empty or damaged: {error.args[0]}',)
                raise
        if index.get('format') == 'webdataset':
            raise UnsupportedError(
                f'{path}: the shards of WebDataset are read as samples only, not as shards',
                'config-shards',
                path,
            )
        if index['version'] != 2:
            raise ValueError(
                f'{path}: version {index["version"]!r} is not supported, only version 2 is'
            )
        shards = []
        for info in index['shards']:
            shard = reader_from_json(self.local, self.split, info)
            shard.validate(allow_unsafe_types)
            shards.append(shard)
        return shards

    def _fetch_index(self, world: World, name: str, path: str) -> None:
        if not self.remote:
            raise _no_index(path)
        if world.is_local_leader:
            self._fetch_sides()
            part = self._download_file(name, f'{name}.tmp')
            os.replace(part, path)
            return
        wait_for_file_to_exist(
            path,
            TICK,
            self.download_timeout,
            f'the index {os.path.join(self.remote, self.split, name)} was not fetched to {path} in '
            f'time: see what the first rank of this node says, or raise `download_timeout`',
        )

    def _fetch_sides(self) -> None:
        """Downloads the files that list deleted samples, if the dataset has them.

        They are downloaded before the index, because other ranks wait for the index to appear.
        """
        text = self._fetch_side(PROVENANCE)
        noted = json.loads(text) if text else {}
        increment, tombstones = noted.get('increment') or {}, noted.get('tombstones') or {}
        if not tombstones and not increment.get('all_tombstones'):
            return
        folder = os.path.join(self.local, self.split)
        os.makedirs(folder, exist_ok=True)
        listed = self._fetch_side(TOMBSTONES, attempts=1 + self.download_retry)
        for name, data in ((TOMBSTONES, listed), (PROVENANCE, text)):
            if data:
                with whole(os.path.join(folder, name)) as part, open(part, 'wb') as file:
                    file.write(data)

    def _fetch_side(self, name: str, attempts: int = 1) -> bytes:
        """Returns the contents of a file beside the index, which is usually absent; empty if it does not exist.

        Code of the program that fetches files is asked for the index and the shards only, as in `streaming`: it may
        fail in any way for other files. Folders are read without it.
        """
        remote = os.path.join(self.remote or '', self.split, name)
        try:
            if is_folder(remote):
                with open(remote, 'rb') as file:
                    return file.read()
            if self._is_replaced('_download_file') or self._has_own_downloader():
                return b''
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, name)
                downloader = self._downloader
                again = retry(clean_up_fn=downloader.clean_up, num_attempts=attempts)
                again(lambda: downloader.download(remote, path, self.download_timeout))()
                with open(path, 'rb') as file:
                    return file.read()
        except (FileNotFoundError, PermissionError):
            # A store without the permission to list answers that a missing file is forbidden.
            return b''

    def set_up_local(self, shards: list[Reader], cache_usage_per_shard: NDArray[np.int64]) -> None:
        """Finds the shards in the local folder, and removes partial downloads.

        Args:
            shards: The shards of this stream.
            cache_usage_per_shard: Receives the size of each local shard in bytes. Shape: ``[shards]``.
        """
        listing = {
            os.path.join(folder, name)
            for folder, _, names in os.walk(os.path.join(self.local, self.split))
            for name in names
        }
        for place, shard in enumerate(shards):
            cache_usage_per_shard[place] = shard.set_up_local(listing, self.safe_keep_zip)

    def get_index_size(self) -> int:
        """Returns the size of the index in bytes; 0 for tar files without one, raw files and tables."""
        index = os.path.join(self.local, self.split, get_index_basename())
        return os.stat(index).st_size if os.path.exists(index) and not self._is_raw else 0


#: The methods before a program assigns others.
_STOCK = {name: getattr(Stream, name) for name in _FETCHING}


@cache
def _registry() -> TypedRegistry[type[Stream]]:
    """Creates the registry of classes of streams, by the name that `stream_name` gives.

    It is not in the namespace of mosaicml-streaming, whose dataset would otherwise make our streams, and ours its
    streams. Classes that programs registered there are found, too.
    """
    from shardmill.base.registry_utils import create_registry

    registry: TypedRegistry[type[Stream]] = create_registry(
        'shardmill',
        'streams_registry',
        generic_type=type[Stream],
        entry_points=True,
        description='Classes of streams, by the name that `stream_name` gives.',
        also=('streaming', 'streams_registry'),
    )
    registry.register('stream', func=Stream)
    return registry


def registered_stream(name: str, arguments: dict[str, Any]) -> Any:
    """Creates a stream of the class that is registered under a name."""
    from shardmill.base.registry_utils import construct_from_registry

    return construct_from_registry(
        name, _registry(), False, post_validation_function=_check_registered, kwargs=arguments
    )


def _check_registered(stream: Any) -> None:
    """Rejects an object of a registered class that is no stream, such as one of another package."""
    if not isinstance(stream, Stream):
        name = f'{type(stream).__module__}.{type(stream).__qualname__}'
        raise ArgumentTypeError(
            f'the class {name}, registered for `stream_name`, does not derive from shardmill.Stream',
            'config-type',
            'stream_name',
            'derive it from shardmill.Stream, or call shardmill.install_as_streaming() before `import streaming`',
        )


def _no_index(path: str, hint: Optional[str] = None) -> MissingIndexError:
    text = f'No `remote` provided, but local file {path} does not exist either'
    return MissingIndexError(text, 'index-missing', path, hint)


def _split_hint(folder: str) -> Optional[str]:
    """Names the datasets in the subfolders of a folder, if there are any."""
    splits = sorted(
        os.path.basename(os.path.dirname(path))
        for path in glob.glob(os.path.join(glob.escape(folder), '*', 'index.json'))
    )
    if not splits:
        return None
    return f'the folder has the datasets {", ".join(splits)}: pass split={splits[0]!r}'


def find_index(stream: Stream) -> None:
    """Raises the error that callers of ``streaming`` expect if an index is missing. Does not check stores."""
    if stream._is_raw or _core.tar_folder(stream.remote or stream.local) is not None:
        return
    local = os.path.join(stream.local, stream.split, 'index.json')
    if os.path.exists(local):
        return
    if stream.remote is None:
        if _has_tars(os.path.dirname(local)):
            return
        raise _no_index(local, _split_hint(os.path.dirname(local)))
    remote = os.path.join(stream.remote, stream.split, 'index.json')
    if is_folder(stream.remote) and not (
        os.path.exists(remote) or _has_tars(os.path.dirname(remote))
    ):
        raise MissingIndexError(f'{remote}: No such file or directory', 'index-missing', remote)


def _has_tars(folder: str) -> bool:
    """Returns whether a folder contains tar shards, which need no index. Hidden files are ignored."""
    endings = ('.tar', '.tar.gz', '.tgz', '.tar.zst')
    for here, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith('.')]
        if here == folder and any(
            os.path.exists(os.path.join(folder, name, get_index_basename())) for name in folders
        ):
            # A folder that contains datasets is not a dataset.
            return False
        if any(name.lower().endswith(endings) and not name.startswith('.') for name in names):
            return True
    return False


def is_folder(remote: str) -> bool:
    """Returns whether a remote is a local or mounted folder."""
    return '://' not in remote and not remote.startswith('dbfs:')
