"""The nodes, ranks and workers of a run, and the position of this process among them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from shardmill import _core, _torch
from shardmill.base import _arguments as check
from shardmill.base import distributed
from shardmill.errors import UsageError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ['World']


class World:
    """The numbers of nodes, ranks and workers, and the position of this worker among them.

    All nodes have the same number of ranks, and all ranks the same number of workers. Counts are of
    the whole run unless their name says otherwise.

    Args:
        num_nodes: The number of nodes.
        ranks_per_node: The number of ranks (training processes) per node.
        workers_per_rank: The number of workers (loader processes) per rank; 1 if the rank loads data itself.
        worker: The number of this worker, from 0, counted by node and by rank.

    Attributes:
        node: The number of this node.
        num_nodes: The number of nodes.
        is_multinode: Whether there are several nodes.
        rank: The number of this rank.
        num_ranks: The number of ranks.
        rank_of_node: The number of this rank within its node.
        ranks_per_node: The number of ranks per node.
        worker: The number of this worker.
        num_workers: The number of workers.
        worker_of_node: The number of this worker within its node.
        workers_per_node: The number of workers per node.
        worker_of_rank: The number of this worker within its rank.
        workers_per_rank: The number of workers per rank.
        is_leader: Whether this is the first worker of all.
        is_local_leader: Whether this is the first worker of its node.
    """

    def __init__(
        self, num_nodes: int, ranks_per_node: int, workers_per_rank: int, worker: int
    ) -> None:
        self.num_nodes = check.whole('num_nodes', num_nodes, 1)
        self.ranks_per_node = check.whole('ranks_per_node', ranks_per_node, 1)
        self.workers_per_rank = check.whole('workers_per_rank', workers_per_rank, 1)
        self.worker = check.whole('worker', worker)
        self.workers_per_node = self.ranks_per_node * self.workers_per_rank
        self.num_ranks = self.num_nodes * self.ranks_per_node
        self.num_workers = self.num_ranks * self.workers_per_rank
        self.is_multinode = self.num_nodes > 1

        self.rank, self.worker_of_rank = divmod(self.worker, self.workers_per_rank)
        self.node, self.rank_of_node = divmod(self.rank, self.ranks_per_node)
        self.worker_of_node = self.worker % self.workers_per_node
        self.is_leader = self.worker == 0
        self.is_local_leader = self.worker_of_node == 0

    def to_json(self) -> dict[str, Any]:
        """Returns all attributes by name."""
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
        """Returns the world of a rank, with the workers of torch's loader.

        Args:
            rank: This rank.
            world_size: The number of ranks.
            local_world_size: The number of ranks per node.
            names: The names of the three values at their source, for errors.

        Raises:
            ValueError: The values contradict each other.
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
        """Returns the number of this worker within its rank, and the number of workers per rank.

        Returns 0 and 1 outside of a loader worker.
        """
        info = _torch.worker_info()
        return (0, 1) if info is None else (info.id, info.num_workers)

    @classmethod
    def detect(cls) -> Self:
        """Detects the world of this process.

        Ranks come from `shardmill.base.distributed`, workers from torch's loader.

        Raises:
            ValueError: The values from the launcher contradict each other.
        """
        return cls.of_ranks(
            distributed.get_rank(),
            distributed.get_world_size(),
            distributed.get_local_world_size(),
            distributed._names(),
        )

    def copy(self) -> Self:
        """Returns a copy."""
        return copy.copy(self)

    def replicate(self, replication: int) -> Self:
        """Returns the world in which each group of consecutive ranks counts as one rank.

        If the remaining ranks are not a multiple of the ranks per node, they form a single node.

        Raises:
            ValueError: The number is not positive or does not divide the number of ranks.
        """
        replication = check.whole('replication', replication, -1 << 63)
        # COMPAT: programs match the beginning of both messages.
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
        return type(self)(nodes, ranks, self.workers_per_rank, worker)

    def detect_workers(self) -> Self:
        """Returns the same ranks, with the loader workers that this process belongs to."""
        worker_of_rank, workers_per_rank = self._get_worker_info()
        worker = self.rank * workers_per_rank + worker_of_rank
        return type(self)(self.num_nodes, self.ranks_per_node, workers_per_rank, worker)
