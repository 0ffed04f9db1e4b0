"""Finds the rank and the worker of this process, also if several processes train one replica of a model."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Optional, Union

from shardmill import _core, _torch
from shardmill.base import _arguments as check
from shardmill.base.world import World
from shardmill.errors import UsageError

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


class OwnWorld:
    """Detects the world of this process, from the arguments of a dataset, torch or the environment."""

    def __init__(
        self,
        *,
        rank: Optional[int],
        world_size: Optional[int],
        local_world_size: Optional[int],
        worker: Optional[int],
        num_workers: Optional[int],
        replication: Optional[int],
        **data: Any,
    ) -> None:
        check.given_together(rank=rank, world_size=world_size)
        check.given_together(worker=worker, num_workers=num_workers)
        self._rank = check.whole_or_none('rank', rank)
        self._world_size = check.whole_or_none('world_size', world_size, 1)
        self._local_world_size = check.whole_or_none('local_world_size', local_world_size)
        shared = _data_rank_of(**data)
        if shared is not None:
            check.not_given('mesh` or `data_rank', rank=self._rank, replication=replication)
            self._rank, self._world_size, self._local_world_size = shared
        self._num_workers = check.whole_or_none('num_workers', num_workers, 1)
        self._worker = check.whole_or_none('worker', worker)
        if self._worker is not None and self._worker >= (self._num_workers or 0):
            raise UsageError(
                f'`worker` is {worker} and `num_workers` is {num_workers}: workers count from 0',
                'config-world',
                'worker',
            )
        #: The process that pickled this, and its world.
        self._starter: Optional[tuple[int, World]] = None

    def detect(self) -> World:
        """Returns this rank and worker."""
        starter = self._world_of_starter()
        if self._rank is not None and self._world_size is not None:
            size = self._local_world_size or self._world_size
            world = World.of_ranks(self._rank, self._world_size, size)
        elif self._rank is None and starter is not None:
            world = starter
        else:
            world = World.detect()
        if self._worker is not None and self._num_workers and world.workers_per_rank == 1:
            number = world.rank * self._num_workers + self._worker
            world = World(world.num_nodes, world.ranks_per_node, self._num_workers, number)
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

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, '_starter': (os.getpid(), self.detect())}


def _data_rank_of(
    mesh: Optional[DeviceMesh],
    data_dims: Union[str, Sequence[str], None],
    data_rank: Optional[int],
    data_world_size: Optional[int],
) -> Optional[tuple[int, int, int]]:
    """Returns the rank of this process among those that receive different samples, their number, and their number per
    node; `None` if no argument is given.
    """
    check.given_together(data_rank=data_rank, data_world_size=data_world_size)
    if mesh is None and data_dims is not None:
        raise UsageError('`data_dims` needs `mesh`', 'config-value', 'data_dims')
    if mesh is not None and data_rank is not None:
        raise UsageError(
            'give either `mesh`, or `data_rank` and `data_world_size`', 'config-value', 'mesh'
        )
    if mesh is not None:
        data_rank, data_world_size = _in_mesh(mesh, data_dims)
    rank = check.whole_or_none('data_rank', data_rank)
    world_size = check.whole_or_none('data_world_size', data_world_size, 1)
    if rank is None or world_size is None:
        return None
    if not 0 <= rank < world_size:
        raise UsageError(
            f'`data_rank` is {rank} and `data_world_size` is {world_size}: ranks count from 0',
            'config-world',
            'data_rank',
        )
    return rank, world_size, _per_node(world_size)


def _in_mesh(mesh: Any, data_dims: Union[str, Sequence[str], None]) -> tuple[int, int]:
    """Returns the number of this process along some dimensions of a mesh, and their product.

    The first dimension of the mesh varies slowest.
    """
    names = tuple(mesh.mesh_dim_names or ())
    wanted = (
        names if data_dims is None else (data_dims,) if isinstance(data_dims, str) else data_dims
    )
    unknown = [name for name in wanted if name not in names]
    if unknown or not wanted:
        problem = (
            f'the mesh has no dimension {unknown[0]!r}' if unknown else 'no dimension is named'
        )
        raise UsageError(
            f'{problem}: it has {", ".join(map(repr, names)) or "no names"}',
            'config-world',
            'data_dims',
            'pass `mesh_dim_names` to `init_device_mesh`',
        )
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        raise UsageError('this process is not in the mesh', 'config-world', 'mesh')
    rank, size = 0, 1
    for name, number, length in zip(names, coordinate, mesh.shape):
        if name in wanted:
            rank, size = rank * length + number, size * length
    return rank, size


def _per_node(world_size: int) -> int:
    """Returns how many of the ranks count as one node, as `World.replicate` does."""
    world = World.detect()
    if world.num_ranks % world_size:
        return world_size
    return _core.replicate(world.num_nodes, world.ranks_per_node, world.num_ranks // world_size)[1]
