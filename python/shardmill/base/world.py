"""Nodes, ranks and workers of a run, and which of them this is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from shardmill import _core
from shardmill.base import _arguments as check
from shardmill.base import distributed
from shardmill.errors import UsageError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ['World']


class World:
    """How many nodes, ranks and workers there are, and which of them this is.

    All nodes have as many ranks, and all ranks as many workers. Counts are of the whole run, unless
    their name says otherwise.

    Args:
        num_nodes: Nodes.
        ranks_per_node: Ranks (training processes) of each node.
        workers_per_rank: Workers (loader processes) of each rank; 1 where the rank loads for
            itself.
        worker: The number of this worker, from 0, node by node and rank by rank.

    Attributes:
        node: This node.
        num_nodes: Nodes.
        is_multinode: Whether there are several.
        rank: This rank.
        num_ranks: Ranks.
        rank_of_node: This rank among those of its node.
        ranks_per_node: Ranks of each node.
        worker: This worker.
        num_workers: Workers.
        worker_of_node: This worker among those of its node.
        workers_per_node: Workers of each node.
        worker_of_rank: This worker among those of its rank.
        workers_per_rank: Workers of each rank.
        is_leader: Whether this is the first worker of all.
        is_local_leader: Whether this is the first worker of its node.
    """

    def __init__(
        self, num_nodes: int, ranks_per_node: int, workers_per_rank: int, worker: int
    ) -> None:
        num_nodes = check.whole('num_nodes', num_nodes, 1)
        ranks_per_node = check.whole('ranks_per_node', ranks_per_node, 1)
        workers_per_rank = check.whole('workers_per_rank', workers_per_rank, 1)
        worker = check.whole('worker', worker)
        self.num_nodes = num_nodes
        self.ranks_per_node = ranks_per_node
        self.workers_per_rank = workers_per_rank
        self.workers_per_node = ranks_per_node * workers_per_rank
        self.num_ranks = num_nodes * ranks_per_node
        self.num_workers = self.num_ranks * workers_per_rank
        self.is_multinode = num_nodes > 1

        self.worker = worker
        self.rank, self.worker_of_rank = divmod(worker, workers_per_rank)
        self.node, self.rank_of_node = divmod(self.rank, ranks_per_node)
        self.worker_of_node = worker % self.workers_per_node
        self.is_leader = worker == 0
        self.is_local_leader = self.worker_of_node == 0

    def to_json(self) -> dict[str, Any]:
        """Every attribute by its name."""
        return dict(vars(self))

    def __repr__(self) -> str:
        return (
            f'{type(self).__name__}(num_nodes={self.num_nodes}, '
            f'ranks_per_node={self.ranks_per_node}, workers_per_rank={self.workers_per_rank}, '
            f'worker={self.worker})'
        )

    @classmethod
    def of_ranks(
        cls,
        rank: int,
        world_size: int,
        local_world_size: int,
        names: Sequence[str] = ('rank', 'world_size', 'local_world_size'),
    ) -> Self:
        """The world of a rank, with the workers of torch's loader.

        Args:
            rank: This rank.
            world_size: Ranks.
            local_world_size: Ranks of each node.
            names: What the three are called where they come from.

        Raises:
            ValueError: They contradict each other.
        """
        mine, all_ranks, of_node = names
        if min(world_size, local_world_size) < 1 or world_size % local_world_size:
            raise UsageError(
                f'{all_ranks} is {world_size} and {of_node} is {local_world_size}: every node needs as '
                f'many ranks',
                'config-world',
                of_node,
                f'{all_ranks} is {of_node} times the number of nodes',
            )
        if not 0 <= rank < world_size:
            raise UsageError(
                f'{mine} is {rank} and {all_ranks} is {world_size}: ranks count from 0',
                'config-world',
                mine,
            )
        worker_of_rank, workers_per_rank = cls._get_worker_info()
        return cls(
            num_nodes=world_size // local_world_size,
            ranks_per_node=local_world_size,
            workers_per_rank=workers_per_rank,
            worker=rank * workers_per_rank + worker_of_rank,
        )

    @classmethod
    def _get_worker_info(cls) -> tuple[int, int]:
        """This worker among those of its rank, and how many there are.

        0 and 1 outside of a loader's worker.
        """
        # In a worker of torch's loader, torch is imported.
        data = sys.modules.get('torch.utils.data')
        info = data.get_worker_info() if data is not None else None
        return (info.id, info.num_workers) if info is not None else (0, 1)

    @classmethod
    def detect(cls) -> Self:
        """The world that this process is in.

        Ranks are those of `shardmill.base.distributed`, workers those of torch's loader.

        Raises:
            ValueError: What the launcher says contradicts itself.
        """
        return cls.of_ranks(
            distributed.get_rank(),
            distributed.get_world_size(),
            distributed.get_local_world_size(),
            distributed._names(),
        )

    def copy(self) -> Self:
        """The same once more."""
        return self._with(self.num_nodes, self.ranks_per_node, self.workers_per_rank, self.worker)

    def replicate(self, replication: int) -> Self:
        """The world as it is when so many consecutive ranks are one.

        Where the ranks that are left are no multiple of the ranks of a node, they are those of a
        single node.

        Raises:
            ValueError: The number is not positive, or does not divide the number of ranks.
        """
        replication = check.whole('replication', replication, -1 << 63)
        # The first words of both are what callers look for.
        if replication <= 0:
            raise UsageError(
                f'Replication factor must be positive, which {replication} is not', 'config-value'
            )
        if self.num_ranks % replication:
            raise UsageError(
                f'World size must be divisible by the replication factor: '
                f'{self.num_ranks} by {replication}',
                'config-value',
            )
        nodes, ranks = _core.replicate(self.num_nodes, self.ranks_per_node, replication)
        worker = self.rank // replication * self.workers_per_rank + self.worker_of_rank
        return self._with(nodes, ranks, self.workers_per_rank, worker)

    def detect_workers(self) -> Self:
        """The same ranks, with the workers of the loader that this process belongs to."""
        worker_of_rank, workers_per_rank = self._get_worker_info()
        worker = self.rank * workers_per_rank + worker_of_rank
        return self._with(self.num_nodes, self.ranks_per_node, workers_per_rank, worker)

    def _with(
        self, num_nodes: int, ranks_per_node: int, workers_per_rank: int, worker: int
    ) -> Self:
        return type(self)(num_nodes, ranks_per_node, workers_per_rank, worker)
