"""Shuffles against golden ones and against what they promise."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from shardmill.base.shuffle import algos, get_shuffle
from shardmill.base.shuffle.py1e import get_shuffle_py1e
from shardmill.base.shuffle.py1s import divide_spans

GOLDEN = {
    'naive': ([2, 5, 10, 9, 8, 1, 6, 7, 11, 3, 0, 4], [4, 3, 10, 2, 8, 7, 6, 9, 5, 1, 11, 0]),
    'py1s': ([4, 8, 9, 11, 10, 7, 5, 6, 3, 1, 2, 0], [4, 7, 10, 11, 9, 8, 0, 3, 1, 2, 5, 6]),
    'py2s': ([6, 9, 11, 7, 10, 8, 4, 5, 0, 3, 1, 2], [6, 7, 10, 11, 9, 8, 4, 5, 0, 1, 2, 3]),
    'py1br': ([8, 7, 9, 4, 10, 11, 3, 0, 5, 1, 2, 6], [8, 4, 9, 10, 11, 7, 5, 6, 3, 1, 2, 0]),
    'py1e': ([4, 8, 9, 11, 10, 7, 5, 6, 2, 1, 3, 0], [7, 4, 10, 11, 9, 8, 0, 6, 2, 1, 5, 3]),
}
# Of fifty shards of 1000 and one of 377, four canonical nodes, epoch 2, blocks of 5000.
LARGE = {
    'naive': 'bc617ad455f3b4136dcd6a3aaf2fb01c6dd90809aec4362d8f6a079e03fe8cfe',
    'py1s': 'a7704133877f00828782c8bf8413e5c4b90d49a29555e885518380244c945880',
    'py2s': '7998d5c60511ed2febb383dcd35deb5b8b0f277a8baa51fe4083d1fb71b802a8',
    'py1br': 'c16a4be136bbffae1a9ab2d587bb86f89134ffbcbb8f65bd6ea987cecc8e8f1b',
    'py1e': '21a0dcdac5cd5f41a504069d9041cfe60847de31fb510b2d73f7fa077912c00b',
}


@pytest.mark.filterwarnings('ignore:Shuffle block size')
@pytest.mark.parametrize('algo', sorted(GOLDEN))
def test_shuffle_orders_match_golden_values(algo: str) -> None:
    for epoch, order in enumerate(GOLDEN[algo]):
        found = get_shuffle(algo, np.array([4, 3, 5]), 2, 9176, epoch, 8)
        assert found.tolist() == order
        assert found.dtype == np.int64
        assert found.flags.writeable


@pytest.mark.parametrize('algo', sorted(LARGE))
def test_large_shuffle_orders_match_golden_digests(algo: str) -> None:
    order = get_shuffle(algo, np.array([1000] * 50 + [377]), 4, 9176, 2, 5000)
    assert hashlib.sha256(order.astype('<i8').tobytes()).hexdigest() == LARGE[algo]


def test_naive_shuffle_equals_numpy_permutation() -> None:
    order = get_shuffle('naive', np.array([300, 0, 700]), 5, 7, 3)
    assert order.tolist() == np.random.default_rng(10).permutation(1000).tolist()


@pytest.mark.filterwarnings('ignore:Shuffle block size')
@pytest.mark.parametrize('algo', sorted(algos))
@pytest.mark.parametrize('canonical_nodes', [1, 2, 3, 16])
def test_shuffle_keeps_samples_in_their_canonical_node(algo: str, canonical_nodes: int) -> None:
    sizes = 1 + np.arange(60)
    total = int(sizes.sum())
    nodes = []
    for epoch in range(3):
        order = algos[algo](sizes, canonical_nodes, 11, epoch, 200)
        assert sorted(order.tolist()) == list(range(total))
        borders = [total * node // canonical_nodes for node in range(canonical_nodes + 1)]
        parts = [set(order[start:stop]) for start, stop in zip(borders, borders[1:])]
        nodes.append((order.tolist(), parts))
    assert nodes[0][0] != nodes[1][0]
    assert (nodes[0][1] == nodes[1][1] == nodes[2][1]) == (algo != 'naive' or canonical_nodes == 1)


@pytest.mark.parametrize('algo', sorted(algos))
def test_default_shuffle_block_size_is_2_to_the_18(algo: str) -> None:
    sizes = np.array([500, 900, 400])
    order = algos[algo](sizes, 2, 1, 0)
    assert order.tolist() == get_shuffle(algo, sizes, 2, 1, 0).tolist()
    assert order.tolist() == get_shuffle(algo, sizes, 2, 1, 0, 1 << 18).tolist()


def test_invalid_shuffle_arguments_are_errors() -> None:
    sizes = np.array([4, 3, 5])
    with pytest.raises(KeyError):
        get_shuffle('py1b', sizes, 2, 0, 0)
    with pytest.raises(ValueError, match='seed'):
        get_shuffle('py1s', sizes, 2, -1, 0)
    with pytest.raises(ValueError, match='num_canonical_nodes'):
        get_shuffle('py1s', sizes, 0, 0, 0)
    with pytest.raises(ValueError, match='shuffle_block_size'):
        get_shuffle('py1br', sizes, 2, 0, 0, 1)
    with pytest.raises(ValueError, match='canonical nodes'):
        get_shuffle('py1e', sizes, 13, 0, 0)


def test_py1e_block_smaller_than_shard_warns() -> None:
    with pytest.warns(UserWarning, match='^Shuffle block size was smaller than shard size') as seen:
        get_shuffle_py1e(np.array([40, 100]), 1, 0, 0, 100)
    assert len(seen) == 1


@pytest.mark.filterwarnings('error')
def test_py1e_large_enough_block_does_not_warn() -> None:
    get_shuffle_py1e(np.array([40, 75]), 1, 0, 0, 100)


def test_divide_spans_splits_spans_at_node_boundaries() -> None:
    spans = [(0, 4), (4, 4), (4, 7), (7, 12)]
    cut = [(0, 4), (4, 4), (4, 6), (6, 7), (7, 12)]
    assert divide_spans(list(spans), 12, 2) == (cut, [(0, 3), (3, 5)])
    assert divide_spans(list(spans), 12, 1) == (spans, [(0, 4)])
    cut = [(0, 1), (1, 3), (3, 5)]
    assert divide_spans([(0, 5)], 5, 3) == (cut, [(0, 1), (1, 2), (2, 3)])
