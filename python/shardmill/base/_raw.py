"""Support for streams of raw files in datasets."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING, Any, Optional

from shardmill import _torch
from shardmill.base._shared_state import training_process
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


def holding(given: Optional[int]) -> tuple[int, Optional[int]]:
    """Returns for how many batches files stay pinned, and the process that may use the last ones for a while."""
    # The training process uses the last batches of a worker after the worker has exited.
    return kept_batches(given), None if _torch.worker_info() is None else training_process()


def holding_options() -> dict[str, int]:
    """Returns the options of a reader that pins files. Each may be an open file on systems without range locks."""
    return {
        'pins': resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2,
        'owner': training_process(),
    }


def as_listed(number: int, digest: Optional[str], before: Optional[_core.Reader]) -> dict[str, Any]:
    """Returns how a stream lists its raw files, so that all processes of a run read the same ones.

    Files may have been added or removed since the first listing. A forked child takes the list from its parent's
    reader, which it must not use otherwise. Other processes list the files again, and the result must be the same.
    """
    if digest is None:
        return {}
    known = None if before is None else before.known_files(number)
    return {'relist': False, 'expect': digest, 'known': known}


def versions_of(streams: Sequence[Stream]) -> dict[str, Any]:
    """Returns the versions of the Delta tables among some streams, for a state."""
    versions = [getattr(stream, 'version', None) for stream in streams]
    return {'versions': versions} if any(version is not None for version in versions) else {}


def check_files(state: dict[str, Any], digest: Optional[str]) -> None:
    """Rejects a state made with another list of files.

    A dataset without a list is accepted, because a table can have been converted since. The identity of the order
    covers the sizes of its shards.
    """
    files = state.get('files')
    if files is not None and digest is not None and files != digest:
        hint = 'resume with the files that the run began with, or start a new run'
        if 'versions' in state:
            hint = f'open the Delta tables at the versions {state["versions"]} of the state'
        raise ConflictError(
            f'The StreamingDataset state dict was made with the list of files {files}, and this one is {digest}',
            'state-files',
            hint=hint,
        )
