"""The partition that allows a resumed run to use another number of nodes.

In a first run, and if canonical or physical nodes are a multiple of the other, this is `orig`. Otherwise the sequence
for the nodes of the first run is redistributed to the current nodes, if its devices can share the global batch.
"""

from __future__ import annotations

from shardmill.base.partition._algorithms import partition_by

__all__ = ['get_partitions_relaxed']

get_partitions_relaxed = partition_by(
    'relaxed', 'Partitions the positions of an epoch, also for another number of nodes than before.'
)
