"""Datasets with encodings that the program registers are read with its classes."""

from __future__ import annotations

import json
import multiprocessing
import shutil
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from shardmill import (
    CSVWriter,
    LocalDataset,
    MDSWriter,
    Packing,
    Stream,
    StreamingDataLoader,
    StreamingDataset,
    Window,
)
from shardmill.base.format.mds import encodings
from shardmill.base.format.xsv import encodings as xsv_encodings
from shardmill.base.util import merge_index
from shardmill.errors import DataError, UnsupportedError, UsageError
from shardmill.views import select

if TYPE_CHECKING:
    from pathlib import Path

SAMPLES = 24
BATCH = 4


class Rev(encodings.Encoding):
    """Text from right to left."""

    def encode(self, obj: str) -> bytes:
        return obj[::-1].encode()

    def decode(self, data: bytes) -> str:
        return data.decode()[::-1]


def all_of(dataset: Any) -> list[Any]:
    """Iterates a dataset; one of local files has no iterator of its own."""
    return list(dataset)


class Latent(encodings.Encoding):
    """Pixels of a byte each, which are read as fractions."""

    def encode(self, obj: Any) -> bytes:
        return bytes(np.round(obj * 255).astype(np.uint8).tobytes())

    def decode(self, data: bytes) -> Any:
        return np.frombuffer(data, np.uint8).astype(np.float32) / 255


class Pair(encodings.Encoding):
    """Two numbers, of a fixed size."""

    size = 16

    def encode(self, obj: tuple[int, int]) -> bytes:
        return np.array(obj, np.int64).tobytes()

    def decode(self, data: bytes) -> Any:
        return np.frombuffer(data, np.int64).copy()


class Shifted(encodings.Encoding):
    """A number plus a parameter."""

    def __init__(self, shift: int) -> None:
        self.shift = shift

    @classmethod
    def from_str(cls, text: str) -> Shifted:
        return cls(int(text))

    def encode(self, obj: int) -> bytes:
        return str(obj + self.shift).encode()

    def decode(self, data: bytes) -> int:
        return int(data) - self.shift


OWN = {'str': Rev, 'uint8': Latent, 'pair': Pair, 'shifted': Shifted}
COLUMNS = {'n': 'int', 'text': 'str', 'pixels': 'uint8', 'z': 'pair', 's': 'shifted:7'}


def sample(n: int) -> dict[str, Any]:
    pixels = np.arange(n % 3 + 1, dtype=np.uint8).astype(np.float32) / 255
    return {'n': n, 'text': f'text {n}', 'pixels': pixels, 'z': np.array([n, -n]), 's': n * n}


def check(found: dict[str, Any], n: int) -> None:
    wanted = sample(n)
    for name in ('pixels', 'z'):
        np.testing.assert_array_equal(found[name], wanted.pop(name))
    assert {name: found[name] for name in wanted} == wanted


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, cls in OWN.items():
        monkeypatch.setitem(encodings._encodings, name, cls)


@pytest.fixture
def shards(own: None, tmp_path: Path) -> str:
    out = tmp_path / 'shards'
    with MDSWriter(out=str(out), columns=COLUMNS, size_limit=1000, compression='zstd') as writer:
        for n in range(SAMPLES):
            writer.write(sample(n))
    sizes = dict(zip(COLUMNS, [8, None, None, 16, None]))
    (first, *others) = json.loads((out / 'index.json').read_text())['shards']
    assert others
    assert dict(zip(first['column_names'], first['column_sizes'])) == sizes
    return str(out)


def each(samples: Any) -> None:
    numbers = []
    for found in samples:
        check(found, found['n'])
        numbers.append(found['n'])
    assert sorted(numbers) == list(range(SAMPLES))


def test_registered_encodings_decode_single_samples(shards: str, tmp_path: Path) -> None:
    other = str(shutil.copytree(shards, tmp_path / 'other'))
    for dataset in (
        StreamingDataset(local=shards, batch_size=BATCH),
        StreamingDataset(remote=shards, local=str(tmp_path / 'cache'), batch_size=BATCH),
        StreamingDataset(streams=[Stream(local=shards), Stream(local=other)], batch_size=BATCH),
        LocalDataset(shards),
    ):
        check(dataset[3], 3)
        for n, found in enumerate(dataset[1:4], 1):
            check(found, n)
        check(dataset.get_item(SAMPLES - 1), SAMPLES - 1)
    each(StreamingDataset(local=shards, batch_size=BATCH, shuffle=True))
    dataset = StreamingDataset(local=shards, batch_size=BATCH)
    check(dataset.shards[0].get_item(0), 0)


class Fetching(Stream):
    """Brings its files by a method of its own."""

    def _download_file(self, from_basename: str, to_basename: str | None = None) -> str:
        return super()._download_file(from_basename, to_basename)


class Doubled(StreamingDataset):
    def get_item(self, idx: int, retry: int = 7) -> Any:
        return {**super().get_item(idx, retry), 'twice': True}


def test_registered_encodings_decode_in_subclasses(shards: str, tmp_path: Path) -> None:
    stream = Fetching(remote=shards, local=str(tmp_path / 'cache'))
    each(StreamingDataset(streams=[stream], batch_size=BATCH))
    each(Doubled(local=shards, batch_size=BATCH))


def register(_: int = 0) -> None:
    encodings._encodings.update(OWN)


def first_of(batch: dict[str, Any]) -> dict[str, Any]:
    return {name: values[0] for name, values in batch.items()}


@pytest.mark.parametrize(
    'options',
    [
        {},
        {'num_workers': 2},
        {'num_workers': 2, 'worker_type': 'threads'},
        {'num_workers': 2, 'multiprocessing_context': 'spawn', 'worker_init_fn': register},
    ],
)
def test_registered_encodings_decode_in_loaders(shards: str, options: dict[str, Any]) -> None:
    dataset = StreamingDataset(local=shards, batch_size=1, shuffle=True)
    loader = StreamingDataLoader(dataset, batch_size=1, **options)
    each({**first_of(batch), 'n': int(batch['n'][0])} for batch in loader)


def test_registered_encodings_decode_in_batches(shards: str) -> None:
    dataset = StreamingDataset(local=shards, batch_size=1, shuffle=True)
    each(map(first_of, dataset.batches()))
    (batch,) = list(StreamingDataset(local=shards, batch_size=SAMPLES).batches(columns=['text']))
    assert batch['text'].tolist() == [sample(n)['text'] for n in range(SAMPLES)]


def read_in_child(dataset: Any) -> Any:
    try:
        return dataset[3]['text']
    except UnsupportedError as error:
        return error


def test_process_without_registered_class_reports_it(shards: str) -> None:
    # A process that starts anew has no classes but those that its modules register.
    with multiprocessing.get_context('spawn').Pool(1) as pool:
        for dataset in (StreamingDataset(local=shards, batch_size=BATCH), LocalDataset(shards)):
            error = pool.apply(read_in_child, (dataset,))
            assert isinstance(error, UnsupportedError)
            assert error.id == 'encoding-unknown'
            assert 'column `text`' in str(error) or 'column `pixels`' in str(error)


def test_encoding_can_be_registered_after_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as context:
        context.setitem(encodings._encodings, 'rev', Rev)
        with MDSWriter(out=str(tmp_path), columns={'a': 'rev', 'b': 'str'}) as writer:
            writer.write({'a': 'abc', 'b': 'abc'})
    for dataset in (StreamingDataset(local=str(tmp_path), batch_size=1), LocalDataset(tmp_path)):
        with pytest.raises(UnsupportedError, match='no encoding') as caught:
            _ = dataset[0]
        assert caught.value.id == 'encoding-unknown'
        with monkeypatch.context() as context:
            context.setitem(encodings._encodings, 'rev', Rev)
            assert dataset[0] == {'a': 'abc', 'b': 'abc'}
            context.setitem(encodings._encodings, 'str', Rev)
            assert dataset[0] == {'a': 'abc', 'b': 'cba'}
            assert all_of(dataset) == [{'a': 'abc', 'b': 'cba'}]
        with pytest.raises(UnsupportedError, match='no encoding'):
            _ = dataset[0]
        # Other columns do not need it.
    (batch,) = StreamingDataset(local=str(tmp_path), batch_size=1).batches(columns=['b'])
    assert batch['b'].tolist() == ['abc']


def test_damaged_sizes_of_stock_encodings_are_errors(shards: str, tmp_path: Path) -> None:
    with MDSWriter(out=str(tmp_path / 'data'), columns={'a': 'int'}) as writer:
        writer.write({'a': 1})
    index = tmp_path / 'data' / 'index.json'
    index.write_text(index.read_text().replace('"column_sizes": [8]', '"column_sizes": [4]'))
    for open_ in (lambda path: StreamingDataset(local=path, batch_size=1), LocalDataset):
        with pytest.raises(DataError) as caught:
            open_(str(tmp_path / 'data'))
        assert caught.value.id == 'index-columns'


def test_tables_of_registered_encodings_have_stored_bytes(shards: str) -> None:
    pa = pytest.importorskip('pyarrow')
    dataset = StreamingDataset(local=shards, batch_size=BATCH)
    assert [column.name for column in dataset.schema.values() if column.is_registered] == [
        *('pixels', 's', 'text', 'z')
    ]
    table = dataset.to_arrow(0, 2)
    assert table.schema.field('text').type == pa.binary()
    assert table['text'].to_pylist() == [b'0 txet', b'1 txet']
    assert table['n'].to_pylist() == [0, 1]
    assert 'txet' in repr(dataset.preview(1))


def test_registered_encodings_decode_in_windows(shards: str) -> None:
    dataset = StreamingDataset(local=shards, batch_size=BATCH, window=Window([-1, 0]))
    assert dataset[0]['text'] == ['text 0', 'text 1']


def test_registered_encodings_decode_in_views(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(encodings._encodings, 'str', Rev)
    with MDSWriter(out=str(tmp_path), columns={'text': 'str'}) as writer:
        for n in range(SAMPLES):
            writer.write({'text': f'text {n}'})
    view = select(tmp_path, samples=[3, 9])
    dataset = StreamingDataset(local=str(tmp_path), batch_size=BATCH, view=view)
    assert [found['text'] for found in dataset] == ['text 3', 'text 9']


def test_indexes_with_registered_encodings_are_merged(own: None, tmp_path: Path) -> None:
    for part in range(2):
        with MDSWriter(out=str(tmp_path / str(part)), columns=COLUMNS) as writer:
            for n in range(part * 12, part * 12 + 12):
                writer.write(sample(n))
    merge_index(str(tmp_path))
    each(StreamingDataset(local=str(tmp_path), batch_size=BATCH))


def test_packing_refuses_registered_encoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Sorted(encodings.NDArray):
        def decode(self, data: bytes) -> Any:
            return np.sort(super().decode(data))

    monkeypatch.setitem(encodings._encodings, 'ndarray', Sorted)
    columns = {'tokens': 'ndarray:int32'}
    with MDSWriter(out=str(tmp_path), columns=columns) as writer:
        for n in range(9):
            writer.write({'tokens': np.arange(n + 1, 0, -1, dtype=np.int32)})
    dataset = StreamingDataset(local=str(tmp_path), batch_size=1)
    assert dataset[2]['tokens'].tolist() == [1, 2, 3]
    with pytest.raises((DataError, UsageError)) as caught:
        StreamingDataset(local=str(tmp_path), batch_size=1, packing=Packing('tokens', length=4))
    assert 'tokens' in str(caught.value)
    assert 'registered' in str(caught.value)


def test_unsafe_registered_encodings_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(encodings._encodings, 'dill', encodings.Pickle)
    monkeypatch.setattr(encodings, '_unsafe_encodings', {'pkl', 'dill'})
    with MDSWriter(out=str(tmp_path), columns={'a': 'dill'}) as writer:
        writer.write({'a': {1, 2}})
    with pytest.raises(ValueError, match='unsafe'):
        StreamingDataset(local=str(tmp_path), batch_size=1)
    dataset = StreamingDataset(local=str(tmp_path), batch_size=1, allow_unsafe_types=True)
    assert dataset[0] == {'a': {1, 2}}


def test_encodings_registered_in_mosaicml_streaming_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stock:
        __module__ = 'streaming.base.format.mds.encodings'

    other = ModuleType('streaming.base.format.mds.encodings')
    other._encodings = {'int': Stock, 'str': Rev, 'rev': Rev}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, other.__name__, other)
    with MDSWriter(out=str(tmp_path), columns={'a': 'str', 'b': 'rev', 'c': 'int'}) as writer:
        writer.write({'a': 'abc', 'b': 'abc', 'c': 1})
    assert LocalDataset(tmp_path)[0] == {'a': 'abc', 'b': 'abc', 'c': 1}
    monkeypatch.delitem(sys.modules, other.__name__)
    assert LocalDataset(tmp_path).to_arrow(columns=['a'])['a'].to_pylist() == ['cba']


class Upper(xsv_encodings.Str):
    @classmethod
    def decode(cls, obj: str) -> str:
        return obj.upper()


def test_replaced_text_encoding_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(xsv_encodings._encodings, 'str', Upper)
    with CSVWriter(out=str(tmp_path), columns={'a': 'str', 'b': 'int'}) as writer:
        writer.write({'a': 'abc', 'b': 1})
    for dataset in (StreamingDataset(local=str(tmp_path), batch_size=1), LocalDataset(tmp_path)):
        assert dataset[0] == {'a': 'ABC', 'b': 1}
        assert all_of(dataset) == [{'a': 'ABC', 'b': 1}]
    (batch,) = StreamingDataset(local=str(tmp_path), batch_size=1).batches()
    assert batch['a'].tolist() == ['ABC']
