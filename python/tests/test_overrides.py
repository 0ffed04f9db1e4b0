"""Subclasses with item access of their own. Type checkers read this file, too: it has to pass ``mypy --strict``."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Optional

import numpy as np
import pytest
from support.samples import BATCH, SAMPLES

from shardmill import LocalDataset, Stream, StreamingDataset
from shardmill.files import FileDataset
from shardmill.multimodal import (
    StreamingInsideWebVid,
    StreamingOutsideDTWebVid,
    StreamingOutsideGIWebVid,
)
from shardmill.text import StreamingC4, StreamingEnWiki, StreamingPile
from shardmill.vision import StreamingADE20K, StreamingCIFAR10, StreamingCOCO, StreamingImageNet

if TYPE_CHECKING:
    from pathlib import Path


class Numbers(StreamingDataset):
    def __getitem__(self, at: int) -> int:
        number: int = super().__getitem__(at)['number']
        return number


class NumbersHere(LocalDataset):
    def __getitem__(self, idx: int) -> int:
        number: int = super().__getitem__(idx)['number']
        return number


class Lengths(FileDataset):
    def __getitem__(self, index: int) -> int:
        return len(super().__getitem__(index)['data'])


class Items(StreamingDataset):
    """Keeps the numbers that it is asked for, as they are."""

    asked: Any = None

    def get_item(self, idx: int, retry: int = 7) -> Any:
        self.asked = [*(self.asked or []), idx]
        return super().get_item(idx, retry)


class Fetched(Stream):
    """Fetches with `_download_file` of its own."""

    def _download_file(self, from_basename: str, to_basename: Optional[str] = None) -> str:
        return super()._download_file(from_basename, to_basename)


def test_overridden_getitem_is_used_everywhere(data: Path, tmp_path: Path) -> None:
    dataset = Numbers(local=str(data), batch_size=BATCH)
    assert list(dataset) == list(range(SAMPLES))
    assert dataset[7] == 7
    assert NumbersHere(str(data))[SAMPLES - 1] == SAMPLES - 1
    (tmp_path / 'file').write_bytes(b'12345')
    assert list(Lengths(local=str(tmp_path), batch_size=1)) == [5]


def test_iteration_passes_numpy_integers_to_get_item(data: Path, tmp_path: Path) -> None:
    fetched = Fetched(remote=str(data), local=str(tmp_path / 'local'))
    for dataset in (
        Items(local=str(data), batch_size=BATCH),
        Items(streams=[fetched], batch_size=BATCH),
    ):
        assert [sample['number'] for sample in dataset] == list(range(SAMPLES))
        assert dataset.asked is not None
        assert {type(number) for number in dataset.asked} == {np.int64}
        assert [int(number.item()) for number in dataset.asked] == list(range(SAMPLES))
        dataset.asked = None
        assert [dataset[3]['number'], dataset[-1]['number']] == [3, SAMPLES - 1]
        assert [type(number) for number in dataset.asked or ()] == [int, int]


@pytest.mark.parametrize(
    'cls',
    [
        StreamingADE20K,
        StreamingC4,
        StreamingCIFAR10,
        StreamingCOCO,
        StreamingEnWiki,
        StreamingImageNet,
        StreamingInsideWebVid,
        StreamingOutsideDTWebVid,
        StreamingOutsideGIWebVid,
        StreamingPile,
    ],
)
def test_get_item_parameter_is_named_idx(cls: type[StreamingDataset]) -> None:
    # `retry` is ours: the classes of streaming have none.
    assert list(inspect.signature(cls.get_item).parameters) == ['self', 'idx', 'retry']


def test_plain_subclass_bypasses_get_item(data: Path) -> None:
    dataset = StreamingInsideWebVid(local=str(data), batch_size=BATCH, num_canonical_nodes=1)
    assert dataset._is_plain()
    assert [sample['number'] for sample in dataset] == list(range(SAMPLES))
    assert dataset.get_item(idx=5)['number'] == 5
