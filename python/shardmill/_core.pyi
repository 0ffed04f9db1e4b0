"""The extension module: what the Rust crates do for the package.

Errors are those of `shardmill.errors`.
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
        """The lengths of its dimensions."""

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""

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
        """Samples of all streams."""

    @property
    def shards(self) -> int:
        """Shards of all streams."""

    def shard_sizes(self) -> list[bytes]:
        """For each stream the samples of its shards, as little-endian 64-bit integers."""

    def deleted_samples(self, stream: int) -> list[tuple[int, int]]:
        """The ranges of samples of a stream that are deleted, by the numbers under which they are stored."""

    def largest_shard(self) -> int:
        """The bytes of the largest shard, raw and compressed together."""

    def columns_of(self, encoding: str) -> list[str]:
        """The names of the columns that are encoded in a way, in any shard."""

    def is_native(self) -> bool:
        """Whether all columns are decoded here, and none by a callable of the Python side."""

    def sample(self, sample: int) -> Any:
        """One sample, decoded."""

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
        """The batches of a rank and worker in an epoch. ``keep``: of how many batches that were given out the raw files
        are kept from being removed."""

    def order(self, config: dict[str, Any], rank: int, worker: int) -> Order:
        """The samples of a rank and worker in an epoch, without reading any."""

    def order_identity(self, config: dict[str, Any]) -> str:
        """The identity of the order that the configuration describes: JSON for the key `shardmill` of a state."""

    def check_order_identity(self, config: dict[str, Any], identity: str) -> None:
        """Refuses the identity of another order than the configuration describes."""

    def cache_stats(self) -> dict[str, Union[int, float]]:
        """What the cache and the stores have done so far, by name."""

    def find_file(self, path: str) -> int:
        """The number of the sample that is a raw file, by its path in the tree."""

    def find_key(self, key: str) -> Optional[int]:
        """The number of the sample of a tar file that has this key; ``None`` where there is none."""

    def key_of(self, sample: int) -> Optional[str]:
        """The key of a sample of a tar file; ``None`` for other samples."""

    def file_path(self, sample: int) -> Optional[str]:
        """The path of a raw file in its tree; ``None`` for samples that are none."""

    def known_files(self, stream: int) -> Optional[KnownFiles]:
        """The list of the raw files of a stream, in any process; ``None`` for streams of shards."""

    def files_digest(self) -> Optional[str]:
        """A digest of the paths and lengths of all raw files; ``None`` where there are none."""

    def hold_file(self, sample: int) -> FileUse:
        """A raw file, brought here and held."""

    def preload(self, samples: list[int]) -> int:
        """Has raw files fetched in this order, in the background, as far as there is room. How many were not known to
        be here is the result."""

    def preloading(self) -> int:
        """How many of the files that were to be fetched ahead are still to come."""

    def read_file(self, sample: int) -> bytes:
        """The bytes of a raw file from where it comes from, past the cache."""

    def check_file(self, sample: int) -> None:
        """Asks the place that a raw file comes from whether it is still the one that was listed."""

    def least_limit(self, count: int) -> int:
        """The least limit that has room for so many raw files at a time whose paths are given out, the largest of them;
        0 where there are none that are kept."""

    def least_cache_limit(self) -> int:
        """The least cache limit that the streams can be opened with; 0 where any limit will do."""

    def is_here(self, sample: int) -> bool:
        """Whether the shard of a sample lies on this machine."""

class FileUse:
    """A raw file that stays where it is until it is released."""

    @property
    def path(self) -> pathlib.Path:
        """Where it lies."""

    @property
    def is_held(self) -> bool:
        """Whether it is held."""

    def release(self) -> None:
        """From now on it may be removed. A second call does nothing."""

class Batches:
    """The batches of a rank and worker in one epoch, in order."""

    def next_samples(self) -> Optional[list[Any]]:
        """The next batch as a list of dicts; ``None`` at the end."""

    def next_numbered(self) -> Optional[tuple[list[int], list[Any]]]:
        """The next batch as the numbers of its samples and a list of dicts; ``None`` at the end."""

    def next_columns(self) -> Optional[tuple[int, Any]]:
        """The next batch as its number of samples and its columns; ``None`` at the end."""

    def resolved(self) -> dict[str, Optional[int]]:
        """The epoch as it is carried out."""

    def stats(self) -> dict[str, Union[int, float]]:
        """What reading has cost so far, by name."""

    def close(self) -> None:
        """Stops its threads; nothing can be read afterwards."""

class Order:
    """The samples of a rank and worker in one epoch, batch by batch, without reading any."""

    def next_numbers(self) -> Optional[list[int]]:
        """The numbers of the samples of the next batch; ``None`` at the end."""

    def resolved(self) -> dict[str, Optional[int]]:
        """The epoch as it is carried out."""

def tar_folder(text: str) -> Optional[str]:
    """The folder of the tar files that a pattern names, or of a single one; ``None`` for what is neither."""

def is_served(remote: Optional[str]) -> bool:
    """Whether the Rust reader can read a remote."""

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
    """Positions by node, rank, worker, batch and place.

    And whether there are too few samples for the canonical nodes, and for the ranks of a node.
    """

def shuffle(
    algo: str, sizes: bytes, canonical_nodes: int, seed: int, epoch: int, block: int
) -> bytearray:
    """Big ids by position."""

def sampling(
    sizes: bytes, choose: int, granularity: int, seed: int, epoch: int, use_epoch: bool
) -> bytearray:
    """How many samples to draw from each shard."""

def resample(
    shards: bytes,
    streams: list[tuple[int, int, int]],
    granularity: int,
    seed: int,
    epoch: int,
    epoch_counts: bool,
    epoch_members: bool,
) -> tuple[bytearray, bytearray]:
    """The sizes of units, and the sample id of each big id.

    A stream is its first shard, the shard behind its last, and how many samples to choose.
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
    """An epoch: sample ids by node, rank, worker, batch and place.

    A source is the sizes of its units, the sample id of each of its big ids, and its proportion.
    """

def replicate(nodes: int, ranks: int, replication: int) -> tuple[int, int]:
    """Nodes and ranks of each when so many consecutive ranks are given the same samples."""

def decode_field(field: str, data: bytes) -> tuple[str, Any]:
    """What a field of a WebDataset sample holds: its kind, and its value."""

def hash_names() -> list[str]:
    """The names of all hashes."""

def hash_hex(algo: str, data: bytes) -> str:
    """The digest of the bytes, in lower-case hexadecimal digits."""

def compression_names() -> list[str]:
    """The names of all compressions, with and without levels."""

def compress(name: str, data: bytes) -> bytes:
    """The bytes as one frame, member, stream or block."""

def decompress(name: str, data: bytes) -> bytes:
    """What the compressed bytes hold."""

def merge_indexes(
    parts: list[tuple[str, bytes, dict[str, bytes]]],
) -> tuple[str, list[tuple[str, str]]]:
    """The text of one index for the shards of several, in order, and the side files of it by name.

    Each comes with its folder relative to that of the result, and its own side files by name.
    """

# End of orders, hashes and compressions.

# Writing.

class SampleWriter:
    """A dataset that is being written to a directory, by threads that do not know Python.

    Args:
        folder: The directory.
        options: The format, its columns (name, encoding, encoder, whether that encodes every value), `newline`,
            `separator`, `compression`, `hashes`, `size_limit` in bytes, `jobs`, and whether files are `durable`.
    """

    def __new__(cls, folder: str, options: dict[str, Any]) -> SampleWriter: ...
    def write(self, sample: Any) -> None:
        """Encodes a sample and adds it. A sample that cannot be encoded is left out."""

    def push(self, sample: bytes) -> None:
        """Adds a sample that is encoded already."""

    def encode(self, sample: Any) -> bytes:
        """The bytes of a sample, which is not added."""

    def write_arrow(self, object: Any) -> int:
        """Adds the rows of an Arrow table, batch or stream; answers how many."""

    def finish(self) -> None:
        """Finishes all shards and publishes the index."""

    def abort(self) -> None:
        """Stops without an index."""

    def index(self) -> str:
        """The index of the shards that are full so far, as text; waits until they are published."""

    def open_samples(self) -> list[bytes]:
        """The encoded samples of the shard that is being filled."""

    def open_bytes(self) -> int:
        """Bytes of the shard that is being filled, as the size limit counts them."""

    @property
    def samples(self) -> int:
        """Samples that were added."""

    def config(self) -> str:
        """The configuration as it stands in every shard."""

    def published(self) -> PublishedFiles:
        """The files of shards as they are published."""

class PublishedFiles:
    """The names of files as they are published, for one thread."""

    def next(self) -> Optional[list[str]]:
        """The next names, once there are any; ``None`` at the end."""

class PartWriter:
    """One attempt of a part. Everything is done in the thread of the caller.

    Args:
        dest: The folder or the URL of the dataset.
        staging: What the job was told.
        part: The number of the part in its job.
        attempt: What tells it from the other attempts of the job.
        options: `columns` (names and encodings), `compression`, `hashes`, `size_limit`, `samples_per_shard`, `key`,
            `scratch`.
        settings: Those of the store that are not in the environment.
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
        """Whether the columns of an Arrow table, batch or stream can be written. Nothing is made."""

    def write_arrow(self, object: Any) -> int:
        """Adds the rows of an Arrow table, batch or stream; answers how many."""

    def finish(self) -> str:
        """Writes the last shard; answers the manifest."""

    def abort(self) -> None:
        """Ends the attempt and removes what it has written. Nothing happens when it has ended."""

def parts_begin(
    dest: str,
    to: str,
    pattern: Optional[str],
    job: str,
    mode: str,
    settings: Optional[dict[str, str]] = None,
) -> str:
    """Looks at what is at a place; answers what all tasks of a job are told."""

def parts_commit(
    dest: str,
    staging: str,
    manifests: list[str],
    parts: Optional[int],
    hashes: bool,
    settings: Optional[dict[str, str]] = None,
) -> tuple[int, int, int, bool]:
    """Publishes the parts of a job.

    Answers shards, samples, samples of the whole dataset, and whether that was done before.
    """

def parts_abort(dest: str, staging: str, settings: Optional[dict[str, str]] = None) -> int:
    """Removes what a job has written and not committed; answers how many files and folders."""

def parts_gc(
    dest: str,
    delete: bool,
    older_than: Optional[float],
    pattern: Optional[str] = None,
    settings: Optional[dict[str, str]] = None,
) -> list[tuple[str, int, str]]:
    """Finds, and removes where it is told to, what no dataset needs: names, bytes, reasons."""

def is_encoding(encoding: str) -> bool:
    """Whether an MDS encoding is one of the format's, in its usual spelling."""

# End of writing.

# Stores. A location is a path, `file://PATH` or `s3://BUCKET/KEY`.

def upload(
    local_path: Union[str, os.PathLike[str]],
    url: str,
    settings: Optional[dict[str, str]] = None,
    progress: Optional[Callable[[int], Any]] = None,
) -> None:
    """Copies a file to a location, in the place of what is there.

    Who looks finds the old file or the whole new one. Settings are those of the environment unless given;
    `progress` is called with the bytes that are through.
    """

def download(
    url: str,
    local_path: Union[str, os.PathLike[str]],
    settings: Optional[dict[str, str]] = None,
    timeout: Optional[float] = None,
    progress: Optional[Callable[[int], Any]] = None,
) -> int:
    """Copies a location to a file, which appears when it is whole, and returns its bytes.

    The timeout is the longest time without a byte, in seconds.
    """

def exists(url: str, settings: Optional[dict[str, str]] = None) -> bool:
    """Whether a file or an object is there."""

def list_objects(url: str, settings: Optional[dict[str, str]] = None) -> list[tuple[str, int]]:
    """The files or objects whose paths or keys begin with the location, with their bytes."""

def check_bucket(url: str, settings: Optional[dict[str, str]] = None) -> None:
    """Asks the store whether the bucket is there and may be listed."""

# End of stores.
