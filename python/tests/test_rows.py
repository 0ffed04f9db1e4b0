"""Lists of dicts that a worker process sends."""

from __future__ import annotations

import fcntl
import pickle
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.samples import BATCH, write

from shardmill import StreamingDataLoader, StreamingDataset
from shardmill.base import dataloader
from shardmill.base._collate import packed

if TYPE_CHECKING:
    from pathlib import Path

F_GETPIPE_SZ = 1032


def travelled(batch: Any) -> Any:
    return pickle.loads(pickle.dumps(packed(batch)))


def same(left: Any, right: Any) -> bool:
    """Equal, and of the same types all the way down."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(map(same, left.values(), right.values()))
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and np.array_equal(left, right)
    return repr(left) == repr(right)


SCALARS = [np.dtype(code).type for code in '?bhilqBHILQefdgFD'] + [
    np.str_,
    np.bytes_,
    np.datetime64,
]


@pytest.mark.parametrize('kind', SCALARS)
def test_packed_scalars_round_trip(kind: Any) -> None:
    values = (
        [kind(1), kind(0), kind(1)] if kind is not np.datetime64 else [kind(1, 'D'), kind(2, 's')]
    )
    batch = [{'id': value, 'text': 'ä' * n} for n, value in enumerate(values)]
    # As any other way of pickling would leave them: NumPy forgets there which of two types of one size it was.
    assert same(travelled(batch), pickle.loads(pickle.dumps(batch)))
    if kind not in (np.longlong, np.ulonglong):
        assert same(travelled(batch), batch)


def test_packed_special_floats_round_trip() -> None:
    batch = [{'x': np.float32(value)} for value in ('nan', 'inf', '-inf', '-0.0', '1e-45')]
    assert same(travelled(batch), batch)


@pytest.mark.parametrize(
    'batch',
    [
        [],
        [{}],
        [{}, {}],
        [{'a': np.int64(1)}, {'b': np.int64(1)}],
        [{'a': np.int64(1), 'b': 2}, {'b': 2, 'a': np.int64(1)}],
        [{'a': np.int64(1)}, {'a': np.int32(1)}],
        [{'a': np.int64(1)}, {'a': 1}],
        [{'a': np.int64(1)}, 3],
        [{'a': None}, {'a': None}],
        [{1: np.uint8(1), None: b'x'}, {1: np.uint8(2), None: bytearray(b'y')}],
        [
            {'a': np.int8(1), 'array': np.arange(3)},
            {'a': np.int8(2), 'array': np.zeros((2, 2), 'f4')},
        ],
        ({'a': np.int64(1)},),
        {'a': [np.int64(1)]},
        'text',
        None,
    ],
)
def test_packed_batches_of_any_shape_round_trip(batch: Any) -> None:
    assert same(travelled(batch), batch)


def test_packed_numbers_halve_pickle_size() -> None:
    batch = [{'id': np.int64(n), 'score': np.float64(n)} for n in range(64)]
    assert len(pickle.dumps(packed(batch))) < len(pickle.dumps(batch)) / 2


def test_dict_subclasses_are_not_packed() -> None:
    class Row(dict[str, Any]):
        pass

    batch = [Row(a=np.int64(1)), Row(a=np.int64(2))]
    assert packed(batch) is batch
    assert packed([{'a': 1}, Row(a=2)])[1].__class__ is Row


def first_pipe(folder: Path) -> int:
    """Room in the pipe from which a loader takes what its workers made."""
    dataset = StreamingDataset(local=str(folder), batch_size=BATCH)
    loader = StreamingDataLoader(dataset, batch_size=BATCH, num_workers=1, collate_fn=list)
    iterator = loader._get_iterator()
    room = fcntl.fcntl(iterator._worker_result_queue._reader.fileno(), F_GETPIPE_SZ)
    iterator._shutdown_workers()
    return room


@pytest.mark.skipif(sys.platform != 'linux', reason='sizes of pipes are Linux')
def test_worker_pipe_is_enlarged_if_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path)
    with open('/proc/sys/fs/pipe-max-size') as file:
        if int(file.read()) < 1 << 20:
            pytest.skip('this system grants no more')
    assert first_pipe(tmp_path) == 1 << 20
    # More than the system grants: the pipe stays as it is, and nothing is said.
    monkeypatch.setattr(dataloader, '_PIPE_BYTES', 1 << 31)
    assert first_pipe(tmp_path) == 1 << 16
