"""A shuffle of shard parts, followed by keyed permutations of overlapping blocks. ``streaming`` does not have it."""

from __future__ import annotations

from shardmill.base.shuffle._order import shuffle_by

__all__ = ['get_shuffle_shardmill']

get_shuffle_shardmill = shuffle_by(
    'shardmill',
    'Shuffles shard parts, then samples by keyed permutations of blocks of `block_size` samples.',
)
