"""Names of shared memory that are unique to each run on a machine.

Each run has a number, which prefixes all its names. A block of each run lists its local folders, so
that two runs do not download to the same folder.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from itertools import count
from time import sleep
from typing import TYPE_CHECKING, Optional

from shardmill.base import constant, distributed
from shardmill.base.shared.memory import SharedMemory
from shardmill.errors import UsageError

if TYPE_CHECKING:
    from shardmill.base.world import World

__all__ = ['get_shm_prefix']


def _get_path(prefix_int: int, name: str) -> str:
    """Returns the name of a block: the prefix in six digits, and its purpose."""
    return f'{prefix_int:06}_{name}'


def _pack_locals(dirnames: list[str], prefix_int: int) -> bytes:
    """Serializes the folders and the prefix.

    The format is the total length (int32), and UTF-8 separated by NUL.
    """
    text = '\0'.join([*dirnames, str(prefix_int)]).encode()
    return (4 + len(text)).to_bytes(4, 'little') + text


def _unpack_locals(data: bytes) -> tuple[list[str], int]:
    """Parses the folders and the prefix; an empty list and 0 for an unfilled block."""
    length = int.from_bytes(data[:4], 'little')
    *dirnames, prefix = data[4:length].decode().split('\0')
    return dirnames, int(prefix or 0)


def _check_self(streams_local: list[str]) -> None:
    """Rejects duplicate folders."""
    twice = [dirname for dirname, times in Counter(streams_local).items() if times > 1]
    if twice:
        # COMPAT: programs match the beginning and the end of this message.
        raise UsageError(
            f'Reused local directory: {twice} of one run. Provide a different one.',
            'config-streams',
        )


def _is_locked(prefix_int: int) -> bool:
    """Returns whether the lock files of a run exist."""
    folder = tempfile.gettempdir()
    locks = (constant.BARRIER_FILELOCK, constant.CACHE_FILELOCK)
    return any(os.path.exists(os.path.join(folder, _get_path(prefix_int, lock))) for lock in locks)


def _check_and_find(
    streams_local: list[str], streams_remote: list[Optional[str]], shm_name: str
) -> int:
    """Returns the first prefix that no run uses for a block of this name."""
    downloaded = {
        local for local, remote in zip(streams_local, streams_remote) if remote is not None
    }
    for prefix_int in count():
        try:
            if _is_locked(prefix_int):
                continue
            memory = SharedMemory(_get_path(prefix_int, shm_name), False, auto_cleanup=False)
        except PermissionError:
            # The block belongs to another user.
            continue
        except FileNotFoundError:
            return prefix_int
        try:
            theirs = _unpack_locals(bytes(memory.buf))[0] if shm_name == constant.LOCALS else []
        finally:
            memory.cleanup()
        if downloaded.intersection(theirs):
            raise UsageError(
                f'Reused local directory: {streams_local} vs {theirs} of another run. '
                f'Provide a different one. If there is no other run, call '
                f'clean_stale_shared_memory() of shardmill.base.util once before.',
                'config-streams',
            )
    raise AssertionError('counting does not end')


def _check_and_find_retrying(
    streams_local: list[str], streams_remote: list[Optional[str]], shm_name: str, retry: int
) -> int:
    """Calls `_check_and_find` several times: a run that exits leaves its blocks for a moment."""
    if retry < 0:
        raise UsageError(f'retry is {retry}, which is negative', 'config-value')
    for _ in range(retry):
        try:
            return _check_and_find(streams_local, streams_remote, shm_name)
        except ValueError:
            sleep(constant.TICK)
    return _check_and_find(streams_local, streams_remote, shm_name)


def get_shm_prefix(
    streams_local: list[str],
    streams_remote: list[Optional[str]],
    world: World,
    retry: int = 100,
) -> tuple[int, SharedMemory]:
    """Returns the prefix of this run, and the block that holds it. All ranks of a node must call it.

    Args:
        streams_local: The local folder of each stream.
        streams_remote: The remote location of each stream; None for a local stream, whose folder may be shared.
        world: This worker; the first of its node creates the block.
        retry: How often to check again if a folder is in use.

    Raises:
        ValueError: A folder is used twice, or by another run.
        RuntimeError: The first rank of the node has other folders.
    """
    _check_self(streams_local)
    prefix_int = max(
        _check_and_find_retrying(streams_local, streams_remote, shm_name, retry)
        for shm_name in constant.SHM_TO_CLEAN
    )
    name = _get_path(prefix_int, constant.LOCALS)
    distributed.barrier()
    memory = None
    if world.is_local_leader:
        data = _pack_locals(streams_local, prefix_int)
        memory = SharedMemory(name, True, len(data))
        memory.buf[: len(data)] = data
    distributed.barrier()
    if memory is None:
        try:
            memory = SharedMemory(name, False)
        except FileNotFoundError:
            raise RuntimeError(
                f'the first rank of the node has not registered the prefix {prefix_int}: '
                f'its local folders may be others'
            ) from None
        theirs = _unpack_locals(bytes(memory.buf))
        if theirs != (streams_local, prefix_int):
            raise RuntimeError(
                f'the first rank of the node registered {theirs}, '
                f'this one has {(streams_local, prefix_int)}'
            )
    return prefix_int, memory
