"""Shares the current epoch and the state to resume from among the processes of a rank.

A training process and the workers of its ``DataLoader`` share anonymous memory. It has no name, so nothing remains
after they are killed. A forked child inherits it, and a spawned child receives its descriptor. If a launcher forks or
spawns several training processes with the dataset, each uses its own part of the memory, together with its workers.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import multiprocessing
import os
import resource
import struct
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import context, reduction
from typing import Any, Optional

from shardmill import _torch
from shardmill.errors import ResourceError, UsageError

#: Maximum loader processes per rank.
MOST_WORKERS = 1024
#: Maximum size of a state in bytes.
MOST_STATE = 64 << 10
#: Maximum training processes that share one memory.
MOST_PARTS = 256
#: How many starts of workers are remembered: the maximum of concurrent iterations over one dataset.
MOST_STARTS = 64

_PIDS = struct.Struct(f'<{MOST_PARTS}Q')
#: The next epoch, the number of worker starts, the lengths of the state and of the mixture.
_HEAD = struct.Struct('<4Q')
#: Where the lengths are in it.
_STATE_LENGTH, _MIXTURE_LENGTH = 16, 24
#: Seed, count, process number, epoch, a bit for each worker that has begun.
_START = struct.Struct(f'<4Q{MOST_WORKERS // 8}s')
_STATE = _HEAD.size + MOST_STARTS * _START.size
_MIXTURE = _STATE + MOST_STATE
#: A mixture may be stored together with the one before its last change.
_PART = _MIXTURE + 3 * MOST_STATE


def _anonymous_file() -> int:
    """Returns a descriptor of anonymous memory."""
    if hasattr(os, 'memfd_create'):
        number = os.memfd_create('shardmill', os.MFD_CLOEXEC)
    else:
        number, path = tempfile.mkstemp(prefix='shardmill-')
        os.unlink(path)
    try:
        # Pages use memory only once they are written.
        os.ftruncate(number, _PIDS.size + _parts() * _PART)
    except BaseException:
        os.close(number)
        raise
    return number


def _parts() -> int:
    """Returns how many training processes the memory has space for; fewer if the file size is limited."""
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
    """Returns the id of the training process: this process, or the one that started this worker."""
    if _torch.worker_info() is None:
        return os.getpid()
    parent = multiprocessing.parent_process()
    return os.getppid() if parent is None or parent.pid is None else parent.pid


def end_if_orphaned() -> None:
    """Ends a worker whose training process has ended while it was starting.

    A worker of torch ends when its parent changes, but it takes the parent that it has once it is ready. If the
    training process was killed before, the worker would stay forever.
    """
    parent = multiprocessing.parent_process()
    if _torch.worker_info() is None or parent is None or parent.pid is None:
        return
    # With a fork server, another process is the parent. `is_alive` looks at a pipe that workers started later hold too,
    # so the id is checked as well.
    if os.getppid() != parent.pid and not (parent.is_alive() and _is_alive(parent.pid)):
        sys.exit(1)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _birth() -> int:
    """Returns the number of this process among its parent's children, from 1; 0 if unknown."""
    identity: tuple[int, ...] = getattr(multiprocessing.current_process(), '_identity', ())
    return identity[-1] if identity else 0


class SharedState:
    """The epoch of a rank, and the last loaded state.

    All workers that a ``DataLoader`` starts for one iteration must be in the same epoch, whichever begins first and
    however late the others begin. They recognize each other by the seed they receive from torch. The first worker
    takes the next epoch and the others join it; no worker waits for another. If a program sets its own seed, several
    iterations share it. Their workers then differ by the order in which they were started.
    """

    def __init__(self, descriptor: Optional[int] = None) -> None:
        self._descriptor = _anonymous_file() if descriptor is None else descriptor
        self._memory = mmap.mmap(self._descriptor, os.fstat(self._descriptor).st_size)
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._begun = 0
        # Not in `__del__`: `os` may already be unloaded when the interpreter exits.
        weakref.finalize(self, os.close, self._descriptor)
        if descriptor is None:
            with self._part():
                pass

    def __reduce__(self) -> tuple[Any, ...]:
        # A process being spawned shares the memory; other pickles contain a copy.
        if context.get_spawning_popen() is not None:
            return _attach, (reduction.DupFd(self._descriptor),)
        return _copy, (self.next_epoch, self.state, self.mixture)

    @contextmanager
    def _part(self) -> Iterator[int]:
        """Locks the memory for all processes and returns the offset of this rank's part."""
        if self._process != os.getpid():
            # After a fork: a thread of the parent may have held the lock.
            self._process = os.getpid()
            self._lock = threading.Lock()
            self._begun = 0
        with self._lock:
            # The kernel releases this lock if the process is killed.
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
        # The first part belongs to the process that opened the dataset; other parts start as a copy of it.
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
        epoch, _, *lengths = _HEAD.unpack_from(self._memory, self._at(0))
        _HEAD.pack_into(self._memory, part, epoch, 0, *lengths)
        for at, length in zip((_STATE, _MIXTURE), lengths):
            first = self._at(0) + at
            self._memory[part + at : part + at + length] = self._memory[first : first + length]
        return part

    @staticmethod
    def _at(place: int) -> int:
        return _PIDS.size + place * _PART

    @property
    def next_epoch(self) -> int:
        """The number of the next epoch."""
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
            worker: The number of this worker within its rank.
            at_least: An epoch that the run has reached.
            exact: Whether to begin exactly this epoch, even if the run was in a later one.

        Returns:
            The epoch that other workers of the same iteration are in, or else the next epoch.
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
            # Persistent workers begin several epochs with the same seed: count them.
            start = (info.seed - info.id) % (1 << 64), self._begun
            # The process number of the first worker, if no other process was started between the workers.
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
        _, made, *lengths = _HEAD.unpack_from(self._memory, part)
        bit = 1 << worker
        birth, workers = born
        for number in reversed(range(max(made - MOST_STARTS, 0), made)):
            at = part + _HEAD.size + number % MOST_STARTS * _START.size
            seed, count, first, epoch, begun = _START.unpack_from(self._memory, at)
            # Workers of another iteration with the same seed all started before or after these. If their numbers are
            # closer, other processes were started between them.
            if (seed, count) != start or abs(first - birth) >= workers:
                continue
            bits = int.from_bytes(begun, 'little')
            if bits & bit:
                # This worker already joined that epoch: without process numbers, it belongs to another iteration.
                break
            _START.pack_into(self._memory, at, *start, first, epoch, self._bits(bits | bit))
            joined: int = epoch
            return joined
        epoch = self._advance(part, at_least)
        at = part + _HEAD.size + made % MOST_STARTS * _START.size
        _START.pack_into(self._memory, at, *start, birth, epoch, self._bits(bit))
        _HEAD.pack_into(self._memory, part, epoch + 1, made + 1, *lengths)
        return epoch

    @staticmethod
    def _bits(bits: int) -> bytes:
        return bits.to_bytes(MOST_WORKERS // 8, 'little')

    @property
    def state(self) -> Optional[dict[str, Any]]:
        """The last loaded state."""
        return self._read(_STATE_LENGTH, _STATE)

    @state.setter
    def state(self, state: Optional[dict[str, Any]]) -> None:
        self._write(_STATE_LENGTH, _STATE, MOST_STATE, state)

    @property
    def mixture(self) -> Optional[dict[str, Any]]:
        """The mixture that was loaded or changed last."""
        return self._read(_MIXTURE_LENGTH, _MIXTURE)

    @mixture.setter
    def mixture(self, mixture: Optional[dict[str, Any]]) -> None:
        self._write(_MIXTURE_LENGTH, _MIXTURE, 3 * MOST_STATE, mixture)

    def _read(self, length_at: int, at: int) -> Optional[dict[str, Any]]:
        with self._part() as part:
            length: int = struct.unpack_from('<Q', self._memory, part + length_at)[0]
            data = self._memory[part + at : part + at + length]
        if not data:
            return None
        value: dict[str, Any] = json.loads(data)
        return value

    def _write(self, length_at: int, at: int, most: int, value: Optional[dict[str, Any]]) -> None:
        data = b'' if value is None else json.dumps(value, sort_keys=True).encode()
        if len(data) > most:
            raise UsageError(
                f'The StreamingDataset state dict has {len(data)} bytes of JSON; at most {most} are allowed',
                'limit-state',
            )
        with self._part() as part:
            # A zero length hides a partly written value if this process is killed here.
            struct.pack_into('<Q', self._memory, part + length_at, 0)
            self._memory[part + at : part + at + len(data)] = data
            struct.pack_into('<Q', self._memory, part + length_at, len(data))


def _attach(descriptor: Any) -> SharedState:
    return SharedState(descriptor.detach())


def _copy(
    next_epoch: int,
    state: Optional[dict[str, Any]],
    mixture: Optional[dict[str, Any]] = None,
) -> SharedState:
    shared = SharedState()
    shared.next_epoch = next_epoch
    shared.state = state
    shared.mixture = mixture
    return shared
