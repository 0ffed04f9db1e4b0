"""Real trainers: trained, stopped in the middle of an epoch, and resumed with another number of processes."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.launch import launch
from support.samples import flat

from shardmill import MDSWriter, StreamingDataLoader, StreamingDataset

PROGRAM = Path(__file__).parent / 'train.py'
SAMPLES = 288
GLOBAL = 24
EPOCHS = 2
#: Each with the package that it needs.
TRAINERS = {
    'lightning': 'lightning',
    'accelerate_skip': 'accelerate',
    'accelerate_state': 'accelerate',
    'transformers': 'transformers',
    'composer': 'mosaicml',
    'checkpoint': 'torch',
    'torchtitan': 'torchtitan',
    'torchdata': 'torchdata',
    'nodes': 'torchdata',
    'megatron_sampler': 'megatron-bridge',
    'megatron_external': 'torch',
}
#: Processes and steps of each part of a run. The last part reaches the end.
SHORT = [(2, 5), (3, 0)]
FULL = [(2, 5), (4, 10), (1, 2), (3, 0)]


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


INSTALLED = [name for name, package in TRAINERS.items() if version(package)]


@pytest.fixture(scope='module')
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp('trainers') / 'data'
    columns = {'number': 'int', 'input': 'ndarray:float32:2'}
    with MDSWriter(out=str(folder), columns=columns, size_limit=1000) as out:
        for number in range(SAMPLES):
            out.write({'number': number, 'input': np.full(2, number, np.float32)})
    return folder


@pytest.fixture(scope='module')
def expected(data: Path) -> list[list[int]]:
    """The global batches of one process without a trainer."""
    dataset = StreamingDataset(
        local=str(data), shuffle=True, batch_size=GLOBAL, num_canonical_nodes=2
    )
    loader = StreamingDataLoader(dataset, GLOBAL)
    return [sorted(batch['number'].tolist()) for _ in range(EPOCHS) for batch in loader]


def run(
    data: Path, out: Path, trainers: list[str], parts: list[tuple[int, int]], workers: int = 0
) -> dict[str, list[list[int]]]:
    """Runs trainers in several parts. Returns the global batches of each trainer."""
    found: dict[str, list[list[int]]] = {name: [] for name in trainers}
    for number, (processes, steps) in enumerate(parts):
        given: list[dict[str, Any]] = [
            {
                'trainer': name,
                'data': str(data),
                'out': str(out / name),
                'batch': GLOBAL,
                'epochs': EPOCHS,
                'stop': steps,
                'resume': number > 0,
                'workers': workers,
            }
            for name in trainers
        ]
        words = ['-m', 'torch.distributed.run', '--standalone', '--nproc-per-node', str(processes)]
        launch([*words, str(PROGRAM), json.dumps(given)], {'CUDA_VISIBLE_DEVICES': ''}, 540)
        for name in trainers:
            ranks = [
                json.loads((out / name / f'rank{rank}.json').read_text())
                for rank in range(processes)
            ]
            assert len(set(map(len, ranks))) == 1
            found[name] += [sorted(flat(list(step))) for step in zip(*ranks)]
    return found


def check(name: str, found: list[list[int]], expected: list[list[int]]) -> None:
    steps = SAMPLES // GLOBAL
    assert len(found) == EPOCHS * steps
    for epoch in range(EPOCHS):
        every = flat(found[epoch * steps : (epoch + 1) * steps])
        assert sorted(every) == list(range(SAMPLES)), 'samples are lost or repeated'
    if name == 'megatron_sampler':
        # It has an order of its own, which is not shuffled.
        expected = [list(range(at, at + GLOBAL)) for at in range(0, SAMPLES, GLOBAL)] * EPOCHS
    assert found == expected


@pytest.fixture(scope='module', params=[0, 2])
def found(
    request: pytest.FixtureRequest, data: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, list[list[int]]]]:
    """The global batches of runs with a stop, and without."""
    workers: int = request.param
    out = tmp_path_factory.mktemp('runs')
    if not request.config.getoption('--full'):
        if workers:
            pytest.skip('needs --full')
        return [run(data, out, INSTALLED, SHORT)]
    missing = [package for package in TRAINERS.values() if not version(package)]
    assert not missing, f'not installed: {missing}'
    return [
        run(data, out / str(len(parts)), INSTALLED, parts, workers) for parts in ([(2, 0)], FULL)
    ]


@pytest.mark.parametrize('name', INSTALLED)
def test_trainers_resume_with_other_process_count(
    name: str, found: list[dict[str, list[list[int]]]], expected: list[list[int]]
) -> None:
    for each in found:
        check(name, each[name], expected)
