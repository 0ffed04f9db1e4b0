"""The extension module: the functions of the Rust crates for the package.

It raises the errors of `shardmill.errors`.
"""

import os
import pathlib
from typing import Any, Callable, Optional, Union

__version__: str

# Reading.

class Block:
    """Numbers of one type in row-major order. ``numpy.asarray(block)`` is an array over the same memory."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...
    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the dimensions."""

    @property
    def nbytes(self) -> int:
        """The size in bytes."""

class KnownFiles:
    """The list of a tree of raw files, for another reader of the same tree."""

class Reader:
    """Streams that are read together, in the process that opened them."""

    def __new__(
        cls,
        streams: list[dict[str, Any]],
        options: dict[str, Any],
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

    def columns_of(self, encoding: str) -> list[str]:
        """Returns the names of the columns with an encoding, in any shard."""

    def is_native(self) -> bool:
        """Returns whether Rust decodes all columns, without Python callables."""

    def sample(self, sample: int) -> Any:
        """Returns one decoded sample."""

    def epoch(
        self,
        config: dict[str, Any],
        rank: int,
        worker: int,
        threads: int = 1,
        queue: int = 16,
        keep: int = 1,
        owner: Optional[int] = None,
    ) -> Batches:
        """Starts an epoch and returns the batches of a rank and worker. ``keep`` is the number of returned batches
        whose raw files stay pinned."""

    def order(self, config: dict[str, Any], rank: int, worker: int) -> Order:
        """Returns the sample order of a rank and worker in an epoch, without reading samples."""

    def order_identity(self, config: dict[str, Any]) -> str:
        """Returns the identity of the order that a configuration describes: JSON for the key `shardmill` of a state."""

    def check_order_identity(self, config: dict[str, Any], identity: str) -> None:
        """Raises an error if the identity is of another order than the configuration describes."""

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

class Batches:
    """The batches of a rank and worker in one epoch, in order."""

    def next_samples(self) -> Optional[list[Any]]:
        """Returns the next batch as a list of dicts; ``None`` at the end."""

    def next_numbered(self) -> Optional[tuple[list[int], list[Any]]]:
        """Returns the next batch as its sample numbers and a list of dicts; ``None`` at the end."""

    def next_columns(self) -> Optional[tuple[int, Any]]:
        """Returns the next batch as its number of samples and its columns; ``None`` at the end."""

    def resolved(self) -> dict[str, Optional[int]]:
        """Returns the effective settings of the epoch."""

    def stats(self) -> dict[str, Union[int, float]]:
        """Returns the statistics of reading so far, by name."""

    def close(self) -> None:
        """Stops the threads. Nothing can be read afterwards."""

class Order:
    """The sample numbers of a rank and worker in one epoch, batch by batch, without reading samples."""

    def next_numbers(self) -> Optional[list[int]]:
        """Returns the sample numbers of the next batch; ``None`` at the end."""

    def resolved(self) -> dict[str, Optional[int]]:
        """Returns the effective settings of the epoch."""

def tar_folder(text: str) -> Optional[str]:
    """Returns the folder of a tar file or of a pattern of tar files; ``None`` for other locations."""

def is_served(remote: Optional[str]) -> bool:
    """Returns whether the Rust reader can read a remote."""

# End of reading.

# Orders, hashes and compressions. Arrays are little-endian int64.

def partitions(
    algo: str,
    samples: int,
    canonical_nodes: int,
    nodes: int,
    ranks: int,
    workers: int,
    batch_size: int,
    drop: int,
    initial_nodes: Optional[int],
) -> tuple[bytearray, bool, bool]:
    """Returns positions by node, rank, worker, batch and position in the batch.

    Also returns whether there are too few samples for the canonical nodes, and for the ranks of a node.
    """

def shuffle(
    algo: str, sizes: bytes, canonical_nodes: int, seed: int, epoch: int, block: int
) -> bytearray:
    """Returns a big id by position: an index into the samples of all units in sequence."""

def sampling(
    sizes: bytes, choose: int, granularity: int, seed: int, epoch: int, use_epoch: bool
) -> bytearray:
    """Returns how many samples to draw from each shard."""

def resample(
    shards: bytes,
    streams: list[tuple[int, int, int]],
    granularity: int,
    seed: int,
    epoch: int,
    epoch_counts: bool,
    epoch_members: bool,
) -> tuple[bytearray, bytearray]:
    """Returns the sizes of units, and the sample ids of all units in sequence.

    A stream is its first shard, the exclusive end of its shards, and how many samples to choose.
    """

def work(
    *,
    batching: str,
    partition: str,
    nodes: int,
    ranks: int,
    workers: int,
    batch_size: int,
    canonical_nodes: int,
    initial_nodes: Optional[int],
    seed: int,
    epoch: int,
    epoch_seed: bool,
    sample_in_epoch: int,
    shuffle: Optional[tuple[str, int]],
    sources: list[tuple[bytes, bytes, float]],
) -> bytearray:
    """Returns an epoch: sample ids by node, rank, worker, batch and position.

    A source is the sizes of its units, the sample ids of all units in sequence, and its proportion.
    """

def replicate(nodes: int, ranks: int, replication: int) -> tuple[int, int]:
    """Returns the nodes and ranks per node if each group of consecutive ranks receives the same samples."""

def decode_field(field: str, data: bytes) -> tuple[str, Any]:
    """Decodes a field of a WebDataset sample to its kind and value."""

def hash_names() -> list[str]:
    """Returns the names of all hashes."""

def hash_hex(algo: str, data: bytes) -> str:
    """Returns the digest of the bytes as lower-case hexadecimal digits."""

def compression_names() -> list[str]:
    """Returns the names of all compressions, with and without levels."""

def compress(name: str, data: bytes) -> bytes:
    """Compresses the bytes to one frame, member, stream or block."""

def decompress(name: str, data: bytes) -> bytes:
    """Decompresses the bytes."""

def merge_indexes(
    parts: list[tuple[str, bytes, dict[str, bytes]]],
) -> tuple[str, list[tuple[str, str]]]:
    """Merges several indexes in order. Returns the text of the merged index, and its side files by name.

    Each part is the folder of a dataset relative to that of the result, its index, and its side files by name.
    """

# End of orders, hashes and compressions.

# Writing.

class SampleWriter:
    """Writes a dataset to a folder, with background threads that do not use Python.

    Args:
        folder: The folder.
        options: The format, its columns (name, encoding, encoder, and whether the encoder handles every value),
            `newline`, `separator`, `compression`, `hashes`, `size_limit` in bytes, `jobs`, and whether files
            are `durable`.
    """

    def __new__(cls, folder: str, options: dict[str, Any]) -> SampleWriter: ...
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

class PartWriter:
    """One attempt of a part. All work is done in the caller's thread.

    Args:
        dest: The folder or the URL of the dataset.
        staging: The result of `parts_begin`.
        part: The number of the part in its job.
        attempt: The name of the attempt, unique within the job.
        options: `columns` (names and encodings), `compression`, `hashes`, `size_limit`, `samples_per_shard`, `key`,
            `scratch`.
        settings: Store settings that are not in the environment.
    """

    def __new__(
        cls,
        dest: str,
        staging: str,
        part: int,
        attempt: str,
        options: dict[str, Any],
        settings: Optional[dict[str, str]] = None,
    ) -> PartWriter: ...
    def check(self, object: Any) -> None:
        """Checks that the columns of an Arrow table, batch or stream can be written. Writes nothing."""

    def write_arrow(self, object: Any) -> int:
        """Adds the rows of an Arrow table, batch or stream. Returns the number of rows."""

    def finish(self) -> str:
        """Writes the last shard and returns the manifest."""

    def abort(self) -> None:
        """Ends the attempt and removes what it has written. Does nothing after the attempt has ended."""

def parts_begin(
    dest: str,
    to: str,
    pattern: Optional[str],
    job: str,
    mode: str,
    settings: Optional[dict[str, str]] = None,
) -> str:
    """Inspects a destination and returns the settings for all tasks of a job, as text."""

def parts_commit(
    dest: str,
    staging: str,
    manifests: list[str],
    parts: Optional[int],
    hashes: bool,
    settings: Optional[dict[str, str]] = None,
) -> tuple[int, int, int, bool]:
    """Publishes the parts of a job.

    Returns shards, samples, samples of the whole dataset, and whether an earlier call had published it.
    """

def parts_abort(dest: str, staging: str, settings: Optional[dict[str, str]] = None) -> int:
    """Removes what a job has written and not committed. Returns the number of files and folders."""

def parts_gc(
    dest: str,
    delete: bool,
    older_than: Optional[float],
    pattern: Optional[str] = None,
    settings: Optional[dict[str, str]] = None,
) -> list[tuple[str, int, str]]:
    """Finds files that no dataset needs, and removes them if `delete` is set. Returns names, bytes and reasons."""

def is_encoding(encoding: str) -> bool:
    """Returns whether an MDS encoding is one of the format's, in its usual spelling."""

# End of writing.

# Stores. A location is a path, `file://PATH` or `s3://BUCKET/KEY`.

def upload(
    local_path: Union[str, os.PathLike[str]],
    url: str,
    settings: Optional[dict[str, str]] = None,
    progress: Optional[Callable[[int], Any]] = None,
) -> None:
    """Uploads a file, atomically replacing an existing one.

    Settings default to those of the environment. `progress` is called with the number of transferred bytes.
    """

def download(
    url: str,
    local_path: Union[str, os.PathLike[str]],
    settings: Optional[dict[str, str]] = None,
    timeout: Optional[float] = None,
    progress: Optional[Callable[[int], Any]] = None,
) -> int:
    """Downloads a file, which appears only when it is complete, and returns its size in bytes.

    The timeout is the maximum number of seconds without new data.
    """

def exists(url: str, settings: Optional[dict[str, str]] = None) -> bool:
    """Returns whether a file or an object exists."""

def list_objects(url: str, settings: Optional[dict[str, str]] = None) -> list[tuple[str, int]]:
    """Lists the files or objects whose paths or keys begin with the location, with their size in bytes."""

def check_bucket(url: str, settings: Optional[dict[str, str]] = None) -> None:
    """Checks that a bucket exists and may be listed."""

# End of stores.
