"""Helpers for datasets: parsing sizes, waiting, retrying, merging indexes."""

from __future__ import annotations

import logging
import os
import tempfile
import urllib.parse
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Optional, Union, overload

from shardmill import _core
from shardmill.base import _arguments as check
from shardmill.base import distributed
from shardmill.base._arguments import bytes_to_int, number_abbrev_to_int
from shardmill.base._files import whole
from shardmill.base._retrying import retry
from shardmill.base.constant import SHM_TO_CLEAN
from shardmill.base.distributed import get_local_rank, maybe_init_dist
from shardmill.base.format.index import PROVENANCE, TOMBSTONES, get_index_basename
from shardmill.errors import ArgumentTypeError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardmill.base._typing import Destination

__all__ = [
    'bytes_to_int',
    'clean_stale_shared_memory',
    'get_import_exception_message',
    'get_index_basename',
    'get_list_arg',
    'get_local_rank',
    'maybe_init_dist',
    'merge_index',
    'number_abbrev_to_int',
    'retry',
    'wait_for_file_to_exist',
]

logger = logging.getLogger(__name__)

_Place = Union[str, tuple[str, str]]
_INDEX = 'index.json'
# The working folder of a writer, which holds unfinished files.
_WORK_FOLDER = '.shardmill'


def get_list_arg(text: str) -> list[str]:
    """Splits a text at its commas; an empty text gives an empty list."""
    return text.split(',') if text else []


def wait_for_file_to_exist(
    filename: str, poll_interval: float, timeout: float, err_msg: str
) -> None:
    """Waits until a file exists.

    Args:
        filename: The file.
        poll_interval: Seconds between checks.
        timeout: Seconds to wait.
        err_msg: The beginning of the error message.

    Raises:
        RuntimeError: The file does not exist after the timeout.
    """
    filename = check.path('filename', filename)
    start = monotonic()
    while not os.path.exists(filename):
        waited = monotonic() - start
        if waited > timeout:
            raise RuntimeError(f'{err_msg}: {filename} is not there after {waited:.3f} seconds')
        sleep(poll_interval)


def clean_stale_shared_memory() -> None:
    """Destroys shared memory that runs of ``streaming`` left behind.

    shardmill's own datasets do not use it and never need this. The first process of each node cleans up; in a process
    group, all processes wait for it. Cleaning proceeds by prefix and stops at the first prefix without a block.
    """
    from multiprocessing.shared_memory import SharedMemory

    from shardmill.base.shared.prefix import _get_path

    prefix = 0 if distributed.get_local_rank() == 0 else None
    while prefix is not None:
        found = False
        for name in SHM_TO_CLEAN:
            try:
                block = SharedMemory(_get_path(prefix, name))
            except FileNotFoundError:
                continue
            except PermissionError:
                # The block belongs to another user, who may need it.
                found = True
                continue
            found = True
            block.close()
            block.unlink()
        prefix = prefix + 1 if found else None
    distributed.barrier()


def get_import_exception_message(package_name: str, extra_deps: str) -> str:
    """Returns the message of an ImportError for a missing optional package.

    Args:
        package_name: The name of the extra of mosaicml-streaming.
        extra_deps: The packages to install.
    """
    return (
        f'shardmill was installed without {package_name} support. To use {package_name} related '
        f'packages with it, run `pip install {extra_deps}`, which is what '
        f'`mosaicml-streaming[{package_name}]` would bring.'
    )


@overload
def merge_index(
    index_file_urls: list[Any],
    out: Destination,
    keep_local: bool = ...,
    download_timeout: float = ...,
) -> None: ...


@overload
def merge_index(
    out: Destination, keep_local: bool = ..., download_timeout: float = ...
) -> None: ...


def merge_index(*args: Any, **kwargs: Any) -> None:
    """Merges the indexes of several partitions into one index, so that they form one dataset.

    ``merge_index(index_file_urls, out, keep_local=True, download_timeout=60)`` merges the given
    indexes in order. ``merge_index(out, keep_local=True, download_timeout=60)`` merges all indexes
    in folders below `out`, at any depth. Without any index it only logs a warning.

    Args:
        index_file_urls: The indexes. Each is a path, a URL, or both as a tuple: the path is read if it exists.
        out: The location of the partitions and of the merged ``index.json``: a folder, a URL, or
            both as a tuple. The index is uploaded to a URL.
        keep_local: Whether the merged index stays in the folder. Nothing else is removed from the folder.
        download_timeout: Seconds after which the download of an index fails.

    Raises:
        ValueError: The arguments are invalid, or two indexes name the same file.
        RuntimeError: An index cannot be read.
        FileNotFoundError: An index does not exist and has no URL.
    """
    named = dict(zip(('index_file_urls', 'out', 'keep_local', 'download_timeout'), args))
    first = args[0] if args else kwargs.get('index_file_urls')
    if not isinstance(first, list):
        named = dict(zip(('out', 'keep_local', 'download_timeout'), args))
    arguments = {**named, **kwargs}
    known = {'index_file_urls', 'out', 'keep_local', 'download_timeout'}
    twice = set(named) & set(kwargs)
    if len(named) < len(args) or twice or not set(arguments) <= known or 'out' not in arguments:
        raise UsageError(f'Invalid arguments to merge_index: {args}, {kwargs}', 'config-value')
    out = arguments.pop('out')
    if not isinstance(out, (str, tuple, os.PathLike)):
        # COMPAT: programs match the beginning of this message.
        raise ArgumentTypeError(
            f'Invalid arguments to merge_index: `out` must be a path, a URL, or a tuple of both, but got: {out!r}',
            'config-type',
            'out',
        )
    # COMPAT: an empty `out` is not an error.
    out = check.place_to_write('out', out) if out else ''
    keep_local = check.flag('keep_local', arguments.pop('keep_local', True))
    timeout = check.number('download_timeout', arguments.pop('download_timeout', 60), above=0)
    if isinstance(first, list):
        places = [_index_place(place, each) for place, each in enumerate(first)]
    elif arguments:
        check.refuse_type('index_file_urls', first, 'a list of paths, URLs, or tuples of both')
    else:
        places = None
    if not out or places == []:
        logger.warning('there is no index to merge, or nowhere to put the result')
        return
    local, uploader = _destination(out)
    if places is None:
        places = _indexes_below(local, uploader)
    if places:
        _merge(places, local, uploader, keep_local, timeout)
    else:
        logger.warning('there is no index in the folders of %s', out)


def _index_place(place: int, given: Any) -> _Place:
    name = f'index_file_urls[{place}]'
    if not isinstance(given, tuple):
        return check.path(name, given)
    if len(given) != 2:
        check.refuse_value(name, given, 'a path, a URL, or a tuple of both')
    return check.path(f'{name}[0]', given[0]), check.path(f'{name}[1]', given[1])


def _merge(
    index_file_urls: Sequence[_Place],
    local: str,
    uploader: Optional[Any],
    keep_local: bool,
    download_timeout: float,
) -> None:
    roots = [local, uploader.remote if uploader else None]
    with tempfile.TemporaryDirectory() as scratch:
        parts = []
        for url in dict.fromkeys(index_file_urls):
            places = [url] if isinstance(url, str) else list(url)
            places = [place.strip().rstrip('/') for place in places]
            folder = _folder_of(places, roots)
            index, source = _read_index(places, scratch, download_timeout)
            parts.append((folder, index, _read_sides(source, scratch, download_timeout)))
        merged, sides = _core.merge_indexes(parts)
    # Write the index last, because it completes the dataset. First remove an index that does not match the new files.
    files = [*sides, (_INDEX, merged)]
    path = os.path.join(local, _INDEX)
    stale = [name for name in (TOMBSTONES, PROVENANCE) if name not in dict(sides)]
    stale = [name for name in stale if os.path.exists(os.path.join(local, name))]
    if (sides or stale) and os.path.exists(path):
        os.remove(path)
    for name in stale:
        os.remove(os.path.join(local, name))
    os.makedirs(local, exist_ok=True)
    for name, text in files:
        with whole(os.path.join(local, name)) as part, open(part, 'w', encoding='utf-8') as file:
            file.write(text)
        if uploader is not None and uploader.remote is not None:
            uploader.upload_file(name)
    if not keep_local:
        for name, _ in files:
            os.remove(os.path.join(local, name))
        if not os.listdir(local):
            os.rmdir(local)


def _indexes_below(local: str, uploader: Optional[Any]) -> list[_Place]:
    """Returns the indexes in the folders below the destination, local and remote."""
    if uploader is None or uploader.remote is None:
        return list(_local_index_files(local))
    remote = uploader.remote
    if not urllib.parse.urlparse(remote).scheme:
        # The paths, below both roots, of every index in a folder below either root.
        names = {
            os.path.relpath(path, root)
            for root in (local, remote)
            for path in _local_index_files(root)
        }
        return [(os.path.join(local, name), os.path.join(remote, name)) for name in sorted(names)]
    found: list[_Place] = []
    for url in _format_remote_index_files(remote, uploader.list_objects()):
        path = os.path.join(local, _folder_of([url], [remote]), _INDEX)
        found.append((path, url) if os.path.exists(path) else url)
    return found


def _destination(out: _Place) -> tuple[str, Optional[Any]]:
    """Returns the folder of the merged index, and its uploader if `out` is remote."""
    if isinstance(out, str) and not urllib.parse.urlparse(out).scheme:
        return out, None
    from shardmill.base.storage.upload import CloudUploader

    uploader = CloudUploader.get(out, exist_ok=True, keep_local=True)
    return uploader.local, uploader


def _local_index_files(root: str) -> list[str]:
    """Returns the paths of all indexes in folders below the root."""
    found = []
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name != _WORK_FOLDER]
        if _INDEX in files and folder != root:
            found.append(os.path.join(folder, _INDEX))
    return sorted(found)


def _format_remote_index_files(remote: str, files: list[str]) -> list[str]:
    """Returns the URLs of those files that are indexes of partitions, not that of the remote itself."""
    url = urllib.parse.urlparse(remote)
    own = url.path.strip('/')
    found = [
        file for file in files if file.endswith(_INDEX) and os.path.dirname(file).strip('/') != own
    ]
    if not url.scheme:
        return found
    # Volumes of Databricks have no bucket: dbfs:/Volumes/...
    is_volume = url.scheme == 'dbfs' and url.path.split('/')[1:2] == ['Volumes']
    start = f'{url.scheme}:/' if is_volume else f'{url.scheme}://{url.netloc}/'
    return [start + file.lstrip('/') for file in found]


def _folder_of(places: Sequence[str], roots: Sequence[Optional[str]]) -> str:
    """Returns the folder of an index relative to the first root that contains one of its places.

    Without such a root, returns the last folder of the path, for partitions that are moved to the merged index later.
    """
    folders = [os.path.dirname(place) for place in places if place]
    for root in roots:
        for folder in folders if root else ():
            start = _normal(root or '')
            if f'{_normal(folder)}/'.startswith(f'{start}/'):
                return _normal(folder)[len(start) :].strip('/')
    return os.path.basename(folders[0]) if folders else ''


def _normal(place: str) -> str:
    """Normalizes the spelling of a path or URL, for comparisons."""
    if urllib.parse.urlparse(place).scheme:
        return place.rstrip('/')
    return os.path.realpath(place).rstrip('/')


def _read_index(places: Sequence[str], scratch: str, timeout: float) -> tuple[bytes, str]:
    """Returns the bytes of an index and their source: the path if it exists, otherwise the URL."""
    source = places[0] if len(places) == 1 or os.path.exists(places[0]) else places[1]
    # COMPAT: programs match the beginning of both messages.
    if not source:
        raise FileNotFoundError(
            f'Check data availability! The index {places[0]} is not there, and has no URL'
        )
    copy = os.path.join(scratch, f'{len(os.listdir(scratch))}.json')
    try:
        if not urllib.parse.urlparse(source).scheme:
            copy = source
        else:
            from shardmill.base.storage.download import CloudDownloader

            CloudDownloader.direct_download(source, copy, timeout)
        with open(copy, 'rb') as file:
            return file.read(), source
    except Exception as error:
        raise RuntimeError(f'Failed to download index.json: {source}: {error}') from error


def _read_sides(source: str, scratch: str, timeout: float) -> dict[str, bytes]:
    """Returns the existing files next to an index that list its deleted samples."""
    folder, name = os.path.split(source)
    if name != _INDEX:
        return {}
    found: dict[str, bytes] = {}
    is_remote = bool(urllib.parse.urlparse(source).scheme)
    for side in (PROVENANCE, TOMBSTONES):
        copy = path = os.path.join(folder, side)
        if is_remote and side == TOMBSTONES and not found:
            # Without provenance there are no tombstones.
            break
        try:
            if is_remote:
                from shardmill.base.storage.download import CloudDownloader

                copy = os.path.join(scratch, f'{len(os.listdir(scratch))}.{side}')
                CloudDownloader.direct_download(path, copy, timeout)
            with open(copy, 'rb') as file:
                found[side] = file.read()
        except FileNotFoundError:
            continue
    return found
