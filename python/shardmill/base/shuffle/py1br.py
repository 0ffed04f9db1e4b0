"""A shuffle of shard parts, followed by shuffles within staggered blocks."""

from __future__ import annotations

from shardmill.base.shuffle._order import shuffle_by
from shardmill.base.shuffle.py1s import divide_spans

__all__ = ['divide_spans', 'get_shuffle_py1br']

get_shuffle_py1br = shuffle_by(
    'py1br',
    'Shuffles shard parts, then samples within staggered blocks of about `block_size` samples.',
)
