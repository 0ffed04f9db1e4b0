"""A read-only filesystem of fsspec whose files are the fields of samples.

    fsspec.open('shardmill://data/shards!/12/image')

What comes before ``!/`` is the location of a dataset, in a directory or in a store. The dataset is a directory of its
samples, named by their numbers, and a sample is a directory of its fields. A column whose name has slashes is in
subdirectories.

fsspec finds the filesystem by its entry point, without an import of this module. Needs fsspec.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import weakref
from collections.abc import Mapping
from typing import Any, Optional

import numpy as np
from fsspec.spec import AbstractFileSystem

from shardmill import _core
from shardmill.base import _arguments as check
from shardmill.base._live import stream_at

__all__ = ['ShardmillFileSystem']


class ShardmillFileSystem(AbstractFileSystem):
    """The samples of datasets as files.

    Text, bytes, images and files have the bytes that they have in the dataset. Arrays are ``.npy`` files, and numbers
    and other values are JSON. The values of a sample are read to know their sizes, so a recursive listing of a dataset
    reads all of it.

    Args:
        local: The folder that shards are fetched to. Defaults to a temporary folder for each dataset in a store.
        settings: Store settings that are not in the environment, as in ``StreamingDataset(storage_options=…)``.
        options: The options of fsspec.
    """

    protocol = 'shardmill'
    root_marker = ''

    def __init__(
        self,
        *args: Any,
        local: Optional[str] = None,
        settings: Optional[Mapping[str, str]] = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self._local = check.path_or_none('local', local)
        self._settings = check.storage_options(settings)
        self._datasets: dict[tuple[int, str], _Dataset] = {}

    def _dataset(self, location: str) -> _Dataset:
        # A forked process opens its own.
        key = (os.getpid(), location)
        if key not in self._datasets:
            self._datasets[key] = _Dataset(location, self._local, self._settings)
        return self._datasets[key]

    def _found(self, path: str) -> tuple[str, _Dataset, list[str]]:
        """Returns the directory of a dataset, the dataset, and the parts of the path in it."""
        path = self._strip_protocol(path)
        location, _, inside = f'{path}/'.partition('!/')
        location = location.rstrip('/')
        parts = [part for part in inside.split('/') if part]
        return f'{location}!', self._dataset(location), parts

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        """Lists the samples of a dataset, or the fields of a sample."""
        root, dataset, parts = self._found(path)
        entries: list[dict[str, Any]]
        if parts:
            fields, name = self._fields(path, dataset, parts)
            base = f'{root}/{parts[0]}'
            if name in fields:
                entries = [_file(f'{base}/{name}', fields[name])]
            else:
                inside = f'{name}/' if name else ''
                found: dict[str, dict[str, Any]] = {}
                for field, data in fields.items():
                    if field.startswith(inside):
                        first, _, deeper = field[len(inside) :].partition('/')
                        full = f'{base}/{inside}{first}'
                        found[full] = _directory(full) if deeper else _file(full, data)
                entries = list(found.values())
        else:
            width = len(str(max(dataset.samples - 1, 0)))
            numbers = range(dataset.samples)
            entries = [_directory(f'{root}/{number:0{width}}') for number in numbers]
        return entries if detail else sorted(entry['name'] for entry in entries)

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        """Returns the name, the type and the size of a file or a directory."""
        root, dataset, parts = self._found(path)
        if not parts:
            return _directory(root)
        fields, name = self._fields(path, dataset, parts)
        full = '/'.join([root, *parts])
        return _file(full, fields[name]) if name in fields else _directory(full)

    def _fields(
        self, path: str, dataset: _Dataset, parts: list[str]
    ) -> tuple[dict[str, bytes], str]:
        """Returns the fields of a sample, and the rest of the path."""
        sample, name = parts[0], '/'.join(parts[1:])
        if not (sample.isascii() and sample.isdigit() and int(sample) < dataset.samples):
            raise _missing(path)
        fields = dataset.fields(int(sample))
        if name and name not in fields and not any(it.startswith(f'{name}/') for it in fields):
            raise _missing(path)
        return fields, name

    def _open(self, path: str, mode: str = 'rb', *args: Any, **options: Any) -> io.BytesIO:
        if mode != 'rb':
            raise _read_only(path)
        _, dataset, parts = self._found(path)
        fields, name = self._fields(path, dataset, parts) if parts else ({}, '')
        if name not in fields:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return _Field(fields[name])

    def mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        raise _read_only(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        raise _read_only(path)

    def rmdir(self, path: str) -> None:
        raise _read_only(path)

    def _rm(self, path: str) -> None:
        raise _read_only(path)

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        raise _read_only(path2)


class _Field(io.BytesIO):
    """An open file."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.size = len(content)


class _Dataset:
    """An open dataset. Keeps the last sample, because a file is listed before it is opened."""

    def __init__(
        self, location: str, local: Optional[str], settings: Optional[Mapping[str, str]]
    ) -> None:
        # The temporary folder of a store is removed together with this object.
        self._folder = contextlib.ExitStack()
        stream = self._folder.enter_context(stream_at(location, local, settings))
        self._reader = _core.Reader([stream], _core.ReaderOptions(), _stored)
        self._end = weakref.finalize(self, self._folder.close)
        self.samples = self._reader.samples
        self._last: tuple[int, dict[str, bytes]] = (-1, {})

    def fields(self, sample: int) -> dict[str, bytes]:
        """Returns the contents of the files of a sample."""
        number, fields = self._last
        if number != sample:
            values = self._reader.sample(sample)
            fields = {name: _content(value) for name, value in values.items()}
            self._last = (sample, fields)
        return fields


def _stored(encoding: str, data: bytes) -> bytes:
    """Returns a value that the extension module does not decode, as it is stored."""
    return bytes(data)


def _content(value: Any) -> bytes:
    """Returns the content of the file of a value."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, np.ndarray):
        file = io.BytesIO()
        np.save(file, value, allow_pickle=False)
        return file.getvalue()
    plain = value.item() if isinstance(value, np.generic) else value
    return json.dumps(plain, ensure_ascii=False).encode()


def _file(name: str, content: bytes) -> dict[str, Any]:
    return {'name': name, 'size': len(content), 'type': 'file'}


def _directory(name: str) -> dict[str, Any]:
    return {'name': name, 'size': 0, 'type': 'directory'}


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def _read_only(path: str) -> OSError:
    return OSError(errno.EROFS, os.strerror(errno.EROFS), path)
