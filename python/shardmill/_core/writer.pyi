"""Writing of shards from Python objects, Arrow batches and encoded samples."""

from collections.abc import Sequence
from typing import Any, Optional

class SampleWriter:
    """Writes a dataset to a folder, with background threads that do not use Python.

    Args:
        folder: The folder.
        format: The name of the format.
        columns: Of each column the name, the encoding, and an object with a method `encode`.
        newline: The ending of lines.
        separator: The text between values in lines.
        compression: A compression, optionally with a level.
        hashes: The names of the hashes of all files.
        size_limit: Maximum raw bytes per shard.
        jobs: Threads that finish shards; ``None`` for one per core.
        durable: Whether files are synchronized with the disk.
    """

    def __new__(
        cls,
        folder: str,
        *,
        format: str,
        columns: list[tuple[str, str, Any]],
        newline: str = '\n',
        separator: Optional[str] = None,
        compression: Optional[str] = None,
        hashes: Sequence[str] = (),
        size_limit: Optional[int] = None,
        jobs: Optional[int] = None,
        durable: bool = True,
    ) -> SampleWriter: ...
    def write(self, sample: Any) -> None: ...
    def push(self, sample: bytes) -> None: ...
    def write_arrow(self, object: Any) -> int: ...
    def finish(self) -> None: ...
    def abort(self) -> None: ...
    def index(self) -> str: ...
    def open_samples(self) -> list[bytes]: ...
    def open_bytes(self) -> int: ...
    def config(self) -> str: ...
    def published(self) -> PublishedFiles: ...

class PublishedFiles:
    """The names of files as they are published, for one thread."""

    def next(self) -> Optional[list[str]]: ...

def is_encoding(encoding: str) -> bool: ...
