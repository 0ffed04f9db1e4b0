"""What a dataset does for streams of raw files."""

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

#: Of how many batches a worker holds the files: torch has it read two ahead of the one that is looked at.
_OF_WORKER = 3


def gives_files(streams: Sequence[Stream]) -> bool:
    """Whether paths of files are given out, which have to stay where they are for a while."""
    return any(getattr(stream, 'yields', 'data') != 'data' for stream in streams)


def kept_batches(given: Optional[int]) -> int:
    """Of how many batches the files stay where they are."""
    if given is not None:
        return given
    return 1 if _torch.worker_info() is None else _OF_WORKER


def holding(kept: int) -> dict[str, Any]:
    """What the Rust reader is told of how long files stay."""
    # The training process looks at the last batches of a worker when that is gone.
    owner = None if _torch.worker_info() is None else training_process()
    return {'keep': kept, 'owner': owner}


def holding_options() -> dict[str, int]:
    """Options of a reader that holds files: each that must not be removed is an open one."""
    return {
        'pins': resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2,
        'owner': training_process(),
    }


def as_listed(
    streams: list[dict[str, Any]], digest: Optional[str], before: Optional[_core.Reader]
) -> None:
    """Has processes of one run read the same files, whatever came or went since the first one listed them.

    A forked child has the list of its parent, by the reader that it must not use otherwise; others make one of their
    own, which has to be the same.
    """
    for number, stream in enumerate(streams):
        if stream.get('files') and digest is not None:
            known = None if before is None else before.known_files(number)
            stream['files'].update(relist=False, expect=digest, known=known)


def check_files(state: dict[str, Any], digest: Optional[str]) -> None:
    """Refuses a state that was made with another list of files."""
    files = state.get('files')
    if files is not None and files != digest:
        raise ConflictError(
            f'The StreamingDataset state dict was made with the list of files {files}, and this one is {digest}',
            'state-files',
            hint='go on with the files that the run began with, or begin anew',
        )
