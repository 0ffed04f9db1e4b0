"""Options of readers and epochs: immutable objects. Unknown arguments are errors."""

from collections.abc import Sequence
from typing import Optional

from shardmill._core.view import View

class KnownFiles:
    """The list of a tree of raw files, for another reader of the same tree."""

class FileOptions:
    """How a stream of raw files is listed.

    Args:
        form: The columns of a sample: ``data``, ``file`` or ``both``.
        include: Patterns of which a file must match at least one.
        exclude: Patterns of which a file must not match any.
        relist: Whether to list the files again.
        expect: The digest that the list must have.
        known: The list, if another reader has it.
    """

    def __new__(
        cls,
        *,
        form: str = 'data',
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        relist: bool = False,
        expect: Optional[str] = None,
        known: Optional[KnownFiles] = None,
    ) -> FileOptions: ...

class StreamOptions:
    """A stream. The arguments are those of `shardmill.Stream`.

    Args:
        expect_index: The digest that the index must have.
        settings: Store settings that are not in the environment.
        files: For a tree of raw files, or the list of the files of a table.
        table: For a table that is read in place: the columns to read, or all if empty; the version of a Delta table, or
            ``None`` for a folder of Parquet files; whether nulls are zeros that columns ``NAME__is_null`` mark.
    """

    def __new__(
        cls,
        *,
        remote: Optional[str] = None,
        local: Optional[str] = None,
        split: Optional[str] = None,
        proportion: Optional[float] = None,
        repeat: Optional[float] = None,
        choose: Optional[int] = None,
        keep_zip: Optional[bool] = None,
        with_deleted: Optional[bool] = None,
        view: Optional[View] = None,
        validate_hash: Optional[str] = None,
        expect_index: Optional[str] = None,
        settings: Optional[dict[str, str]] = None,
        files: Optional[FileOptions] = None,
        table: Optional[tuple[Sequence[str], Optional[int], bool]] = None,
    ) -> StreamOptions: ...

class Window:
    """The neighbours that are read with each sample.

    Args:
        offsets: The offsets of all columns.
        columns: The offsets of each column that has a window, if not all have one.
        pad: Whether missing neighbours are replaced by the first or last sample of the episode.
        episodes: The first samples of the episodes of each stream.
    """

    def __new__(
        cls,
        offsets: Optional[list[int]],
        columns: list[tuple[str, list[int]]],
        pad: bool,
        episodes: list[Optional[View]],
    ) -> Window: ...

class ReaderOptions:
    """The cache and the stores of a reader.

    Args:
        cache_limit: Maximum size of the local folders in bytes.
        lookahead: How many batches ahead to prefetch shards.
        memory: Maximum size of shards in memory in bytes.
        in_flight: Maximum concurrent downloads.
        peers: The number of this process on its node, the number of processes there, and an id of the run.
        owner: The process that uses pinned files after the reader is closed.
        pins: Maximum pinned files.
        cache_timeout: Seconds to wait for free space.
        download_retry: How many times a failed download is retried. Values from 2 never lower the store's own number of
            requests.
        download_timeout: Seconds without new data after which a download attempt fails.
        settings: Store settings that are not in the environment.
        window: The neighbours that are read with each sample.
        cluster: The addresses of all nodes, the number of this node, that of all nodes, the secret, and the TLS files.
        encodings: The names of the encodings that the program registered in the process that opened the dataset.
    """

    def __new__(
        cls,
        *,
        cache_limit: Optional[int] = None,
        lookahead: Optional[int] = None,
        memory: Optional[int] = None,
        in_flight: Optional[int] = None,
        peers: Optional[tuple[int, int, int]] = None,
        owner: Optional[int] = None,
        pins: Optional[int] = None,
        cache_timeout: Optional[float] = None,
        download_retry: Optional[int] = None,
        download_timeout: Optional[float] = None,
        settings: Optional[dict[str, str]] = None,
        window: Optional[Window] = None,
        cluster: Optional[tuple[list[str], int, int, str, Optional[list[str]]]] = None,
        encodings: Optional[set[str]] = None,
    ) -> ReaderOptions: ...
    @property
    def attempts(self) -> int: ...
    @property
    def idle_timeout(self) -> float: ...
    @property
    def total_timeout(self) -> float: ...

class EpochOptions:
    """The inputs that decide the sample order of an epoch. Unless noted, they are arguments of
    `shardmill.StreamingDataset`.

    Args:
        nodes: The number of nodes.
        ranks_per_node: The number of ranks per node.
        workers_per_rank: The number of workers per rank.
        mixture: The weights over time, as JSON.
        epoch: The epoch.
        resume: The position that the run resumes from, if any: epoch, sample in the epoch, seed, canonical nodes, and
            nodes of the first run.
        skip: Ranges of samples of the epoch that are left out: whole steps.
        skip_samples: Samples that are replaced by others of their batch.
    """

    def __new__(
        cls,
        *,
        nodes: int,
        ranks_per_node: int,
        workers_per_rank: int,
        batch_size: int,
        epoch_size: Optional[int] = None,
        num_canonical_nodes: Optional[int] = None,
        shuffle_block_size: Optional[int] = None,
        replication: Optional[int] = None,
        shuffle: bool = False,
        shuffle_algo: Optional[str] = None,
        shuffle_seed: Optional[int] = None,
        sampling_method: Optional[str] = None,
        sampling_granularity: Optional[int] = None,
        partition_algo: Optional[str] = None,
        batching_method: Optional[str] = None,
        mixture: Optional[str] = None,
        epoch: int = 0,
        resume: Optional[tuple[int, int, int, Optional[int], Optional[int]]] = None,
        skip: Sequence[tuple[int, int]] = (),
        skip_samples: Sequence[int] = (),
    ) -> EpochOptions: ...
