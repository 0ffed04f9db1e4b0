"""Finds the rank of this process and the number of processes, and synchronizes them.

If torch is imported and has a process group, the group decides. Otherwise the environment decides: torchrun (`RANK`,
`WORLD_SIZE`, `LOCAL_RANK`, `LOCAL_WORLD_SIZE`), Open MPI, or a Slurm step, whichever is found first. The environment is
read on every call, so that it may be set late. torch is imported only when needed.
"""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, TypeVar, cast

from shardmill.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    'all_gather',
    'all_gather_object',
    'barrier',
    'broadcast',
    'get_local_rank',
    'get_local_world_size',
    'get_rank',
    'get_world_size',
    'maybe_init_dist',
]

T = TypeVar('T')

_TORCHRUN = ('RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'LOCAL_WORLD_SIZE')


class _Processes(NamedTuple):
    """The launcher's information about this process."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    #: The sources of the rank, the world size and the local world size, for errors.
    names: tuple[str, str, str] = ('RANK', 'WORLD_SIZE', 'LOCAL_WORLD_SIZE')


def _number(name: str, default: Optional[int] = None) -> int:
    text = os.environ.get(name)
    if text is None and default is not None:
        return default
    try:
        return int(text or '')
    except ValueError:
        problem = f'the environment variable {name} is {text!r}, which is not a number'
        raise UsageError(problem, 'config-world', name) from None


def _environment() -> _Processes:
    """Reads the environment; a single process if it has no information."""
    if any(name in os.environ for name in _TORCHRUN):
        rank, size, local, local_size = (
            _number(name, int('WORLD_SIZE' in name)) for name in _TORCHRUN
        )
        return _Processes(rank, size, local, local_size)
    if 'OMPI_COMM_WORLD_RANK' in os.environ:
        start = 'OMPI_COMM_WORLD_'
        return _Processes(
            _number(f'{start}RANK'),
            _number(f'{start}SIZE'),
            _number(f'{start}LOCAL_RANK', 0),
            _number(f'{start}LOCAL_SIZE', 1),
            (f'{start}RANK', f'{start}SIZE', f'{start}LOCAL_SIZE'),
        )
    # Batch scripts also have these variables, but only processes of srun are ranks.
    in_step = 'SLURM_STEP_ID' in os.environ or 'SLURM_JOB_ID' not in os.environ
    if 'SLURM_PROCID' in os.environ and in_step:
        world_size = _number('SLURM_STEP_NUM_TASKS', _number('SLURM_NTASKS', 1))
        local_world_size = _slurm_tasks_per_node(world_size)
        rank = _number('SLURM_PROCID')
        local_rank = _number('SLURM_LOCALID', rank % local_world_size)
        names = 'SLURM_PROCID', 'the number of Slurm tasks', 'that of each node'
        return _Processes(rank, world_size, local_rank, local_world_size, names)
    return _Processes(0, 1, 0, 1)


def _slurm_tasks_per_node(world_size: int) -> int:
    """Returns the number of processes per node of a Slurm step."""
    for name in ('SLURM_STEP_TASKS_PER_NODE', 'SLURM_NTASKS_PER_NODE', 'SLURM_TASKS_PER_NODE'):
        text = os.environ.get(name)
        if text is None:
            continue
        # For example `4`, `4(x2)` or `4(x2),3`.
        counts = [re.fullmatch(r'(\d+)(\(x\d+\))?', part) for part in text.split(',')]
        numbers = {int(count.group(1)) for count in counts if count}
        if len(numbers) != 1 or not all(counts) or numbers == {0}:
            raise UsageError(
                f'the environment variable {name} is {text!r}: every node needs as many tasks',
                'config-world',
                name,
                'start the job with --ntasks-per-node',
            )
        return min(numbers.pop(), world_size)
    nodes = _number('SLURM_STEP_NUM_NODES', _number('SLURM_NNODES', 1))
    return max(world_size // max(nodes, 1), 1)


def _group() -> Optional[Any]:
    """Returns torch.distributed if it is imported and has a process group."""
    if 'torch' not in sys.modules:
        return None
    import torch.distributed as dist

    return dist if dist.is_available() and dist.is_initialized() else None


def get_rank() -> int:
    """Returns the number of this process, from 0."""
    group = _group()
    return int(group.get_rank()) if group else _environment().rank


def get_world_size() -> int:
    """Returns the number of processes on all nodes."""
    group = _group()
    return int(group.get_world_size()) if group else _environment().world_size


def get_local_rank() -> int:
    """Returns the number of this process within its node, from 0."""
    return _environment().local_rank


def get_local_world_size() -> int:
    """Returns the number of processes on this node."""
    return _environment().local_world_size


def _names() -> tuple[str, str, str]:
    """Returns the names of rank, world size and local world size at their source, for errors."""
    names = _environment().names
    group = 'of torch.distributed'
    return (f'the rank {group}', f'the world size {group}', names[2]) if _group() else names


def barrier() -> None:
    """Waits for all processes of the process group; does nothing without one."""
    group = _group()
    if group:
        group.barrier()


def broadcast(tensor: Tensor, src: int) -> None:
    """Copies the tensor of rank `src` into the tensors of all other ranks.

    Does nothing without a process group.
    """
    group = _group()
    if group:
        group.broadcast(tensor, src)


def all_gather(tensor_list: list[Tensor], tensor: Tensor) -> None:
    """Collects the tensors of all ranks in a list.

    Does nothing without a process group.
    """
    group = _group()
    if group:
        group.all_gather(tensor_list, tensor)


def all_gather_object(obj: T) -> list[T]:
    """Returns the objects of all ranks, in rank order. They are pickled.

    Raises:
        RuntimeError: There are several processes but no process group.
    """
    group = _group()
    world_size = get_world_size()
    if group:
        objects: list[Optional[T]] = [None] * world_size
        group.all_gather_object(objects, obj)
        return cast('list[T]', objects)
    if world_size == 1:
        return [obj]
    raise RuntimeError(
        f'there are {world_size} processes and no process group: '
        f'call torch.distributed.init_process_group first'
    )


def maybe_init_dist() -> bool:
    """Creates a process group if there are several processes and no group. Returns whether it did."""
    if get_world_size() == 1:
        return False
    import torch
    import torch.distributed as dist

    if not dist.is_available() or dist.is_initialized():
        return False
    backend = 'nccl' if torch.cuda.is_available() and dist.is_nccl_available() else 'gloo'
    dist.init_process_group(backend=backend, rank=get_rank(), world_size=get_world_size())
    return True
