"""Programs in processes of their own, such as those of a launcher."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from support.apart import GRACE, kill_session, of_session, shared_memory, until


def launch(words: list[str], environment: dict[str, str], seconds: float) -> str:
    """Runs Python with these words.

    Returns:
        What it printed.

    Raises:
        AssertionError: It fails, is not done in time, or leaves processes or named memory behind.
    """
    before = shared_memory()
    child = subprocess.Popen(
        [sys.executable, *words],
        env={
            **os.environ,
            **environment,
            'PYTHONPATH': os.pathsep.join(path for path in sys.path if path),
            'OMP_NUM_THREADS': '1',
            'PYTHONFAULTHANDLER': '1',
            'GLOO_SOCKET_IFNAME': 'lo',
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        # They print where they are.
        kill_session(child.pid, signal.SIGABRT)
        until(lambda: not of_session(child.pid), GRACE)
        kill_session(child.pid, signal.SIGKILL)
        output, _ = child.communicate()
        raise AssertionError(f'not done after {seconds} s\n{output}') from None
    assert child.returncode == 0, output
    assert until(lambda: not of_session(child.pid), GRACE), of_session(child.pid)
    assert until(lambda: not shared_memory() - before, GRACE), shared_memory() - before
    return output
