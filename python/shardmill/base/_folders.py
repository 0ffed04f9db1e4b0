"""Which dataset each local folder was opened for in this process."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from shardmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shardmill.base.stream import Stream

__all__ = ['folders_of']

#: The remote that each folder was opened with. An index without hashes may be that of several datasets, and then
#: nothing in the folder tells whose shards they are.
_REMOTES: dict[str, str] = {}


@contextmanager
def folders_of(streams: Sequence[Stream]) -> Iterator[None]:
    """Opens streams inside of it, which from then on own their local folders.

    A folder whose index was removed belongs to nobody.

    Raises:
        ValueError: A folder belongs to another remote.
    """
    owned = {}
    for stream in streams:
        if stream.remote is None or stream._is_raw:
            # Read in place; or with a list of files that says itself where they come from.
            continue
        folder = os.path.realpath(os.path.join(stream.local, stream.split))
        remote = _without_spelling(os.path.join(stream.remote, stream.split))
        if remote == folder:
            continue
        known = _REMOTES.get(folder, remote)
        if known != remote and os.path.exists(os.path.join(folder, 'index.json')):
            # The first words are what callers look for.
            raise UsageError(
                f'Reused local directory: {folder} keeps the shards of {known}, not those of {remote}',
                'config-stream-folder',
                folder,
                'Provide a different one, or remove it',
            )
        owned[folder] = remote
    yield
    _REMOTES.update(owned)


def _without_spelling(remote: str) -> str:
    """A remote without what two spellings of it may differ in."""
    remote = remote[len('file://') :] if remote.startswith('file://') else remote
    if '://' in remote or remote.startswith('dbfs:'):
        return remote.rstrip('/')
    return os.path.realpath(remote)
