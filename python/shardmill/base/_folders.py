"""Checks that a dataset stays the same: in its local folder, and in all processes of a run."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from shardmill.errors import ConflictError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shardmill.base.stream import Stream

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
