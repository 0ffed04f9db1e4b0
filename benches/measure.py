"""Run a program and say what it cost."""

from __future__ import annotations

import os
import pathlib
import shutil
import sys
import time


class Cost:
    """What one run took."""

    def __init__(self, wall: float, cpu: float, peak_bytes: int) -> None:
        self.wall, self.cpu, self.peak_bytes = wall, cpu, peak_bytes


def run(command: list[str], log: pathlib.Path) -> Cost:
    """Wall and CPU seconds (user + system) and peak memory of a process, start and end included.

    The peak of a child counts from the parent's size at the moment of the fork, so callers must stay small: none of
    the scripts here imports pyarrow in the process that measures.
    """
    with log.open("wb") as output:
        start = time.perf_counter()
        pid = os.posix_spawn(
            command[0],
            command,
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, output.fileno(), 1),
                (os.POSIX_SPAWN_DUP2, output.fileno(), 2),
            ],
        )
        _, status, usage = os.wait4(pid, 0)
        wall = time.perf_counter() - start
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"{' '.join(command)}\nended with {os.waitstatus_to_exitcode(status)}:\n{log.read_text()}")
    unit = 1 if sys.platform == "darwin" else 1024
    return Cost(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * unit)


def fresh(directory: pathlib.Path) -> pathlib.Path:
    """Removes the directory and waits until the disk is idle, so that no run pays for the writes of an earlier one."""
    shutil.rmtree(directory, ignore_errors=True)
    os.sync()
    return directory


def machine() -> dict:
    """What the figures were measured on."""
    model = platform_model()
    return {"cpus": os.cpu_count(), "cpu": model, "system": " ".join(os.uname()[i] for i in (0, 2, 4)), "python": sys.version.split()[0]}


def platform_model() -> str:
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return "unknown"
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
