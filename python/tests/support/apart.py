"""Functions that run in a process of their own, within a time, and may leave nothing behind."""

from __future__ import annotations

import faulthandler
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
GRACE = 5.0
#: Named memory of `streaming`, which may be running beside.
_OF_OTHERS = re.compile(r'\d{6}_\w+')


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


def kill_session(session: int) -> None:
    """Ends all processes of a session."""
    for line in of_session(session):
        try:
            os.kill(int(line.split()[0]), signal.SIGKILL)
        except ProcessLookupError:
            continue


def threads() -> dict[int, str]:
    """The threads of this process and their names, those of native code included."""
    found = {}
    for folder in Path('/proc/self/task').iterdir():
        try:
            found[int(folder.name)] = (folder / 'comm').read_text().strip()
        except FileNotFoundError:
            continue
    return found


def _body(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    pipe: Connection,
    folder: str,
    environment: dict[str, str],
    seconds: float,
    log: Any,
) -> None:
    os.setsid()
    os.environ.update(environment, TMPDIR=folder)
    tempfile.tempdir = folder
    # A spawned worker imports the main module again, and that of pytest has nothing to offer.
    sys.modules['__main__'] = types.ModuleType('__main__')
    faulthandler.dump_traceback_later(seconds, file=log)
    try:
        result = function(*args)
        gc.collect()
        children = multiprocessing.active_children
        assert until(lambda: not children(), GRACE), f'processes are left: {children()}'
        others = [
            thread for thread in threading.enumerate() if thread is not threading.main_thread()
        ]
        assert until(lambda: not any(thread.is_alive() for thread in others), GRACE), others
        answer = True, result
    except BaseException:
        answer = False, traceback.format_exc()
    pipe.send(answer)
    pipe.close()


def apart(
    function: Callable[..., T],
    *args: Any,
    seconds: float = 60,
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
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile('w+') as log:
        process = context.Process(
            target=_body,
            args=(function, args, sender, folder, environment or {}, seconds, log),
        )
        process.start()
        sender.close()
        session = process.pid
        assert session is not None
        try:
            answered = receiver.poll(seconds + 1)
            if not answered:
                log.seek(0)
                raise AssertionError(f'not done after {seconds} s\n{log.read()}')
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
            assert until(lambda: not os.listdir(folder), GRACE), os.listdir(folder)
        finally:
            receiver.close()
            kill_session(session)
            process.join(GRACE)
    answer: T = result
    return answer
