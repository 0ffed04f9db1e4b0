"""The base classes of dataset writers: they encode samples, upload shards in the background and publish the index last.

Rust does the work: it encodes samples into the write buffer, and background threads finish
and publish shards. A subclass with its own encoding, configuration or layout uses a slower path
through the methods that it overrides; the files are the same.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
from abc import ABC, abstractmethod
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Callable, ClassVar, Optional

from shardmill import _core
from shardmill.base import _arguments as check
from shardmill.base._files import whole
from shardmill.base._signatures import lists_arguments
from shardmill.base._typing import Destination, WriterOptions
from shardmill.base.compression import compress, get_compression_extension, is_compression
from shardmill.base.format.index import get_index_basename
from shardmill.base.hashing import get_hash
from shardmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Self, Unpack


__all__ = ['JointWriter', 'SplitWriter']

logger = logging.getLogger(__name__)

#: The defaults of the arguments that all writers share.
_DEFAULTS: WriterOptions = {
    'keep_local': False,
    'compression': None,
    'hashes': None,
    'size_limit': 1 << 26,
    'progress_bar': False,
    'max_workers': None,
    'retry': 2,
    'exist_ok': False,
    'jobs': None,
    'storage_options': None,
}
_ARGUMENTS = tuple(sorted(_DEFAULTS))

#: Lists the shared arguments in the signature of a writer.
lists_writer_arguments = lists_arguments(WriterOptions, _DEFAULTS)

#: The largest offset in a shard, since offsets have 32 bits.
_MAX_BYTES = (1 << 32) - 1

#: Methods that a subclass may override without losing the fast path.
_FAST_PATH_OVERRIDES = frozenset(
    [
        '__enter__',
        '__exit__',
        '__init__',
        'cancel_future_jobs',
        'encode_sample',
        'exception_callback',
        'finish',
        'write',
        'write_batch',
    ]
)


class Uploads:
    """Uploads files of a dataset in background threads. The event `failed` is set when a file could not be uploaded."""

    def __init__(self, uploader: Any, max_workers: Optional[int]) -> None:
        self.uploader = uploader
        self.executor = ThreadPoolExecutor(max_workers, 'shardmill-upload')
        self.failed = threading.Event()
        self.failure: Optional[BaseException] = None
        self._lock = threading.Lock()
        self._open = True
        self._feeder: Optional[threading.Thread] = None

    def submit(self, name: str) -> None:
        """Queues a file for upload; ignored after an upload has failed."""
        with self._lock:
            if not self._open:
                return
            future = self.executor.submit(self.uploader.upload_file, name)
        future.add_done_callback(self.settle)

    def settle(self, future: Future[Any]) -> None:
        """Handles the end of an upload. A failure cancels pending uploads."""
        failure = None if future.cancelled() else future.exception()
        with self._lock:
            if failure is None or self.failure is not None:
                return
            self._open = False
            self.failure = failure
            self.failed.set()
        logger.error('an upload failed: %s', failure)
        self.executor.shutdown(wait=False, cancel_futures=True)

    def feed(self, files: _core.PublishedFiles) -> None:
        """Uploads files as they are published, until the writer ends."""

        def run() -> None:
            while names := files.next():
                for name in names:
                    self.submit(name)

        self._feeder = threading.Thread(target=run, name='shardmill-published', daemon=True)
        self._feeder.start()

    def check(self) -> None:
        """Raises the error of a failed upload."""
        if self.failure is not None:
            raise self.failure

    def drain(self) -> None:
        """Waits until all published files are uploaded. No more files can be submitted then.

        Raises:
            Exception: An upload failed.
        """
        if self._feeder is not None:
            self._feeder.join()
        self.executor.shutdown(wait=True)
        self.check()

    def cancel(self) -> None:
        """Waits for uploads in progress, and cancels the others."""
        with self._lock:
            self._open = False
        self.executor.shutdown(wait=True, cancel_futures=True)


class Writer(ABC):
    """Writes a dataset, and uploads it to a remote location if there is one.

    An exception in a ``with`` block leaves files without an index, which is not a dataset.

    Args:
        out: A folder, which must be empty or missing; or a URL; or both, as a tuple.
        extra_bytes_per_shard: Bytes per shard in addition to its samples.
        extra_bytes_per_sample: Bytes per sample in addition to its encoded bytes.
        **kwargs: The other arguments of `MDSWriter`.

    Attributes:
        local: The folder that files are written to.
        remote: The location that files are uploaded to; ``None`` for none.

    Raises:
        ValueError: An argument has an invalid value.
        FileExistsError: The local folder is not empty.
    """

    format: ClassVar[str] = ''
    #: The module with the encodings that Rust also has; ``None`` if Rust cannot encode the columns.
    _codec: ClassVar[Any] = None
    columns: Mapping[str, str]
    newline: str = '\n'
    separator: Optional[str] = None

    def __init__(
        self,
        *,
        out: Destination,
        extra_bytes_per_shard: int = 0,
        extra_bytes_per_sample: int = 0,
        **kwargs: Unpack[WriterOptions],
    ) -> None:
        from shardmill.base.storage.upload import CloudUploader

        unknown = sorted(set(kwargs).difference(_ARGUMENTS))
        if unknown:
            raise UsageError(
                f'Invalid Writer argument: {", ".join(unknown)}',
                'config-argument',
                None,
                f'use some of {", ".join(_ARGUMENTS)}',
            )
        given: WriterOptions = {**_DEFAULTS, **kwargs}
        out = check.place_to_write('out', out)
        self.keep_local = check.flag('keep_local', given['keep_local'])
        self.compression = _compression(given['compression'])
        self.hashes = check.hash_names('hashes', given['hashes'])
        self.size_limit = check.byte_size('size_limit', given['size_limit'], _MAX_BYTES) or None
        self._jobs = check.whole_or_none('jobs', given['jobs'], 1)
        exist_ok = check.flag('exist_ok', given['exist_ok'])
        progress_bar = check.flag('progress_bar', given['progress_bar'])
        attempts = check.count('retry', given['retry'], 1)
        max_workers = given['max_workers']
        if max_workers is not None:
            max_workers = check.count('max_workers', max_workers, 1)
        settings = check.storage_options(given['storage_options'])
        self.extra_bytes_per_shard = extra_bytes_per_shard
        self.extra_bytes_per_sample = extra_bytes_per_sample

        local = os.path.expanduser(out if isinstance(out, str) else out[0])
        if exist_ok and os.path.exists(local):
            logger.warning('%s exists and is removed, because exist_ok is set', local)
            shutil.rmtree(local)
        self.cloud_writer = CloudUploader.get(
            out, self.keep_local, progress_bar, attempts, storage_options=settings
        )
        self.local: str = self.cloud_writer.local
        self.remote: Optional[str] = self.cloud_writer.remote
        self._uploads = Uploads(self.cloud_writer, max_workers)
        self.executor = self._uploads.executor
        self.event = self._uploads.failed

        self._core: Optional[_core.SampleWriter] = None
        self._add: Optional[Callable[[dict[str, Any]], None]] = None
        self._finished = False
        self._shards: list[dict[str, Any]] = []
        self._reset_cache()

    def _reset_cache(self) -> None:
        """Begins a new shard."""
        self._samples: list[bytes] = []
        self._shard_size = self.extra_bytes_per_shard

    # Implemented by the formats.

    @abstractmethod
    def encode_sample(self, sample: dict[str, Any]) -> bytes:
        """Encodes a sample.

        Raises:
            KeyError: A column is missing.
        """

    @abstractmethod
    def flush_shard(self) -> None:
        """Writes the samples since the last shard as the next shard, on the slow path."""

    def get_config(self) -> dict[str, Any]:
        """Returns the part of an index entry that is the same for every shard."""
        return {
            'version': 2,
            'format': self.format,
            'compression': self.compression,
            'hashes': self.hashes,
            'size_limit': self.size_limit,
        }

    def _columns(self) -> Optional[list[tuple[str, str, Any]]]:
        """Returns name, encoding and encoder of the columns; ``None`` if Rust cannot encode them."""
        codec = self._codec
        if codec is None:
            return None
        encodings = set(self.columns.values())
        if any(codec.registered(encoding.partition(':')[0]) for encoding in encodings):
            return None
        if self.format == 'mds' and not all(map(_core.is_encoding, encodings)):
            return None
        columns = sorted(self.columns.items())
        return [(name, encoding, codec._get_coder(encoding)) for name, encoding in columns]

    # Writing.

    def write(self, sample: dict[str, Any]) -> None:
        """Adds a sample: the values of its columns by name. Other keys are ignored.

        Raises:
            KeyError: A column is missing.
            AttributeError, TypeError, ValueError: A value cannot be stored in its column.
            Exception: A shard could not be written or uploaded.
        """
        if self._add is None or self.event.is_set():
            self._begin()
        assert self._add is not None
        self._add(sample)

    def write_batch(self, batch: Any) -> int:
        """Adds the rows of an Arrow table, record batch or stream: any object with ``__arrow_c_stream__`` or
        ``__arrow_c_array__``, such as those of PyArrow and Polars. Other columns are ignored.

        If a row cannot be stored, earlier rows may have been added.

        Returns:
            The number of rows.

        Raises:
            KeyError: A column is missing.
            ValueError: A value cannot be stored in its column.
            TypeError: Samples or columns are encoded in Python only.
            Exception: A shard could not be written or uploaded.
        """
        self._begin()
        if self._core is None or self._is_overridden('encode_sample'):
            raise TypeError(
                f'{type(self).__name__} encodes samples in Python and does not support write_batch'
            )
        return self._core.write_arrow(batch)

    def _is_overridden(self, method: str) -> bool:
        """Returns whether a subclass outside this package overrides a method."""
        package_class = self._package_class()
        return getattr(type(self), method) is not getattr(package_class, method)

    def _package_class(self) -> type[Writer]:
        """Returns the class of this package that this is or derives from."""
        return next(each for each in type(self).__mro__ if each.__module__.startswith('shardmill.'))

    def _begin(self) -> None:
        """Stops if an upload has failed. The first call chooses the fast or the slow path."""
        if self.event.is_set():
            self._abort()
            self._uploads.check()
        if self._add is None:
            self._start()

    def _start(self) -> None:
        self._core = self._make_core()
        if self._core is None:
            self._add = self._add_in_python
        elif self._is_overridden('encode_sample'):
            push = self._core.push
            self._add = lambda sample: push(self.encode_sample(sample))
        else:
            self._add = self._core.write
            if not self.remote and not self._is_overridden('write'):
                # Without uploads, no upload errors need to be checked.
                self.__dict__['write'] = self._add
        if self._core is not None and self.remote:
            self._uploads.feed(self._core.published())

    def _make_core(self) -> Optional[_core.SampleWriter]:
        """Creates the writer in Rust, if it can do everything that this class does."""
        package_class = self._package_class()
        methods = [name for name in vars(Writer) if callable(getattr(Writer, name))]
        methods += [
            name
            for name in ('encode_joint_shard', 'encode_split_shard')
            if hasattr(package_class, name)
        ]
        if any(self._is_overridden(name) for name in methods if name not in _FAST_PATH_OVERRIDES):
            return None
        columns = self._columns()
        layout = ('format', 'extra_bytes_per_sample')
        if columns is None or any(
            getattr(self, name) != getattr(package_class, name) for name in layout
        ):
            return None
        core = _core.SampleWriter(
            self.local,
            format=self.format,
            columns=columns,
            newline=self.newline,
            separator=self.separator,
            compression=self.compression,
            hashes=self.hashes,
            size_limit=self.size_limit,
            jobs=self._jobs,
            durable=not self.remote or self.keep_local,
        )
        return core if core.config() == self._config_text() else None

    def _config_text(self) -> str:
        return json.dumps(self.get_config(), sort_keys=True)

    def _add_in_python(self, sample: dict[str, Any]) -> None:
        if self._finished:
            raise UsageError('the writer is already finished', 'writer-closed')
        encoded = self.encode_sample(sample)
        size = len(encoded) + self.extra_bytes_per_sample
        if self.size_limit and self._shard_size + size > self.size_limit:
            self.flush_shard()
            self._reset_cache()
        self._samples.append(encoded)
        self._shard_size += size

    # Inspection.

    @property
    def shards(self) -> list[dict[str, Any]]:
        """The index entries of the finished shards. Waits until they are published."""
        if self._core is None:
            return self._shards
        shards: list[dict[str, Any]] = json.loads(self._core.index())['shards']
        return shards

    @property
    def new_samples(self) -> list[bytes]:
        """The encoded samples of the current shard."""
        return self._samples if self._core is None else self._core.open_samples()

    @new_samples.setter
    def new_samples(self, samples: list[bytes]) -> None:
        self._samples = samples

    @property
    def new_shard_size(self) -> int:
        """The size of the current shard in bytes, as counted for the size limit."""
        return self._shard_size if self._core is None else self._core.open_bytes()

    @new_shard_size.setter
    def new_shard_size(self, size: int) -> None:
        self._shard_size = size

    # Finishing.

    def finish(self) -> None:
        """Writes the remaining samples, waits until everything is written and uploaded, and publishes the index last.

        Raises:
            Exception: A shard or the index could not be written or uploaded. The remote location then has no index.
        """
        if self._finished:
            return
        try:
            self._begin()
            if self._core is not None:
                self._core.finish()
            else:
                self._finish_in_python()
            if self.remote:
                self._uploads.drain()
                self.cloud_writer.upload_file(get_index_basename())
        except BaseException:
            self._abort()
            raise
        self._finished = True
        self.executor.shutdown()
        self._remove_local()

    def _abort(self) -> None:
        """Stops without writing an index."""
        self._finished = True
        if self._core is not None:
            self._core.abort()
        self._uploads.cancel()
        self._remove_local()

    def _remove_local(self) -> None:
        if self.remote and not self.keep_local:
            shutil.rmtree(self.local, ignore_errors=True)

    def cancel_future_jobs(self) -> None:
        """Cancels uploads that have not begun."""
        self.executor.shutdown(wait=False, cancel_futures=True)

    def exception_callback(self, future: Future[Any]) -> None:
        """Handles the end of an upload."""
        self._uploads.settle(future)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: Optional[type[BaseException]], *_: object) -> None:
        if exc_type is None:
            self.finish()
        elif not self._finished:
            self._abort()

    # The slow path.

    def _name_next_shard(self, extension: Optional[str] = None) -> tuple[str, Optional[str]]:
        """Returns the names of a file of the next shard, raw and compressed; the latter is ``None``
        without compression.
        """
        parts = ['shard', f'{len(self._shards):05}', self.format]
        if extension:
            parts.append(extension)
        raw = '.'.join(parts)
        if self.compression is None:
            return raw, None
        return raw, f'{raw}.{get_compression_extension(self.compression)}'

    def _hash(self, data: bytes, basename: str) -> dict[str, Any]:
        """Returns the index entry of a file."""
        hashes = {algo: get_hash(algo, data) for algo in self.hashes}
        return {'basename': basename, 'bytes': len(data), 'hashes': hashes}

    def _process_file(
        self, raw_data: bytes, raw_basename: str, zip_basename: Optional[str]
    ) -> tuple[dict[str, Any], Optional[dict[str, Any]]]:
        """Writes and uploads a file; returns its index entries, raw and compressed."""
        raw_info, zip_info = self._hash(raw_data, raw_basename), None
        data, basename = raw_data, raw_basename
        if zip_basename is not None:
            data, basename = compress(self.compression, raw_data), zip_basename
            zip_info = self._hash(data, zip_basename)
        _publish(self.local, basename, data)
        if self.remote:
            self._uploads.submit(basename)
        return raw_info, zip_info

    def _finish_in_python(self) -> None:
        if self._samples:
            self.flush_shard()
            self._reset_cache()
        index = json.dumps({'version': 2, 'shards': self._shards}, sort_keys=True)
        _publish(self.local, get_index_basename(), index.encode())


class JointWriter(Writer):
    """Writes shards that consist of one file."""

    @abstractmethod
    def encode_joint_shard(self) -> bytes:
        """Returns the file for the samples since the last shard."""

    def flush_shard(self) -> None:
        names = self._name_next_shard()
        raw_data, zip_data = self._process_file(self.encode_joint_shard(), *names)
        entry = {'samples': len(self._samples), 'raw_data': raw_data, 'zip_data': zip_data}
        self._shards.append({**entry, **self.get_config()})


class SplitWriter(Writer):
    """Writes shards that consist of two files: samples and their offset table."""

    extra_bytes_per_shard = 0
    extra_bytes_per_sample = 0

    def __init__(self, *, out: Destination, **kwargs: Unpack[WriterOptions]) -> None:
        super().__init__(
            out=out,
            extra_bytes_per_shard=self.extra_bytes_per_shard,
            extra_bytes_per_sample=self.extra_bytes_per_sample,
            **kwargs,
        )

    @abstractmethod
    def encode_split_shard(self) -> tuple[bytes, bytes]:
        """Returns the files for the samples since the last shard: samples, offset table."""

    def flush_shard(self) -> None:
        data_names, meta_names = self._name_next_shard(), self._name_next_shard('meta')
        data, meta = self.encode_split_shard()
        raw_data, zip_data = self._process_file(data, *data_names)
        raw_meta, zip_meta = self._process_file(meta, *meta_names)
        entry = {
            'samples': len(self._samples),
            'raw_data': raw_data,
            'zip_data': zip_data,
            'raw_meta': raw_meta,
            'zip_meta': zip_meta,
        }
        self._shards.append({**entry, **self.get_config()})


def table(first: int, samples: list[bytes], config: str) -> bytes:
    """Builds the offset table of a shard: the number of samples, 32-bit offsets from `first` on, and the configuration.

    Raises:
        ValueError: An offset exceeds 32 bits.
    """
    offsets = [first]
    for sample in samples:
        offsets.append(offsets[-1] + len(sample))
    if offsets[-1] >> 32:
        raise UsageError(f'a shard of {offsets[-1]} bytes is too large', 'shard-too-large')
    numbers = (number.to_bytes(4, 'little') for number in [len(samples), *offsets])
    return b''.join(numbers) + config.encode()


def _compression(name: Optional[str]) -> Optional[str]:
    """Checks the name of a compression; ``None`` for none."""
    if name is None or name == '':
        return None
    if not is_compression(check.text('compression', name)):
        raise UsageError(
            f'`compression` must be the name of a compression, but got: {name!r}.',
            'compression-unknown',
            'compression',
            'use br, bz2, gz, snappy or zstd, or one with a level, such as zstd:7',
        )
    return name


def _publish(folder: str, name: str, data: bytes) -> None:
    """Writes a file under a temporary name, syncs it, and renames it."""
    with whole(os.path.join(folder, name)) as part, open(part, 'xb') as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
