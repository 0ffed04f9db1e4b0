"""`Array` against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shardmill.base.array import Array


class Squares(Array):
    """0, 1, 4, 9, ..."""

    def __init__(self, length: int) -> None:
        self.length = length

    @property
    def size(self) -> int:
        return self.length

    def get_item(self, idx: int) -> int:
        assert isinstance(idx, (int, np.integer))
        assert 0 <= idx < self.length
        return int(idx) ** 2


OURS = Squares(10)
THEIRS = np.arange(10) ** 2

ENDS = [None, -30, -10, -9, -1, 0, 3, 9, 10, 30]


@pytest.mark.parametrize('step', [None, -7, -2, -1, 1, 3])
def test_slices_match_numpy(step: Any) -> None:
    for start in ENDS:
        for stop in ENDS:
            at = slice(start, stop, step)
            assert OURS[at] == THEIRS[at].tolist(), at


@pytest.mark.parametrize('index', range(-10, 10))
def test_integer_indexes_match_numpy(index: int) -> None:
    assert OURS[index] == THEIRS[index]
    assert OURS[np.int32(index)] == THEIRS[index]
    assert OURS[np.array(index)] == THEIRS[index]


@pytest.mark.parametrize('index', [-11, 10, 1 << 70, np.int64(10), [3, 10], np.array([[-11]])])
def test_out_of_range_index_is_an_error(index: Any) -> None:
    with pytest.raises(IndexError):
        _ = OURS[index]


@pytest.mark.parametrize(
    'index', [[3, -1, 3], [[1, 2], [3, 4]], np.array([[5, 6]], np.uint8), np.zeros(0, np.int64)]
)
def test_list_and_array_indexes_match_numpy(index: Any) -> None:
    assert OURS[index] == THEIRS[np.asarray(index)].tolist()


def test_lists_can_contain_slices() -> None:
    assert OURS[[slice(2), 3]] == [[0, 1], 9]


@pytest.mark.parametrize('index', ['0', 1.0, None, (1, 2), np.array([1.0]), np.array([True])])
def test_unsupported_index_type_is_an_error(index: Any) -> None:
    with pytest.raises(ValueError, match='indexed by'):
        _ = OURS[index]


def test_array_iteration_stops_at_size() -> None:
    assert list(Squares(3)) == [0, 1, 4]  # type: ignore[call-overload]


def test_base_array_methods_are_not_implemented() -> None:
    with pytest.raises(NotImplementedError):
        _ = Array().size
    with pytest.raises(NotImplementedError):
        Array().get_item(0)
