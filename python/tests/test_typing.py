"""What type checkers see: `make check` runs mypy over this file, which says of each expression which type it has."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardmill import FileDataset, LocalDataset, MDSWriter, Sample, Stream, StreamingDataLoader
from shardmill import StreamingDataset as Streaming

ROOT = Path(__file__).parents[1]

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch.utils.data import DataLoader, Dataset, IterableDataset
    from typing_extensions import assert_type

    from shardmill.errors import DataError
    from shardmill.stats import DatasetStats

    def datasets(
        dicts: Streaming[Sample], numbers: Streaming[int], local: LocalDataset[int]
    ) -> None:
        as_iterable: IterableDataset[int] = numbers
        as_dataset: Dataset[int] = local
        assert_type(iter(dicts), Iterator[dict[str, Any]])
        assert_type(next(iter(numbers)), int)
        assert_type(len(dicts), int)
        assert_type(next(iter(as_iterable)), int)
        assert_type(as_dataset[0], int)
        assert_type(next(iter(Streaming(local='data', batch_size=1))), Any)

    def loaders(numbers: Streaming[int]) -> None:
        loader = StreamingDataLoader(numbers, batch_size=8, num_workers=2, drop_last=True)
        assert_type(loader, StreamingDataLoader[int])
        as_loader: DataLoader[int] = loader
        assert_type(len(as_loader), int)
        assert_type(loader.batch_size, 'int | None')

    def results(dataset: Streaming[Sample], loader: StreamingDataLoader[Sample]) -> None:
        assert_type(dataset.columns, tuple[str, ...])
        assert_type(dataset.schema['a'].shape, 'tuple[int, ...] | None')
        assert_type(dataset.stats(), DatasetStats)
        assert_type(loader.stats().loader_wait_seconds, float)
        assert_type(next(dataset.batches()), dict[str, NDArray[Any]])
        assert_type(DataError('a').docs, str)

    def mistakes() -> None:
        Streaming(local='data', batchsize=1)  # type: ignore[call-arg]
        Streaming(local='data', batch_size='1')  # type: ignore[arg-type]
        Streaming(streams=['data'])  # type: ignore[list-item]
        StreamingDataLoader(Streaming(local='data'), batchsize=1)  # type: ignore[call-arg]
        StreamingDataLoader(Streaming(local='data'), num_workers='1')  # type: ignore[arg-type]
        Streaming(local='data').batches(batchsize=1)  # type: ignore[call-arg]
        Streaming(local='data').to_arrow(columns=1)  # type: ignore[arg-type]
        Stream(local='data', choose='1')  # type: ignore[arg-type]
        LocalDataset(5)  # type: ignore[arg-type]
        FileDataset(local='data', batch_size='1')  # type: ignore[arg-type]
        FileDataset(local='data', batchsize=1)  # type: ignore[call-arg]
        MDSWriter(columns={'a': 'int'}, out='data', exists_ok=True)  # type: ignore[call-arg]
        MDSWriter(columns={'a': 'int'}, out='data', max_workers='2')  # type: ignore[arg-type]


class Plain(Streaming):
    """Without a type of samples, as programs for streaming have it."""

    def __getitem__(self, at: int) -> int:
        number: int = super().__getitem__(at)['number']
        return number


class Numbers(Streaming[int]):
    """With one."""

    def __getitem__(self, at: int) -> int:
        return len(super().__getitem__(at))

    def __iter__(self) -> Iterator[int]:
        for sample in super().__iter__():
            yield sample + 1


class Lengths(LocalDataset[int]):
    def __getitem__(self, at: int) -> int:
        return len(super().__getitem__(at))


def total(numbers: Iterable[int]) -> int:
    return sum(numbers)


def test_dataset_classes_are_generic_at_runtime(data: Path) -> None:
    from torch.utils.data import DataLoader, IterableDataset

    dataset = Streaming[int](local=str(data), batch_size=2)
    assert isinstance(dataset, Streaming)
    assert isinstance(dataset, IterableDataset)
    assert issubclass(Numbers, Streaming)
    assert Lengths(str(data))[0] == len(LocalDataset(str(data))[0])
    loader: StreamingDataLoader[int] = StreamingDataLoader[int](dataset, batch_size=2)
    assert isinstance(loader, DataLoader)


def test_importing_shardmill_does_not_import_torch() -> None:
    program = (
        'import sys, shardmill\n'
        'shardmill.StreamingDataset, shardmill.StreamingDataLoader, shardmill.LocalDataset\n'
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, '-c', program], cwd=ROOT, check=True)
