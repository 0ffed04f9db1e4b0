"""Which node, rank and worker this is."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Optional

import pytest

from shardmill import MDSWriter, StreamingDataset
from shardmill.base import distributed
from shardmill.base.world import World
from shardmill.errors import UsageError


def test_world_attributes_are_derived_from_worker() -> None:
    world = World(num_nodes=2, ranks_per_node=4, workers_per_rank=3, worker=20)
    assert world.to_json() == {
        'node': 1,
        'num_nodes': 2,
        'is_multinode': True,
        'rank': 6,
        'num_ranks': 8,
        'rank_of_node': 2,
        'ranks_per_node': 4,
        'worker': 20,
        'num_workers': 24,
        'worker_of_node': 8,
        'workers_per_node': 12,
        'worker_of_rank': 2,
        'workers_per_rank': 3,
        'is_leader': False,
        'is_local_leader': False,
    }
    assert repr(world) == 'World(num_nodes=2, ranks_per_node=4, workers_per_rank=3, worker=20)'


@pytest.mark.parametrize(
    ('worker', 'leader', 'local'), [(0, True, True), (6, False, True), (1, False, False)]
)
def test_leader_flags_depend_on_worker(worker: int, leader: bool, local: bool) -> None:
    world = World(2, 3, 2, worker)
    assert (world.is_leader, world.is_local_leader) == (leader, local)


def test_copy_returns_equal_new_object() -> None:
    world = World(2, 3, 2, 5)
    copy = world.copy()
    assert copy is not world
    assert copy.to_json() == world.to_json()


@pytest.mark.parametrize(
    ('shape', 'replication', 'replicated'),
    [
        ((2, 4), 2, (1, 4)),
        ((1, 8), 4, (1, 2)),
        ((37, 8), 8, (1, 37)),
        ((4, 8), 2, (2, 8)),
        ((2, 2), 1, (2, 2)),
    ],
)
def test_replicate_reduces_world_and_rank(
    shape: tuple[int, int], replication: int, replicated: tuple[int, int]
) -> None:
    nodes, ranks = shape
    for rank in range(nodes * ranks):
        for worker in range(3):
            world = World(nodes, ranks, 3, rank * 3 + worker).replicate(replication)
            assert (world.num_nodes, world.ranks_per_node) == replicated
            assert (world.rank, world.worker_of_rank) == (rank // replication, worker)


@pytest.mark.parametrize(
    ('replication', 'message'),
    [
        (0, 'Replication factor must be positive'),
        (-3, 'Replication factor must be positive'),
        (3, 'World size must be divisible by'),
    ],
)
def test_invalid_replication_is_an_error(replication: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        World(2, 4, 1, 0).replicate(replication)


def with_torch(monkeypatch: pytest.MonkeyPatch, info: Optional[Any]) -> None:
    module = ModuleType('torch.utils.data')
    module.get_worker_info = lambda: info  # type: ignore[attr-defined]
    monkeypatch.setitem(__import__('sys').modules, 'torch.utils.data', module)


def launched(monkeypatch: pytest.MonkeyPatch, **number: int) -> None:
    for name, value in number.items():
        monkeypatch.setattr(distributed, f'get_{name}', lambda value=value: value)


def test_detect_reads_launcher_and_worker_info(monkeypatch: pytest.MonkeyPatch) -> None:
    launched(monkeypatch, rank=5, world_size=8, local_world_size=4)
    with_torch(monkeypatch, None)
    assert World.detect().to_json() == World(2, 4, 1, 5).to_json()
    with_torch(monkeypatch, SimpleNamespace(id=2, num_workers=3))
    assert World.detect().to_json() == World(2, 4, 3, 17).to_json()


def test_detect_workers_keeps_rank_of_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(2, 4, 1, 5)
    with_torch(monkeypatch, SimpleNamespace(id=2, num_workers=3))
    # The environment of the worker says nothing of ranks.
    assert world.detect_workers().to_json() == World(2, 4, 3, 17).to_json()


def test_world_detection_does_not_import_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for name in [name for name in sys.modules if name.partition('.')[0] == 'torch']:
        monkeypatch.delitem(sys.modules, name)
    launched(monkeypatch, rank=0, world_size=1, local_world_size=1)
    assert World.detect().num_workers == 1
    assert 'torch' not in sys.modules


@pytest.mark.parametrize(
    ('given', 'named'),
    [
        ({'rank': 0, 'world_size': 2, 'local_world_size': 4}, ('world_size', 'local_world_size')),
        ({'rank': 0, 'world_size': 5, 'local_world_size': 2}, ('world_size', 'local_world_size')),
        ({'rank': 3, 'world_size': 2}, ('rank', 'world_size')),
        ({'rank': 0, 'world_size': 1, 'worker': 3, 'num_workers': 2}, ('worker', 'num_workers')),
        ({'worker': 2, 'num_workers': 2}, ('worker', 'num_workers')),
    ],
)
def test_inconsistent_world_arguments_are_errors(
    tmp_path: Path, given: dict[str, int], named: tuple[str, ...]
) -> None:
    data = written(tmp_path)
    with pytest.raises(UsageError) as raised:
        StreamingDataset(local=data, batch_size=4, **given)  # type: ignore[arg-type]
    assert raised.value.id == 'config-world'
    assert all(f'{name}' in str(raised.value) for name in named)


@pytest.mark.parametrize(
    'environment',
    [
        {'WORLD_SIZE': '2', 'LOCAL_WORLD_SIZE': '4'},
        {'WORLD_SIZE': '5', 'LOCAL_WORLD_SIZE': '2'},
        {'WORLD_SIZE': '2', 'LOCAL_WORLD_SIZE': '0'},
        {'RANK': '2', 'WORLD_SIZE': '2'},
        {
            'OMPI_COMM_WORLD_RANK': '0',
            'OMPI_COMM_WORLD_SIZE': '5',
            'OMPI_COMM_WORLD_LOCAL_SIZE': '2',
        },
    ],
)
def test_inconsistent_world_environment_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    data = written(tmp_path)
    for name in ('RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'LOCAL_WORLD_SIZE'):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError) as raised:
        StreamingDataset(local=data, batch_size=4)
    assert raised.value.id == 'config-world'
    assert all(name in str(raised.value) for name in list(environment)[-2:])
    # What is given does not need it.
    assert len(StreamingDataset(local=data, batch_size=4, rank=1, world_size=2)) == 4


def written(folder: Path) -> str:
    out = str(folder / 'set')
    with MDSWriter(out=out, columns={'id': 'int'}) as writer:
        for number in range(8):
            writer.write({'id': number})
    return out
