"""What the processes of one rank tell each other: which epoch they are in, and where to resume.

The training process and the workers of its ``DataLoader`` share one small anonymous memory. It has no name, so nothing
is left behind when they are killed; a forked child inherits it, and a spawned one is handed its descriptor.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import tempfile
import weakref
from multiprocessing import context, reduction
from typing import Any, Optional

from shardmill.errors import UsageError

#: Loader processes of a rank that are told apart.
MOST_WORKERS = 1024
#: The longest state that is taken (reliability rule L12).
MOST_STATE = 64 << 10

_SLOTS = struct.Struct(f'<{MOST_WORKERS}Q')
_LENGTH = struct.Struct('<Q')
_STATE = _SLOTS.size + _LENGTH.size
_SIZE = _STATE + MOST_STATE


def _anonymous_file() -> int:
    """A descriptor of memory without a name."""
    if hasattr(os, 'memfd_create'):
        number = os.memfd_create('shardmill', os.MFD_CLOEXEC)
    else:
        number, path = tempfile.mkstemp(prefix='shardmill-')
        os.unlink(path)
    os.ftruncate(number, _SIZE)
    return number


class Board:
    """Epoch counters of the workers of one rank, and the state that was loaded last.

    Every worker has a counter of its own: the epochs that it has begun. The rank is in the epoch that the foremost worker
    has begun; a worker whose counter lags joins it there. So no worker waits for another, and workers may be added.
    """

    def __init__(self, descriptor: Optional[int] = None) -> None:
        self._descriptor = _anonymous_file() if descriptor is None else descriptor
        self._memory = mmap.mmap(self._descriptor, _SIZE)
        # Not in `__del__`: at the end of the interpreter `os` may be gone before the board.
        weakref.finalize(self, os.close, self._descriptor)

    def __reduce__(self) -> tuple[Any, ...]:
        # A process that is being spawned shares the memory; anything else that is pickled gets a copy.
        if context.get_spawning_popen() is not None:
            return _attach, (reduction.DupFd(self._descriptor),)
        return _copy, (self.next_epoch, self.state)

    def _slots(self) -> tuple[int, ...]:
        return _SLOTS.unpack_from(self._memory, 0)

    @property
    def next_epoch(self) -> int:
        """The epoch that begins next."""
        return max(self._slots())

    @next_epoch.setter
    def next_epoch(self, epoch: int) -> None:
        _SLOTS.pack_into(self._memory, 0, *[epoch] * MOST_WORKERS)

    def begin(self, worker: int) -> int:
        """Counts an epoch for a worker.

        Args:
            worker: Its number among those of the rank.

        Returns:
            The epoch: the one that the others are in already, or the next one.
        """
        if not 0 <= worker < MOST_WORKERS:
            raise UsageError(
                f'a rank has at most {MOST_WORKERS} workers, not one numbered {worker}',
                'config-workers',
            )
        slots = self._slots()
        begun = max(slots)
        epoch = begun - 1 if slots[worker] < begun else begun
        struct.pack_into('<Q', self._memory, 8 * worker, epoch + 1)
        return epoch

    @property
    def state(self) -> Optional[dict[str, Any]]:
        """The state that was loaded last."""
        (length,) = _LENGTH.unpack_from(self._memory, _SLOTS.size)
        if not length:
            return None
        state: dict[str, Any] = json.loads(self._memory[_STATE : _STATE + length])
        return state

    @state.setter
    def state(self, state: Optional[dict[str, Any]]) -> None:
        data = b'' if state is None else json.dumps(state, sort_keys=True).encode()
        if len(data) > MOST_STATE:
            raise UsageError(
                f'a state has {len(data)} bytes; at most {MOST_STATE} are allowed', 'limit-state'
            )
        # Without a length nobody reads a half-written state.
        _LENGTH.pack_into(self._memory, _SLOTS.size, 0)
        self._memory[_STATE : _STATE + len(data)] = data
        _LENGTH.pack_into(self._memory, _SLOTS.size, len(data))


def _attach(descriptor: Any) -> Board:
    return Board(descriptor.detach())


def _copy(next_epoch: int, state: Optional[dict[str, Any]]) -> Board:
    board = Board()
    board.next_epoch = next_epoch
    board.state = state
    return board
