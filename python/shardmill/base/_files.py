"""Files that appear only when they are complete."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def whole(path: str) -> Iterator[str]:
    """Yields a temporary name for a file, and renames the file to `path` when it is complete."""
    unfinished = f'{path}.{uuid.uuid4().hex}.tmp'
    try:
        yield unfinished
        os.replace(unfinished, path)
    finally:
        if os.path.exists(unfinished):
            os.remove(unfinished)
