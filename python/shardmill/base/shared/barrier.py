"""A barrier in shared memory."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from time import sleep

import numpy as np

from shardmill.base.constant import TICK
from shardmill.base.shared.array import SharedArray

__all__ = ['SharedBarrier']


class SharedBarrier:
    """A reusable barrier for separately started processes.

    Args:
        filelock_path: A file to lock, in an existing folder. It is created on first use and not removed.
        shm_name: The name of the shared memory.

    Attributes:
        num_enter: The number of waiting processes, int32.
        num_exit: The number of processes that have left since the barrier opened, int32; -1 before
            it first opens and after all have left.
        flag: Changes each time the barrier opens.
    """

    def __init__(self, filelock_path: str, shm_name: str) -> None:
        self.filelock_path = filelock_path
        # New memory holds zeros. They mean the initial state, so that a process that attaches later changes nothing.
        self._arr = SharedArray(3, np.int32, shm_name)

    @property
    def num_enter(self) -> int:
        value: int = self._arr[0]
        return value

    @num_enter.setter
    def num_enter(self, num_enter: int) -> None:
        self._arr[0] = num_enter

    @property
    def num_exit(self) -> int:
        value: int = self._arr[1] - 1
        return value

    @num_exit.setter
    def num_exit(self, num_exit: int) -> None:
        self._arr[1] = num_exit + 1

    @property
    def flag(self) -> bool:
        return not self._arr[2]

    @flag.setter
    def flag(self, flag: bool) -> None:
        self._arr[2] = not flag

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # Opened for each lock, so that threads and forked children also exclude each other.
        file = os.open(self.filelock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        finally:
            os.close(file)

    def __call__(self, num_procs: int) -> None:
        """Waits until `num_procs` processes wait.

        A process that enters remembers the flag and waits until the last process changes it. The
        flag cannot change again before all processes have entered again, so no change is missed.
        """
        with self._locked():
            before = self.flag
            self.num_enter += 1
            if self.num_enter == num_procs:
                self.num_enter = 0
                self.num_exit = 0
                self.flag = not before
        while self.flag == before:
            sleep(TICK)
        with self._locked():
            self.num_exit += 1
            if self.num_exit == num_procs:
                self.num_exit = -1
