"""A shuffle with one permutation of the whole epoch: every batch needs every shard."""

from __future__ import annotations

from shardmill.base.shuffle._order import shuffle_by

__all__ = ['get_shuffle_naive']

get_shuffle_naive = shuffle_by(
    'naive', 'Permutes all samples at once, ignoring `num_canonical_nodes` and `block_size`.'
)
