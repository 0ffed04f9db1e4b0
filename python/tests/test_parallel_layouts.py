"""Layouts in which tensor, context or pipeline parallel ranks share samples."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.launch import launch
from support.samples import flat, write

from shardmill import StreamingDataLoader, StreamingDataset
from shardmill.base.world import World
from shardmill.errors import UsageError

SAMPLES = 288
GLOBAL = 24
NAMES = ('pp', 'dp_replicate', 'dp_shard', 'cp', 'tp')
DATA = ('dp_replicate', 'dp_shard')
PROGRAM = Path(__file__).parent / 'programs' / 'mesh_train.py'


class Mesh(NamedTuple):
    """What the dataset reads of a `DeviceMesh`."""

    mesh_dim_names: tuple[str, ...]
    shape: tuple[int, ...]
    coordinate: tuple[int, ...]

    def get_coordinate(self) -> list[int]:
        return list(self.coordinate)


def meshes(names: tuple[str, ...], shape: tuple[int, ...]) -> Iterator[Mesh]:
    """The mesh as each rank sees it."""
    for coordinate in itertools.product(*map(range, shape)):
        yield Mesh(names, shape, coordinate)


@pytest.fixture(scope='module')
def even(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp('layouts') / 'even', SAMPLES)


def loader(data: Path, **options: Any) -> StreamingDataLoader:
    dataset = StreamingDataset(
        local=str(data), shuffle=True, num_canonical_nodes=4, shuffle_block_size=50, **options
    )
    return StreamingDataLoader(dataset, batch_size=dataset.batch_size)


def take(data: Path, each: StreamingDataLoader, count: int | None) -> tuple[Any, Any]:
    batches = [batch['number'].tolist() for batch in itertools.islice(each, count)]
    return batches, each.state_dict()


def global_batches(
    data: Path, ranks: list[Mesh], count: int | None, state: Any
) -> tuple[list[list[int]], Any]:
    """The samples of each step, after checking that ranks share what they should share, and the state."""
    by_data: dict[tuple[int, ...], list[list[int]]] = {}
    states = []
    for mesh in ranks:
        places = [mesh.mesh_dim_names.index(name) for name in DATA]
        size = mesh.shape[places[0]] * mesh.shape[places[1]]
        each = loader(data, mesh=mesh, data_dims=DATA, batch_size=GLOBAL // size)
        if state is not None:
            each.load_state_dict(state)
        batches, after = take(data, each, count)
        states.append(after)
        key = tuple(mesh.coordinate[place] for place in places)
        assert by_data.setdefault(key, batches) == batches
    assert all(each == states[0] for each in states)
    return [sorted(flat(list(step))) for step in zip(*by_data.values())], states[0]


def layout(choose: random.Random) -> list[Mesh]:
    """A random mesh of at most 12 ranks, with its dimensions in a random order."""
    while True:
        shape = [choose.choice([1, 1, 2, 3]) for _ in NAMES]
        sizes = dict(zip(NAMES, shape))
        if math.prod(shape) <= 12 and GLOBAL % (sizes['dp_replicate'] * sizes['dp_shard']) == 0:
            names = choose.sample(NAMES, len(NAMES))
            return list(meshes(tuple(names), tuple(sizes[name] for name in names)))


@pytest.mark.parametrize('layouts', [25, pytest.param(200, marks=pytest.mark.slow)])
def test_resume_with_random_layouts_keeps_global_batches(even: Path, layouts: int) -> None:
    whole, _ = take(even, loader(even, batch_size=GLOBAL), None)
    expected = [sorted(batch) for batch in whole]
    assert sorted(flat(whole)) == list(range(SAMPLES))
    choose = random.Random(20)
    for _ in range(layouts):
        stop = choose.randrange(1, SAMPLES // GLOBAL)
        begun, state = global_batches(even, layout(choose), stop, None)
        rest, _ = global_batches(even, layout(choose), None, state)
        assert begun + rest == expected


def test_tensor_parallel_mesh_equals_replication(even: Path) -> None:
    for rank, mesh in enumerate(meshes(('dp', 'tp'), (3, 4))):
        one = loader(even, mesh=mesh, data_dims='dp', batch_size=8)
        other = loader(even, rank=rank, world_size=12, replication=4, batch_size=8)
        assert take(even, one, None)[0] == take(even, other, None)[0]


def test_data_rank_uses_node_count_of_launcher(even: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {'RANK': 5, 'WORLD_SIZE': 16, 'LOCAL_WORLD_SIZE': 4}.items():
        monkeypatch.setenv(name, str(value))
    dataset = StreamingDataset(local=str(even), data_rank=2, data_world_size=8, batch_size=3)
    expected = World.detect().replicate(2)
    found = dataset._unique_rank_world
    assert (found.num_nodes, found.ranks_per_node, found.rank) == (
        expected.num_nodes,
        expected.ranks_per_node,
        2,
    )
    alone = StreamingDataset(local=str(even), data_rank=2, data_world_size=3, batch_size=8)
    assert alone._unique_rank_world.num_nodes == 1


class Outside(Mesh):
    def get_coordinate(self) -> Any:
        return None


@pytest.mark.parametrize(
    ('options', 'object_'),
    [
        ({'data_rank': 1}, 'data_world_size'),
        ({'data_rank': 4, 'data_world_size': 4}, 'data_rank'),
        ({'data_dims': 'dp'}, 'data_dims'),
        ({'mesh': Mesh(('dp',), (2,), (0,)), 'data_dims': 'ddp'}, 'data_dims'),
        ({'mesh': Mesh((), (2,), (0,))}, 'data_dims'),
        ({'mesh': Mesh(('dp',), (2,), (0,)), 'data_rank': 0, 'data_world_size': 2}, 'mesh'),
        ({'mesh': Outside(('dp',), (2,), (0,))}, 'mesh'),
        ({'data_rank': 0, 'data_world_size': 2, 'rank': 0, 'world_size': 2}, 'rank'),
        ({'data_rank': 0, 'data_world_size': 2, 'replication': 2}, 'replication'),
    ],
)
def test_contradictory_layout_arguments_are_errors(
    even: Path, options: dict[str, Any], object_: str
) -> None:
    with pytest.raises(UsageError) as wrong:
        StreamingDataset(local=str(even), batch_size=8, **options)
    assert wrong.value.object == object_


def test_torch_device_mesh_replicas_read_disjoint_samples(even: Path, tmp_path: Path) -> None:
    """Four processes of torchrun, as two replicas of a model on two ranks each, on one cache."""
    launcher = ['-m', 'torch.distributed.run', '--standalone', '--nproc-per-node', '4']
    launch([*launcher, str(PROGRAM), str(tmp_path), str(even)], {}, 120)
    ranks = [json.loads((tmp_path / f'rank{rank}.json').read_text()) for rank in range(4)]
    assert ranks[0] == ranks[1]
    assert ranks[2] == ranks[3]
    assert sorted(flat(ranks[0] + ranks[2])) == list(range(SAMPLES))
