"""From the number of a sample to its shard."""

from __future__ import annotations

import numpy as np
import pytest

from shardmill.base.spanner import Spanner


@pytest.mark.parametrize('sizes', [[1], [5, 10, 15], [0, 3, 0, 0, 2, 0], [1] * 100])
@pytest.mark.parametrize('span_size', [1, 7, 1024])
def test_spanner_maps_every_sample_to_its_shard(sizes: list[int], span_size: int) -> None:
    spanner = Spanner(np.array(sizes), span_size)
    expected = [(shard, place) for shard, size in enumerate(sizes) for place in range(size)]
    assert spanner.num_samples == len(expected)
    for index, wanted in enumerate(expected):
        assert spanner[index] == wanted
        assert [type(part) for part in spanner[index]] == [np.int64, int]
        assert spanner[np.int64(index)] == wanted  # type: ignore[index]


@pytest.mark.parametrize('index', [-1, 30, 1 << 40])
def test_out_of_range_sample_index_is_an_error(index: int) -> None:
    with pytest.raises(IndexError, match=r'^Invalid sample index'):
        _ = Spanner(np.array([5, 10, 15]))[index]


def test_spanner_exposes_bounds_and_sizes() -> None:
    sizes = np.array([5, 10, 15])
    spanner = Spanner(sizes)
    assert spanner.shard_bounds.tolist() == [0, 5, 15, 30]
    assert spanner.shard_bounds.dtype == np.int64
    assert spanner.shard_sizes is sizes
    assert spanner.span_size == 1024
    assert sizes.tolist() == [5, 10, 15]


def test_spanner_without_shards_is_empty() -> None:
    spanner = Spanner(np.array([], np.int64))
    assert spanner.num_samples == 0
    with pytest.raises(IndexError):
        _ = spanner[0]
