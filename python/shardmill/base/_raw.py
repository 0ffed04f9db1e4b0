"""Support for streams of raw files in datasets."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING, Any, Optional

from shardmill import _torch
from shardmill.base._board import training_process
from shardmill.errors import ConflictError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardmill import _core
    from shardmill.base.stream import Stream

#: For how many batches a worker pins files: torch prefetches two batches after the one that is used.
_OF_WORKER = 3


def gives_files(streams: Sequence[Stream]) -> bool:
    """Returns whether samples contain file paths, so that the files must be pinned for a while."""
    return any(getattr(stream, 'yields', 'data') != 'data' for stream in streams)


def kept_batches(given: Optional[int]) -> int:
    """Returns for how many batches files stay pinned."""
    if given is not None:
        return given
    return 1 if _torch.worker_info() is None else _OF_WORKER


def holding(kept: int) -> dict[str, Any]:
    """Returns reader options that decide how long files stay pinned."""
    # The training process uses the last batches of a worker after the worker has exited.
    owner = None if _torch.worker_info() is None else training_process()
    return {'keep': kept, 'owner': owner}


def holding_options() -> dict[str, int]:
    """Returns the options of a reader that pins files. Each pinned file is an open file."""
    return {
        'pins': resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2,
        'owner': training_process(),
    }


def as_listed(
    streams: list[dict[str, Any]], digest: Optional[str], before: Optional[_core.Reader]
) -> None:
    """Makes all processes of a run read the same files, even if files were added or removed since the first listing.

    A forked child takes the list from its parent's reader, which it must not use otherwise. Other processes list the
    files again, and the result must be the same.
    """
    for number, stream in enumerate(streams):
        if stream.get('files') and digest is not None:
            known = None if before is None else before.known_files(number)
            stream['files'].update(relist=False, expect=digest, known=known)


def check_files(state: dict[str, Any], digest: Optional[str]) -> None:
    """Rejects a state made with another list of files."""
    files = state.get('files')
    if files is not None and files != digest:
        raise ConflictError(
            f'The StreamingDataset state dict was made with the list of files {files}, and this one is {digest}',
            'state-files',
            hint='go on with the files that the run began with, or begin anew',
        )
