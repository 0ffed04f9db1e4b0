"""The partition that requires canonical or physical nodes to be a multiple of the other."""

from __future__ import annotations

from shardmill.base.partition._algorithms import partition_by

__all__ = ['get_partitions_orig']

get_partitions_orig = partition_by(
    'orig', 'Partitions the positions of an epoch, ignoring `initial_physical_nodes`.'
)
