"""What launchers say of a process."""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
from typing import Any

import pytest

from shardmill.base import distributed

NAMES = ('RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'LOCAL_WORLD_SIZE', 'SLURM_', 'OMPI_')


@pytest.fixture(autouse=True)
def nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(NAMES):
            monkeypatch.delenv(name)
    monkeypatch.setattr(distributed, '_group', lambda: None)


def found() -> tuple[int, int, int, int]:
    return (
        distributed.get_rank(),
        distributed.get_world_size(),
        distributed.get_local_rank(),
        distributed.get_local_world_size(),
    )


SLURM = {
    'SLURM_PROCID': '5',
    'SLURM_NTASKS': '8',
    'SLURM_LOCALID': '1',
    'SLURM_NTASKS_PER_NODE': '4',
    'SLURM_JOB_ID': '77',
    'SLURM_STEP_ID': '0',
}


def without(*names: str) -> dict[str, str]:
    return {name: value for name, value in SLURM.items() if name not in names}


@pytest.mark.parametrize(
    ('environment', 'expected'),
    [
        ({}, (0, 1, 0, 1)),
        (
            {'RANK': '3', 'WORLD_SIZE': '8', 'LOCAL_RANK': '1', 'LOCAL_WORLD_SIZE': '2'},
            (3, 8, 1, 2),
        ),
        # Those that are missing have defaults.
        ({'WORLD_SIZE': '2'}, (0, 2, 0, 1)),
        ({'RANK': '1'}, (1, 1, 0, 1)),
        (
            {
                'OMPI_COMM_WORLD_RANK': '3',
                'OMPI_COMM_WORLD_SIZE': '4',
                'OMPI_COMM_WORLD_LOCAL_RANK': '1',
                'OMPI_COMM_WORLD_LOCAL_SIZE': '2',
            },
            (3, 4, 1, 2),
        ),
        (SLURM, (5, 8, 1, 4)),
        # A launcher within a step has the last word.
        ({**SLURM, 'OMPI_COMM_WORLD_RANK': '1', 'OMPI_COMM_WORLD_SIZE': '2'}, (1, 2, 0, 1)),
        ({**SLURM, 'RANK': '1', 'WORLD_SIZE': '2'}, (1, 2, 0, 1)),
        # A step may be smaller than its job.
        (
            {**SLURM, 'SLURM_STEP_NUM_TASKS': '6', 'SLURM_STEP_TASKS_PER_NODE': '3(x2)'},
            (5, 6, 1, 3),
        ),
        ({**without('SLURM_NTASKS_PER_NODE'), 'SLURM_TASKS_PER_NODE': '2(x4)'}, (5, 8, 1, 2)),
        ({**without('SLURM_NTASKS_PER_NODE'), 'SLURM_NNODES': '2'}, (5, 8, 1, 4)),
        (without('SLURM_LOCALID'), (5, 8, 1, 4)),
        (without('SLURM_JOB_ID', 'SLURM_STEP_ID'), (5, 8, 1, 4)),
        # A batch script runs once, whatever the size of its job.
        (without('SLURM_STEP_ID'), (0, 1, 0, 1)),
    ],
)
def test_launcher_environments_are_detected(
    environment: dict[str, str], expected: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert found() == expected


@pytest.mark.parametrize(
    ('environment', 'message'),
    [
        ({'RANK': 'first'}, "RANK is 'first'"),
        ({'OMPI_COMM_WORLD_RANK': '0'}, 'OMPI_COMM_WORLD_SIZE'),
        ({**SLURM, 'SLURM_STEP_TASKS_PER_NODE': '4(x2),3'}, 'as many tasks'),
        ({**SLURM, 'SLURM_STEP_TASKS_PER_NODE': 'many'}, 'as many tasks'),
    ],
)
def test_invalid_launcher_environment_is_an_error(
    environment: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message):
        found()


def test_collectives_without_process_group_are_local(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors: list[Any] = []
    distributed.barrier()
    distributed.broadcast(None, 0)  # type: ignore[arg-type]
    distributed.all_gather(tensors, None)  # type: ignore[arg-type]
    assert tensors == []
    assert distributed.all_gather_object('mine') == ['mine']
    assert distributed.maybe_init_dist() is False
    monkeypatch.setenv('WORLD_SIZE', '2')
    with pytest.raises(RuntimeError, match='2 processes and no process group'):
        distributed.all_gather_object('mine')


def port() -> int:
    with socket.socket() as server:
        server.bind(('127.0.0.1', 0))
        number: int = server.getsockname()[1]
        return number


def in_a_group(rank: int, number: int, answers: Any) -> None:
    os.environ.update(
        MASTER_ADDR='127.0.0.1', MASTER_PORT=str(number), RANK=str(rank), WORLD_SIZE='2'
    )
    made = distributed.maybe_init_dist()
    # The process group has the last word.
    os.environ.update(RANK='7', WORLD_SIZE='9')
    import torch

    tensor = torch.tensor([rank])
    tensors = [torch.zeros(1, dtype=torch.int64) for _ in range(2)]
    distributed.all_gather(tensors, tensor)
    distributed.broadcast(tensor, 1)
    distributed.barrier()
    objects = distributed.all_gather_object({'rank': rank})
    gathered = [int(other) for other in tensors]
    again = distributed.maybe_init_dist()
    answers.put((rank, made, again, found()[:2], gathered, int(tensor), objects))
    torch.distributed.destroy_process_group()


def test_collectives_with_process_group_reach_all_ranks() -> None:
    pytest.importorskip('torch')
    context = multiprocessing.get_context('spawn')
    answers = context.Queue()
    number = port()
    processes = [
        context.Process(target=in_a_group, args=(rank, number, answers)) for rank in range(2)
    ]
    for process in processes:
        process.start()
    found_by_rank = sorted(answers.get(timeout=120) for _ in processes)
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    both = [{'rank': 0}, {'rank': 1}]
    assert found_by_rank == [(rank, True, False, (rank, 2), [0, 1], 1, both) for rank in range(2)]


def test_distributed_helpers_do_not_import_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for name in [name for name in sys.modules if name.partition('.')[0] == 'torch']:
        monkeypatch.delitem(sys.modules, name)
    assert distributed.get_rank() >= 0
    distributed.barrier()
    assert 'torch' not in sys.modules
