"""What the processes of a rank tell each other: which epoch they are in, and where to resume.

A training process and the workers of its ``DataLoader`` share an anonymous memory. It has no name, so nothing is left
behind when they are killed; a forked child inherits it, and a spawned one is handed its descriptor. Where a launcher
forks or spawns several training processes with the dataset, each has a part of the memory for itself and its workers.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import multiprocessing
import os
import resource
import struct
import tempfile
import threading
import weakref
from contextlib import contextmanager
from multiprocessing import context, reduction
from typing import TYPE_CHECKING, Any, Optional

from shardmill import _torch
from shardmill.errors import ResourceError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Loader processes of a rank that are told apart.
MOST_WORKERS = 1024
#: The longest state that is taken (reliability rule L12).
MOST_STATE = 64 << 10
#: Training processes that share one memory.
MOST_PARTS = 256
#: Starts of workers that are remembered: as many iterations over one dataset may be open at once.
MOST_STARTS = 64

_PIDS = struct.Struct(f'<{MOST_PARTS}Q')
#: The next epoch, how many starts of workers there were, the length of the state.
_HEAD = struct.Struct('<3Q')
#: Seed, count, birth, epoch, a bit for each worker that has begun.
_START = struct.Struct(f'<4Q{MOST_WORKERS // 8}s')
_STATE = _HEAD.size + MOST_STARTS * _START.size
_PART = _STATE + MOST_STATE


def _anonymous_file() -> int:
    """A descriptor of memory without a name."""
    if hasattr(os, 'memfd_create'):
        number = os.memfd_create('shardmill', os.MFD_CLOEXEC)
    else:
        number, path = tempfile.mkstemp(prefix='shardmill-')
        os.unlink(path)
    try:
        # Only what was written takes memory.
        os.ftruncate(number, _PIDS.size + _parts() * _PART)
    except BaseException:
        os.close(number)
        raise
    return number


def _parts() -> int:
    """How many training processes the memory has room for: fewer where files may not be so long."""
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit == resource.RLIM_INFINITY:
        return MOST_PARTS
    parts = min((limit - _PIDS.size) // _PART, MOST_PARTS)
    if parts < 1:
        raise ResourceError(
            f'files may have at most {limit} bytes here, and the memory that loader processes share '
            f'needs {_PIDS.size + _PART}',
            'disk-full',
            hint='raise `ulimit -f`',
        )
    return parts


def training_process() -> int:
    """The process that trains: this one, or the one that started this worker."""
    if _torch.worker_info() is None:
        return os.getpid()
    parent = multiprocessing.parent_process()
    return os.getppid() if parent is None or parent.pid is None else parent.pid


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _birth() -> int:
    """The number of this process among those that its parent started, from 1; 0 where nothing tells."""
    identity: tuple[int, ...] = getattr(multiprocessing.current_process(), '_identity', ())
    return identity[-1] if identity else 0


class Board:
    """The epoch of a rank, and the state that was loaded last.

    All workers that a ``DataLoader`` starts for one iteration have to be in the same epoch, whichever of them begins
    first, and however late the others come. torch gives them one seed, by which they recognise each other: the first
    one takes the next epoch, and the others join it. None waits for another. Where a program sets its own seed, several
    iterations have the same one; their workers are told apart by when they were started, one after the other.
    """

    def __init__(self, descriptor: Optional[int] = None) -> None:
        self._descriptor = _anonymous_file() if descriptor is None else descriptor
        self._memory = mmap.mmap(self._descriptor, os.fstat(self._descriptor).st_size)
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._begun = 0
        # Not in `__del__`: at the end of the interpreter `os` may be gone before the board.
        weakref.finalize(self, os.close, self._descriptor)
        if descriptor is None:
            with self._part():
                pass

    def __reduce__(self) -> tuple[Any, ...]:
        # A process that is being spawned shares the memory; anything else that is pickled gets a copy.
        if context.get_spawning_popen() is not None:
            return _attach, (reduction.DupFd(self._descriptor),)
        return _copy, (self.next_epoch, self.state)

    @contextmanager
    def _part(self) -> Iterator[int]:
        """Where the part of this rank begins; nobody else reads or writes any part meanwhile."""
        if self._process != os.getpid():
            # Forked: a thread of the parent may have held the lock.
            self._process = os.getpid()
            self._lock = threading.Lock()
            self._begun = 0
        with self._lock:
            # The kernel gives it back when this process is killed.
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX)
            try:
                yield self._find(training_process())
            finally:
                fcntl.lockf(self._descriptor, fcntl.LOCK_UN)

    def _find(self, pid: int) -> int:
        parts = (len(self._memory) - _PIDS.size) // _PART
        pids = _PIDS.unpack_from(self._memory, 0)[:parts]
        if pid in pids:
            return self._at(pids.index(pid))
        # The first part is that of the process that opened the dataset; others start where it is.
        free = (place for place, other in enumerate(pids) if not other)
        dead = (place for place, other in enumerate(pids) if place and not _is_alive(other))
        place = next(free, None)
        if place is None:
            place = next(dead, None)
        if place is None:
            raise ResourceError(
                f'one dataset object is used by more than {parts} training processes',
                'limit-processes',
                hint='open the dataset in each of them',
            )
        struct.pack_into('<Q', self._memory, 8 * place, pid)
        part = self._at(place)
        epoch, _, length = _HEAD.unpack_from(self._memory, self._at(0))
        _HEAD.pack_into(self._memory, part, epoch, 0, length)
        first = self._at(0) + _STATE
        self._memory[part + _STATE : part + _STATE + length] = self._memory[first : first + length]
        return part

    @staticmethod
    def _at(place: int) -> int:
        return _PIDS.size + place * _PART

    @property
    def next_epoch(self) -> int:
        """The epoch that begins next."""
        with self._part() as part:
            epoch: int = _HEAD.unpack_from(self._memory, part)[0]
            return epoch

    @next_epoch.setter
    def next_epoch(self, epoch: int) -> None:
        with self._part() as part:
            struct.pack_into('<Q', self._memory, part, epoch)

    def begin(self, worker: int, at_least: int = 0, exact: bool = False) -> int:
        """Begins an epoch.

        Args:
            worker: The number of this worker among those of the rank.
            at_least: An epoch that the run is known to have reached.
            exact: Whether it is this epoch that begins, even if the run was in a later one.

        Returns:
            The epoch: the one that other workers of the same iteration are in already, or the next one.
        """
        if not 0 <= worker < MOST_WORKERS:
            raise UsageError(
                f'a rank has at most {MOST_WORKERS} workers, not one numbered {worker}',
                'config-workers',
            )
        info = _torch.worker_info()
        with self._part() as part:
            self._begun += 1
            if exact:
                struct.pack_into('<Q', self._memory, part, at_least)
            if info is None:
                return self._advance(part, at_least)
            # Workers that are kept begin one epoch after the other with the same seed.
            start = (info.seed - info.id) % (1 << 64), self._begun
            # That of the first worker, where nothing else was started among them.
            birth = max(_birth() - info.id, 0)
            epoch = self._join(part, worker, start, (birth, info.num_workers), at_least)
            if exact:
                struct.pack_into('<Q', self._memory, part, epoch + 1)
            return epoch

    def _advance(self, part: int, at_least: int) -> int:
        epoch: int = max(struct.unpack_from('<Q', self._memory, part)[0], at_least)
        struct.pack_into('<Q', self._memory, part, epoch + 1)
        return epoch

    def _join(
        self, part: int, worker: int, start: tuple[int, int], born: tuple[int, int], at_least: int
    ) -> int:
        _, made, length = _HEAD.unpack_from(self._memory, part)
        bit = 1 << worker
        birth, workers = born
        for number in reversed(range(max(made - MOST_STARTS, 0), made)):
            at = part + _HEAD.size + number % MOST_STARTS * _START.size
            seed, count, first, epoch, begun = _START.unpack_from(self._memory, at)
            # Another iteration with the same seed has all of its workers before or behind these. One that is nearer had
            # processes of somebody else started among its own.
            if (seed, count) != start or abs(first - birth) >= workers:
                continue
            bits = int.from_bytes(begun, 'little')
            if bits & bit:
                # This worker has been there: where nothing tells births, it is that of another iteration.
                break
            _START.pack_into(self._memory, at, *start, first, epoch, self._bits(bits | bit))
            joined: int = epoch
            return joined
        epoch = self._advance(part, at_least)
        at = part + _HEAD.size + made % MOST_STARTS * _START.size
        _START.pack_into(self._memory, at, *start, birth, epoch, self._bits(bit))
        _HEAD.pack_into(self._memory, part, epoch + 1, made + 1, length)
        return epoch

    @staticmethod
    def _bits(bits: int) -> bytes:
        return bits.to_bytes(MOST_WORKERS // 8, 'little')

    @property
    def state(self) -> Optional[dict[str, Any]]:
        """The state that was loaded last."""
        with self._part() as part:
            length = _HEAD.unpack_from(self._memory, part)[2]
            data = self._memory[part + _STATE : part + _STATE + length]
        if not data:
            return None
        state: dict[str, Any] = json.loads(data)
        return state

    @state.setter
    def state(self, state: Optional[dict[str, Any]]) -> None:
        data = b'' if state is None else json.dumps(state, sort_keys=True).encode()
        if len(data) > MOST_STATE:
            raise UsageError(
                f'The StreamingDataset state dict has {len(data)} bytes of JSON; at most {MOST_STATE} are '
                f'allowed',
                'limit-state',
            )
        with self._part() as part:
            # Without a length nobody reads a half-written state, should this process be killed here.
            struct.pack_into('<Q', self._memory, part + 16, 0)
            self._memory[part + _STATE : part + _STATE + len(data)] = data
            struct.pack_into('<Q', self._memory, part + 16, len(data))


def _attach(descriptor: Any) -> Board:
    return Board(descriptor.detach())


def _copy(next_epoch: int, state: Optional[dict[str, Any]]) -> Board:
    board = Board()
    board.next_epoch = next_epoch
    board.state = state
    return board
