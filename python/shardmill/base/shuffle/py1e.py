"""A shuffle of shard parts that then moves each sample by a bounded random distance."""

from __future__ import annotations

from shardmill.base.shuffle._order import shuffle_by, warn_of_small_block
from shardmill.base.shuffle.py1s import divide_spans

__all__ = ['divide_spans', 'get_shuffle_py1e', 'warn_of_small_block']

get_shuffle_py1e = shuffle_by(
    'py1e',
    'Shuffles shard parts, then moves each sample by up to half of about `block_size` samples.',
)
