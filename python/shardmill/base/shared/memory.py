"""Shared memory that only its creator destroys."""

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

    The process that created the block destroys it when it exits. Processes that attached only close it. In contrast,
    the resource tracker of Python before 3.13 would destroy a block that other processes still use.

    Args:
        name: The name; None to generate one.
        create: Whether to create the block (True), attach to it (False), or create it unless it exists (None).
        size: The minimum size in bytes of a created block.
        auto_cleanup: Whether `cleanup` is called when this process exits.

    Attributes:
        shm: Python's own object.

    Raises:
        FileExistsError: The block should be created, but exists.
        FileNotFoundError: The block to attach to does not exist.
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
                # Its creator may not have set the size yet.
                sleep(TICK)
                self.shm = _attach(name)
                self._created = False
        if auto_cleanup:
            # Not called if the process is killed by a signal or exits with os._exit().
            atexit.register(self.cleanup)

    @property
    def buf(self) -> memoryview:
        """The writable memory.

        Raises:
            ValueError: The block is closed.
        """
        block = self.shm.buf
        if block is None:
            raise ValueError(f'the shared memory {self.shm.name} is closed')
        return block

    def cleanup(self) -> None:
        """Closes the block; its creator also destroys it. May be called again."""
        try:
            self.shm.close()
        except BufferError:
            # An array still uses the block. It is unmapped together with the array.
            pass
        # A forked child inherits this object, but did not create the block.
        if self._created and self._process == os.getpid():
            self._created = False
            try:
                self.shm.unlink()
            except FileNotFoundError:
                # clean_stale_shared_memory has already removed it.
                pass


def _attach(name: Optional[str]) -> builtin.SharedMemory:
    """Attaches to an existing block without registering it with the resource tracker.

    The tracker would destroy the block when this process exits.
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
