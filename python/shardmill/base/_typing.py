"""Types of arguments and results, for type checkers and editors."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Optional, Protocol, TypedDict, Union

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from torch.distributed.device_mesh import DeviceMesh
    from typing_extensions import TypeVar

    from shardmill.base._fields import FieldDecoder
    from shardmill.base._skip import SkippedStep
    from shardmill.views import View

    #: The type of a sample. It defaults to ``Any``, so that subclasses may return any type.
    SampleT = TypeVar('SampleT', covariant=True, default=Any)
else:
    from typing import TypeVar

    SampleT = TypeVar('SampleT', covariant=True)

#: One sample: the values of its columns by name.
Sample = dict[str, Any]
#: A path, or a URL as text.
Path = Union[str, 'os.PathLike[str]']
#: The destination of a writer: a folder or a URL, or a local folder and a URL.
Destination = Union[Path, tuple[Path, Path]]


class ArrowStream(Protocol):
    """Rows that Arrow's C stream interface hands over."""

    def __arrow_c_stream__(self, requested_schema: Optional[object] = None) -> object:
        """Returns a capsule with a stream of record batches."""


class WriterOptions(TypedDict, total=False):
    """The arguments that all writers share, in addition to their destination."""

    keep_local: bool
    compression: Optional[str]
    hashes: Optional[list[str]]
    size_limit: Optional[Union[int, str]]
    progress_bar: bool
    max_workers: Optional[int]
    retry: int
    exist_ok: bool
    jobs: Optional[int]
    storage_options: Optional[Mapping[str, str]]


class DatasetOptions(TypedDict, total=False):
    """Arguments of `StreamingDataset` that do not concern the location of samples."""

    epoch_size: Optional[Union[int, str]]
    predownload: Optional[int]
    cache_limit: Optional[Union[float, str]]
    sampling_method: str
    sampling_granularity: int
    partition_algo: str
    num_canonical_nodes: Optional[int]
    batch_size: Optional[int]
    shuffle: bool
    shuffle_algo: str
    shuffle_seed: int
    shuffle_block_size: Optional[int]
    batching_method: str
    allow_unsafe_types: bool
    replication: Optional[int]
    rank: Optional[int]
    world_size: Optional[int]
    local_world_size: Optional[int]
    worker: Optional[int]
    num_workers: Optional[int]
    mesh: Optional[DeviceMesh]
    data_dims: Union[str, Sequence[str], None]
    data_rank: Optional[int]
    data_world_size: Optional[int]
    threads: int
    decode: Union[str, bool, FieldDecoder, None]
    with_deleted: bool
    view: Union[View, Path, None]
    skip: Optional[Iterable[SkippedStep]]
    skip_samples: Optional[Iterable[int]]
    storage_options: Optional[Mapping[str, str]]
    peers: Optional[Sequence[str]]
