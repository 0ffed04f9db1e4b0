"""How many samples of each shard, and which."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shardmill.base.sampling import get_sampling, resample_streams

SIZES = np.array([4, 3, 5])


@pytest.mark.parametrize(
    ('choose', 'epoch', 'counts'),
    [(7, 0, [2, 2, 3]), (30, 1, [10, 7, 13]), (24, 1, [8, 6, 10]), (0, 0, [0, 0, 0])],
)
def test_sampling_counts_match_golden_values(choose: int, epoch: int, counts: list[int]) -> None:
    found = get_sampling(SIZES, choose, 1, 9176, epoch, True)
    assert found.tolist() == counts
    assert found.dtype == np.int64
    found += 1
    assert SIZES.tolist() == [4, 3, 5]


@pytest.mark.parametrize('granularity', [1, 7, 64])
@pytest.mark.parametrize('use_epoch', [False, True])
def test_sampling_counts_sum_to_choose(granularity: int, use_epoch: bool) -> None:
    rng = np.random.default_rng(0)
    seen = set()
    for epoch in range(20):
        sizes = 100 + np.arange(10)
        choose = int(rng.integers(sizes.sum()))
        counts = get_sampling(sizes, choose, granularity, 5, epoch, use_epoch)
        assert counts.sum() == choose
        assert ((counts >= 0) & (counts <= sizes)).all()
        seen.add(tuple(get_sampling(sizes, 500, granularity, 5, epoch, use_epoch)))
    assert (len(seen) > 1) == use_epoch


@pytest.mark.parametrize(
    ('name', 'place', 'value'),
    [('choose', 1, -1), ('granularity', 2, 0), ('seed', 3, -1), ('epoch', 4, -1)],
)
def test_invalid_sampling_numbers_are_errors(name: str, place: int, value: int) -> None:
    arguments: list[Any] = [SIZES, 7, 1, 9176, 0, True]
    arguments[place] = value
    with pytest.raises(ValueError, match=name):
        get_sampling(*arguments)


def test_invalid_shard_sizes_are_errors() -> None:
    with pytest.raises(ValueError, match='shard sizes'):
        get_sampling(np.array([4, -3]), 1, 1, 0, 0, True)
    with pytest.raises(ValueError, match='dimensions'):
        get_sampling(np.array([[4, 3]]), 1, 1, 0, 0, True)
    with pytest.raises(TypeError):
        get_sampling(np.array([4.0, 3.0]), 1, 1, 0, 0, True)


def dataset(**changed: Any) -> Any:
    attributes = {
        'streams': [SimpleNamespace(choose=7), SimpleNamespace(choose=15)],
        'shard_offset_per_stream': np.array([0, 3]),
        'shards_per_stream': np.array([3, 1]),
        'samples_per_shard': np.array([4, 3, 5, 6]),
        'sampling_granularity': 1,
        'sampling_method': 'balanced',
        'shuffle_seed': 9176,
        'epoch_seed_change': True,
    }
    return SimpleNamespace(**{**attributes, **changed})


def test_resampled_streams_match_golden_values() -> None:
    units, samples = resample_streams(dataset(), 0)
    assert units.tolist() == [2, 2, 3, 6, 6, 3]
    partial, whole = [2, 3, 4, 6, 7, 10, 11], list(range(12, 18))
    assert samples.tolist() == [*partial, *whole, *whole, 13, 14, 15]
    assert units.dtype == samples.dtype == np.int64


def test_resampling_can_select_a_single_stream() -> None:
    units, samples = resample_streams(dataset(), 0, 1)
    assert units.tolist() == [6, 6, 3]
    assert set(samples.tolist()) == set(range(12, 18))
    assert len(samples) == 15


def test_balanced_sampling_changes_samples_each_epoch() -> None:
    fixed = dataset(sampling_method='fixed', epoch_seed_change=False)
    assert resample_streams(fixed, 0)[1].tolist() == resample_streams(fixed, 1)[1].tolist()
    # Also without shuffling, where the counts stay.
    balanced = dataset(epoch_seed_change=False)
    first, second = resample_streams(balanced, 0), resample_streams(balanced, 1)
    assert first[0].tolist() == second[0].tolist()
    assert first[1].tolist() != second[1].tolist()


def test_choosing_zero_samples_is_an_error() -> None:
    with pytest.raises(ValueError, match='no samples'):
        resample_streams(dataset(streams=[SimpleNamespace(choose=0)]), 0)
