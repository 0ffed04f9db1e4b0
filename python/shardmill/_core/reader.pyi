"""Readers of streams, their epochs and samples."""

import pathlib
from collections.abc import Sequence
from typing import Any, Callable, Optional, Union

from shardmill._core.batches import Batches, Order
from shardmill._core.options import EpochOptions, KnownFiles, ReaderOptions, StreamOptions
from shardmill._core.ranges import Ranges

class Reader:
    """Streams that are read together, in the process that opened them."""

    def __new__(
        cls,
        streams: Sequence[StreamOptions],
        options: ReaderOptions,
        decode_value: Callable[[str, bytes], Any],
        decode_line: Callable[[Any, bytes], Any],
        decode_field: Optional[Callable[[str, bytes], Any]] = None,
    ) -> Reader: ...
    @property
    def samples(self) -> int:
        """Total samples of all streams."""

    @property
    def shards(self) -> int:
        """Total shards of all streams."""

    def shard_sizes(self) -> list[bytes]:
        """Returns for each stream the samples of its shards, as little-endian 64-bit integers."""

    def deleted_samples(self, stream: int) -> list[tuple[int, int]]:
        """Returns the ranges of deleted samples of a stream, by their stored numbers."""

    def largest_shard(self) -> int:
        """Returns the size of the largest shard in bytes, raw and compressed together."""

    @property
    def raw_bytes(self) -> int:
        """The size of all shards before compression, in bytes."""

    def schemas(self) -> list[tuple[str, list[tuple[str, str, bool]]]]:
        """Returns each distinct set of columns: the format of its shards, and the name and encoding of each column, and
        whether every sample has it."""

    def ranges(
        self,
        decode_value: Callable[[str, bytes], Any],
        decode_line: Callable[[Any, bytes], Any],
        decode_field: Optional[Callable[[str, bytes], Any]] = None,
    ) -> Ranges:
        """Returns a reader of consecutive samples, with callables as for the constructor."""

    def columns_of(self, encoding: str) -> list[str]:
        """Returns the names of the columns with an encoding, in any shard."""

    def has_column(self, sample: int, name: str) -> bool:
        """Returns whether a sample has a column of this name; false for tar files."""

    def is_native(self) -> bool:
        """Returns whether Rust decodes all columns, without Python callables."""

    def sample(self, sample: int) -> Any:
        """Returns one decoded sample."""

    def epoch(
        self,
        options: EpochOptions,
        rank: int,
        worker: int,
        threads: int = 1,
        hold: tuple[int, Optional[int]] = (1, None),
    ) -> Batches:
        """Starts an epoch and returns the batches of a rank and worker.

        ``hold`` is the number of returned batches whose raw files stay pinned, and the process that may use them for a
        while after the batches are closed.
        """

    def order(self, options: EpochOptions, rank: int, worker: int) -> Order:
        """Returns the sample order of a rank and worker in an epoch, without reading samples."""

    def order_identity(self, options: EpochOptions) -> str:
        """Returns the identity of an order: JSON for the key `shardmill` of a state."""

    def check_order_identity(self, options: EpochOptions, identity: str) -> None:
        """Raises an error if the identity is of another order than the options describe."""

    def cache_stats(self) -> dict[str, Union[int, float]]:
        """Returns statistics of the cache and the stores, by name."""

    def find_file(self, path: str) -> int:
        """Returns the sample number of a raw file, by its path in the tree."""

    def find_key(self, key: str) -> Optional[int]:
        """Returns the number of the sample in a tar file with this key; ``None`` if there is none."""

    def key_of(self, sample: int) -> Optional[str]:
        """Returns the key of a sample in a tar file; ``None`` for other samples."""

    def file_path(self, sample: int) -> Optional[str]:
        """Returns the path of a raw file in its tree; ``None`` for other samples."""

    def known_files(self, stream: int) -> Optional[KnownFiles]:
        """Returns the list of raw files of a stream, in any process; ``None`` for streams of shards."""

    def files_digest(self) -> Optional[str]:
        """Returns a digest of the paths and lengths of all raw files; ``None`` without raw files."""

    def hold_file(self, sample: int) -> FileUse:
        """Pins a raw file, downloading it if necessary."""

    def preload(self, samples: list[int]) -> int:
        """Starts downloading raw files in the background, in this order, as far as space allows. Returns how many were
        not known to be cached."""

    def preloading(self) -> int:
        """Returns how many preloaded files are still pending."""

    def read_file(self, sample: int) -> bytes:
        """Reads a raw file from its source, bypassing the cache."""

    def check_file(self, sample: int) -> None:
        """Checks at the source that a raw file is unchanged since it was listed."""

    def least_limit(self, count: int) -> int:
        """Returns the minimum cache limit for pinning any ``count`` raw files at once, plus the file list; 0 without
        cached raw files."""

    def least_cache_limit(self) -> int:
        """Returns the minimum cache limit for opening the streams; 0 if any limit suffices."""

    def is_here(self, sample: int) -> bool:
        """Returns whether the shard of a sample is on this machine."""

class FileUse:
    """A pinned raw file, which stays in place until it is released."""

    @property
    def path(self) -> pathlib.Path:
        """The local path."""

    @property
    def is_held(self) -> bool:
        """Whether the file is pinned."""

    def release(self) -> None:
        """Allows the file to be evicted. A second call does nothing."""

def tar_folder(text: str) -> Optional[str]:
    """Returns the folder of a tar file or of a pattern of tar files; ``None`` for other locations."""

def is_served(remote: Optional[str]) -> bool:
    """Returns whether the Rust reader can read a remote."""
