"""Removes the files of attempts that were abandoned."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from shardmill import parts

Left = TypeVar('Left')


def names(folder: Path) -> set[str]:
    """The files below a folder. They may come and go meanwhile."""
    return {str(path.relative_to(folder)) for path in folder.rglob('*') if path.is_file()}


def swept(
    place: str, left: Callable[[], Left], wanted: Left, seconds: float = 60, **options: Any
) -> Left:
    """What is left at a place after sweeps. A job that failed answers before its other tasks have noticed, and those
    write on for a moment: sweeps go on until what is wanted is all there is, or for so many seconds."""
    deadline = time.monotonic() + seconds
    while True:
        parts.gc(place, older_than=None, delete=True, **options)
        found = left()
        if found == wanted or time.monotonic() > deadline:
            return found
        time.sleep(0.2)
