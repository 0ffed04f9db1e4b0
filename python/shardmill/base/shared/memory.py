"""A block of shared memory that only its creator destroys."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from multiprocessing import resource_tracker
from multiprocessing import shared_memory as builtin
from time import sleep
from typing import Optional

from shardmill.base.constant import TICK

__all__ = ['SharedMemory']

_registering = threading.Lock()


class SharedMemory:
    """A block of shared memory.

    The process that created it destroys it when it ends. One that attached to it only lets go of
    it: unlike Python's own class before version 3.13, whose tracker would destroy a block that
    others still use.

    Args:
        name: Its name; None makes one up.
        create: Whether to create it (True), to attach to it (False), or to create it unless it is
            there (None).
        size: Its least size in bytes, where it is created.
        auto_cleanup: Whether `cleanup` is called when this process ends.

    Attributes:
        shm: Python's own object.

    Raises:
        FileExistsError: It was to be created, and is there.
        FileNotFoundError: It was to be attached to, and is not there.
    """

    def __init__(
        self,
        name: Optional[str] = None,
        create: Optional[bool] = None,
        size: int = 0,
        auto_cleanup: bool = True,
    ) -> None:
        self._process = os.getpid()
        self._created = create is not False
        if create is False:
            self.shm = _attach(name)
        else:
            try:
                self.shm = builtin.SharedMemory(name, True, size)
            except FileExistsError:
                if create:
                    raise
                # Its creator may still be giving it its size.
                sleep(TICK)
                self.shm = _attach(name)
                self._created = False
        if auto_cleanup:
            # Not called when the process is killed by a signal or ends by os._exit().
            atexit.register(self.cleanup)

    @property
    def buf(self) -> memoryview:
        """The block, writable.

        Raises:
            ValueError: It was cleaned up.
        """
        block = self.shm.buf
        if block is None:
            raise ValueError(f'the shared memory {self.shm.name} is closed')
        return block

    def cleanup(self) -> None:
        """Lets go of the block; the process that created it destroys it. May be called again."""
        try:
            self.shm.close()
        except BufferError:
            # An array still looks at the block. It is unmapped together with the array.
            pass
        # A forked child holds this object too, but did not create the block.
        if self._created and self._process == os.getpid():
            self._created = False
            try:
                self.shm.unlink()
            except FileNotFoundError:
                # clean_stale_shared_memory was here before.
                pass


def _attach(name: Optional[str]) -> builtin.SharedMemory:
    """A block that is there, which the tracker is not told of.

    It would destroy it when this process ends.
    """
    if sys.version_info >= (3, 13):
        return builtin.SharedMemory(name, False, track=False)
    with _registering:
        register = resource_tracker.register

        def pass_memory_over(name: str, rtype: str) -> None:
            if rtype != 'shared_memory':
                register(name, rtype)

        resource_tracker.register = pass_memory_over  # type: ignore[assignment]
        try:
            return builtin.SharedMemory(name, False)
        finally:
            resource_tracker.register = register
