"""Writing of shards from Python objects, Arrow batches and encoded samples."""

from collections.abc import Sequence
from typing import Any, Optional

class WriterOptions:
    """The format of a dataset and its columns, and how shards are written.

    Args:
        format: The name of the format.
        columns: Of each column the name, the encoding, an object with a method `encode`, and whether this object
            encodes every value.
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
        *,
        format: str,
        columns: list[tuple[str, str, Any, bool]],
        newline: str = '\n',
        separator: Optional[str] = None,
        compression: Optional[str] = None,
        hashes: Sequence[str] = (),
        size_limit: Optional[int] = None,
        jobs: Optional[int] = None,
        durable: bool = True,
    ) -> WriterOptions: ...

class SampleWriter:
    """Writes a dataset to a folder, with background threads that do not use Python."""

    def __new__(cls, folder: str, options: WriterOptions) -> SampleWriter: ...
    def write(self, sample: Any) -> None:
        """Encodes a sample and adds it. A sample that cannot be encoded is not added."""

    def push(self, sample: bytes) -> None:
        """Adds an encoded sample."""

    def encode(self, sample: Any) -> bytes:
        """Encodes a sample without adding it."""

    def write_arrow(self, object: Any) -> int:
        """Adds the rows of an Arrow table, batch or stream. Returns the number of rows."""

    def finish(self) -> None:
        """Finishes all shards and publishes the index."""

    def abort(self) -> None:
        """Stops without writing an index."""

    def index(self) -> str:
        """Returns the index of the finished shards as text. Waits until they are published."""

    def open_samples(self) -> list[bytes]:
        """Returns the encoded samples of the current shard."""

    def open_bytes(self) -> int:
        """Returns the size of the current shard in bytes, as counted for the size limit."""

    @property
    def samples(self) -> int:
        """The number of added samples."""

    def config(self) -> str:
        """Returns the configuration as stored in every shard."""

    def published(self) -> PublishedFiles:
        """Returns the names of shard files as they are published."""

class PublishedFiles:
    """The names of files as they are published, for one thread."""

    def next(self) -> Optional[list[str]]:
        """Waits for the next names; ``None`` at the end."""

def is_encoding(encoding: str) -> bool:
    """Returns whether an MDS encoding is one of the format's, in its usual spelling."""
