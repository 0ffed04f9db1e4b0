"""The base of the named datasets, such as C4 and ImageNet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional, TypedDict

from shardmill.base._signatures import defaults_of, lists_arguments
from shardmill.base.dataset import StreamingDataset

if TYPE_CHECKING:
    from typing_extensions import Unpack


class NamedDatasetOptions(TypedDict, total=False):
    """The arguments that all named datasets share; see `StreamingDataset`."""

    remote: Optional[str]
    local: Optional[str]
    split: Optional[str]
    download_retry: int
    download_timeout: float
    validate_hash: Optional[str]
    keep_zip: bool
    epoch_size: Optional[int]
    predownload: Optional[int]
    cache_limit: Optional[int]
    partition_algo: str
    num_canonical_nodes: Optional[int]
    batch_size: Optional[int]
    shuffle: bool
    shuffle_algo: str
    shuffle_seed: int
    shuffle_block_size: int


#: The defaults of older runs, which differ from those of `StreamingDataset`.
_DEFAULTS: NamedDatasetOptions = {
    'partition_algo': 'orig',
    'shuffle_algo': 'py1s',
    'shuffle_block_size': 1 << 18,
}


#: Lists the arguments of `NamedDatasetOptions` in the signature of a constructor, in place of its ``**options``.
shows_options = lists_arguments(
    NamedDatasetOptions, {**defaults_of(StreamingDataset.__init__), **_DEFAULTS}, first=True
)


class NamedDataset(StreamingDataset[Any]):
    """A `StreamingDataset` with the defaults of older runs: ``orig`` partition, ``py1s`` shuffle, blocks of 2^18.

    Subclasses take its arguments, too.
    """

    @shows_options
    def __init__(self, **options: Unpack[NamedDatasetOptions]) -> None:
        unknown = options.keys() - NamedDatasetOptions.__annotations__.keys()
        if unknown:
            names = ', '.join(sorted(unknown))
            raise TypeError(f'{type(self).__name__}() got an unexpected argument: {names}')
        arguments: dict[str, Any] = {**_DEFAULTS, **options}
        super().__init__(**arguments)
