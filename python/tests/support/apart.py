"""Functions that run in a process of their own, within a time, and may leave nothing behind."""

from __future__ import annotations

import faulthandler
import functools
import gc
import multiprocessing
import os
import re
import signal
import sys
import tempfile
import threading
import time
import traceback
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, TypeVar

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

T = TypeVar('T')

#: Seconds that whatever a process leaves has to disappear.
GRACE = 30.0
#: Named memory of others: `streaming`, the semaphores of Python, the tensors of torch (whose name
#: stays where a worker is killed between making it and removing the name).
_OF_OTHERS = re.compile(r'(gw\d+_)?\d{6}_\w+|sem\.mp-\w+|torch_\d+_\d+_\d+|pytest-of-\w+')


def until(condition: Callable[[], object], seconds: float) -> bool:
    """Waits for a condition; whether it came true in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def shared_memory() -> set[str]:
    """Names in `/dev/shm`."""
    return {name for name in os.listdir('/dev/shm') if not _OF_OTHERS.fullmatch(name)}


def of_session(session: int) -> list[str]:
    """The processes of a session that are not dead, each with its command line."""
    found = []
    for folder in Path('/proc').iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / 'stat').read_text().rpartition(')')[2].split()
            command = (folder / 'cmdline').read_bytes().replace(b'\0', b' ').decode()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == session and fields[0] != 'Z':
            found.append(f'{folder.name} {command}')
    return found


def kill_session(session: int, number: int = signal.SIGKILL) -> None:
    """Sends all processes of a session a signal."""
    for line in of_session(session):
        try:
            os.kill(int(line.split()[0]), number)
        except ProcessLookupError:
            continue


def _is_longer(log: Any, length: int) -> bool:
    return os.fstat(log.fileno()).st_size > length


def _stacks(session: int, log: Any) -> str:
    """What the processes of a session are doing, as far as they tell."""
    lines = of_session(session)
    for line in lines:
        log.write(f'\n{line}:\n')
        log.flush()
        length = log.tell()
        try:
            os.kill(int(line.split()[0]), signal.SIGUSR2)
        except ProcessLookupError:
            continue
        until(functools.partial(_is_longer, log, length), 1)
    # A stack is written in many parts.
    time.sleep(0.5)
    log.seek(0)
    text: str = log.read()
    return text


def _ours(folder: str) -> list[str]:
    """What is in a temporary directory, but for what torch leaves there when it is interrupted.

    These are the folders of the sockets through which workers hand over tensors, and the empty
    files with which it finds out whether it may open more files.
    """
    return [
        path.name
        for path in Path(folder).iterdir()
        if not (path.name.startswith('pymp-') and path.is_dir())
        and not (re.fullmatch(r'tmp\w{8}', path.name) and not path.stat().st_size)
    ]


def threads() -> dict[int, str]:
    """The threads of this process and their names, those of native code included."""
    found = {}
    # Twice: where one ends while the kernel lists them, another one may be missed.
    for _ in range(2):
        for folder in Path('/proc/self/task').iterdir():
            try:
                found[int(folder.name)] = (folder / 'comm').read_text().strip()
            # One that ended meanwhile has no folder any more, or a file that cannot be read.
            except (FileNotFoundError, ProcessLookupError):
                continue
    return found


def _body(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    pipe: Connection,
    folder: str,
    environment: dict[str, str],
    log: Any,
) -> None:
    os.setsid()
    os.environ.update(environment, TMPDIR=folder)
    tempfile.tempdir = folder
    # A spawned worker imports the main module again, and that of pytest has nothing to offer.
    sys.modules['__main__'] = types.ModuleType('__main__')
    # Forked loader processes inherit it.
    faulthandler.register(signal.SIGUSR2, file=log)
    try:
        result = function(*args)
        gc.collect()
        children = multiprocessing.active_children
        assert until(lambda: not children(), GRACE), f'processes are left: {children()}'
        # A queue of torch, of whose ends one was in a worker that was killed, may keep its daemon.
        own = (threading.main_thread().name, 'QueueFeederThread')
        others = [thread for thread in threading.enumerate() if thread.name not in own]
        assert until(lambda: not any(thread.is_alive() for thread in others), GRACE), others
        answer = True, result
    except BaseException:
        answer = False, traceback.format_exc()
    pipe.send(answer)
    pipe.close()


def apart(
    function: Callable[..., T],
    *args: Any,
    seconds: float = 300,
    environment: dict[str, str] | None = None,
) -> T:
    """Calls a function in a forked process, which other tests have not been in.

    Args:
        function: It has no access to this process but by what it returns.
        args: Its arguments.
        seconds: How long it may take.
        environment: What is added to the environment.

    Returns:
        What it returns.

    Raises:
        AssertionError: It raises something, does not end in time, or leaves processes, threads,
            named memory or files in the temporary directory behind.
    """
    before = shared_memory()
    context = multiprocessing.get_context('fork')
    receiver, sender = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile('a+') as log:
        process = context.Process(
            target=_body,
            args=(function, args, sender, folder, environment or {}, log),
        )
        process.start()
        sender.close()
        session = process.pid
        assert session is not None
        try:
            if not receiver.poll(seconds):
                raise AssertionError(f'not done after {seconds} s\n{_stacks(session, log)}')
            try:
                is_good, result = receiver.recv()
            except EOFError:
                process.join(GRACE)
                raise AssertionError(f'the process ended with {process.exitcode}') from None
            assert is_good, result
            process.join(GRACE)
            assert process.exitcode == 0, f'the process ended with {process.exitcode}'
            assert until(lambda: not of_session(session), GRACE), of_session(session)
            gone = until(lambda: not shared_memory() - before, GRACE)
            assert gone, f'new in /dev/shm: {sorted(shared_memory() - before)}'
            assert until(lambda: not _ours(folder), GRACE), _ours(folder)
        finally:
            receiver.close()
            kill_session(session)
            process.join(GRACE)
    answer: T = result
    return answer
