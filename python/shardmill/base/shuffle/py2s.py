"""The shuffle `py1s`, with a second shuffle of each shard before it is cut."""

from __future__ import annotations

from shardmill.base.shuffle._order import shuffle_by

__all__ = ['get_shuffle_py2s']

get_shuffle_py2s = shuffle_by(
    'py2s',
    'Shuffles like `py1s`, after shuffling each shard before it is cut. Ignores `block_size`.',
)
