"""Runs of several processes, started by torch's own launcher: gloo on the CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.launch import launch
from support.samples import flat, write

if TYPE_CHECKING:
    from support.store import Store

PROGRAM = Path(__file__).parent / 'programs' / 'torchrun_train.py'
#: Samples of the dataset: a multiple of the global batch of these tests.
SAMPLES = 384
GLOBAL = 24


@pytest.fixture(scope='module')
def even(served: Path) -> Path:
    """A dataset that every number of processes divides."""
    return write(served / 'even', SAMPLES)


def torchrun(processes: int, out: Path, *words: object, store: Store) -> list[list[list[int]]]:
    """Runs the program; the batches of each rank."""
    out.mkdir(exist_ok=True)
    for old in out.glob('rank*.json'):
        old.unlink()
    launcher = ['-m', 'torch.distributed.run', '--standalone', '--nproc-per-node', str(processes)]
    launch([*launcher, str(PROGRAM), str(out), *map(str, words)], store.environment, 120)
    files = [out / f'rank{rank}.json' for rank in range(processes)]
    return [json.loads(file.read_text()) for file in files]


def steps(ranks: list[list[list[int]]]) -> list[list[int]]:
    """The samples of each global batch; all ranks have as many."""
    assert len(set(map(len, ranks))) == 1, list(map(len, ranks))
    assert {len(batch) for rank in ranks for batch in rank} == {GLOBAL // len(ranks)}
    return [sorted(flat(list(batches))) for batches in zip(*ranks)]


@pytest.mark.parametrize('workers', [pytest.param(0, marks=pytest.mark.slow), 2])
def test_resume_with_other_process_count_keeps_sample_order(
    workers: int, even: Path, store: Store, tmp_path: Path
) -> None:
    remote, local = 's3://bucket/even', tmp_path / 'cache'

    def run(processes: int, out: Path, count: int) -> list[list[int]]:
        batch = GLOBAL // processes
        return steps(torchrun(processes, out, remote, local, batch, count, workers, store=store))

    whole = run(2, tmp_path / 'whole', 0)
    assert sorted(flat(whole)) == list(range(SAMPLES))
    parts = tmp_path / 'parts'
    found = run(2, parts, 5)
    state = json.loads((parts / 'state.json').read_text())
    assert (state['epoch'], state['sample_in_epoch']) == (0, 5 * GLOBAL)
    found += run(3, parts, 4)
    found += run(1, parts, 0)
    assert found == whole


def test_uneven_sample_count_is_padded_to_equal_ranks(
    data: Path, store: Store, tmp_path: Path
) -> None:
    ranks = torchrun(2, tmp_path, 's3://bucket/data', tmp_path / 'cache', 8, 0, 0, store=store)
    # 403 samples, and one of them twice.
    assert [len(flat(rank)) for rank in ranks] == [202, 202]
    assert sorted({*flat(ranks[0]), *flat(ranks[1])}) == list(range(403))
