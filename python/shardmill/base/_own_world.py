"""Finds the rank and the worker of this process."""

from __future__ import annotations

import multiprocessing
from typing import Optional

from shardmill import _torch
from shardmill.base._trained import Trained
from shardmill.base.world import World


class OwnWorld(Trained):
    """A dataset that is divided among ranks and workers."""

    #: The arguments: rank, number of ranks, ranks of the node, worker, number of workers.
    _given_world: tuple[Optional[int], ...]
    #: The process that pickled this dataset, and its world.
    _starter: Optional[tuple[int, World]]
    _unique_rank_world: World

    def _detect_world(self) -> World:
        """Returns this rank and worker, from the arguments, torch or the environment."""
        rank, world_size, local_world_size, worker, num_workers = self._given_world
        starter = self._world_of_starter()
        if rank is not None and world_size is not None:
            world = World.of_ranks(rank, world_size, local_world_size or world_size)
        elif rank is None and starter is not None:
            world = starter
        else:
            world = World.detect()
        if worker is not None and num_workers is not None and world.workers_per_rank == 1:
            number = world.rank * num_workers + worker
            world = World(world.num_nodes, world.ranks_per_node, num_workers, number)
        return world

    def _world_of_starter(self) -> Optional[World]:
        """Returns the world of the training process, if this is a spawned worker without a process group of its own."""
        if self._starter is None:
            return None
        pid, starter = self._starter
        # A spawned process does not know whether it will be a worker until its arguments are unpickled.
        is_arriving = getattr(multiprocessing.current_process(), '_inheriting', False)
        parent = multiprocessing.parent_process()
        is_worker = _torch.worker_info() is not None and parent is not None and parent.pid == pid
        return starter.detect_workers() if is_arriving or is_worker else None

    def _set_world(self) -> World:
        """Detects ranks and workers; the attributes describe the rank without its workers."""
        world = self._detect_world()
        ranks = World(world.num_nodes, world.ranks_per_node, 1, world.rank)
        self._unique_rank_world = ranks
        self._parallel_rank_world = (
            ranks.copy() if self.replication is None else ranks.replicate(self.replication)
        )
        return world
