"""PyTorch Lightning: two processes, stopped in mid-epoch and resumed from a checkpoint.

Lightning asks every loader for its `state_dict` when it writes a checkpoint, and gives it back
before the first batch.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.apart import apart
from support.launch import launch
from support.samples import flat, numbers, write

from shardmill import StreamingDataLoader, StreamingDataset

if TYPE_CHECKING:
    from support.store import Store

    #: Of each rank, the epochs and batches.
    Ranks = list[list[list[Any]]]

if importlib.util.find_spec('lightning') is None:
    pytest.skip('PyTorch Lightning is not installed', allow_module_level=True)

PROGRAM = Path(__file__).parent / 'programs' / 'lightning_train.py'
SAMPLES = 192
BATCH = 8
#: Steps of an epoch of two processes.
STEPS = SAMPLES // BATCH // 2


@pytest.fixture(scope='module')
def even(served: Path) -> Path:
    """A dataset that both processes divide."""
    return write(served / 'even-lightning', SAMPLES)


def epochs(folder: Path) -> Ranks:
    """What each rank reads without Lightning."""
    ranks = []
    for rank in range(2):
        dataset = StreamingDataset(
            local=str(folder),
            batch_size=BATCH,
            shuffle=True,
            num_canonical_nodes=2,
            rank=rank,
            world_size=2,
            # Lightning does not know that both are on one machine.
            local_world_size=1,
        )
        loader = StreamingDataLoader(dataset, batch_size=BATCH)
        ranks.append([[epoch, numbers(batch)] for epoch in range(2) for batch in loader])
    return ranks


def fit(out: Path, store: Store, **options: Any) -> Ranks:
    """Trains; the epochs and batches of each rank."""
    out.mkdir(exist_ok=True)
    for old in out.glob('rank*.json'):
        old.unlink()
    defaults = {
        'remote': 's3://bucket/even-lightning',
        'local': str(out.parent / 'cache'),
        'out': str(out),
        'batch': BATCH,
        'workers': 0,
        'method': 'fork',
        'where': 'before',
        'stop': 0,
        'resume': False,
    }
    launch([str(PROGRAM), json.dumps({**defaults, **options})], store.environment, 240)
    return [json.loads((out / f'rank{rank}.json').read_text()) for rank in range(2)]


@pytest.mark.parametrize(
    ('strategy', 'where', 'workers', 'method'),
    [
        pytest.param('ddp_spawn', 'before', 0, 'fork', marks=pytest.mark.slow),
        ('ddp', 'before', 0, 'fork'),
        pytest.param('ddp_spawn', 'before', 2, 'spawn', marks=pytest.mark.slow),
        pytest.param('ddp', 'before', 2, 'fork', marks=pytest.mark.slow),
        pytest.param('ddp', 'late', 2, 'spawn', marks=pytest.mark.slow),
        pytest.param('ddp_spawn', 'late', 0, 'fork', marks=pytest.mark.slow),
    ],
)
def test_lightning_run_stops_and_resumes_mid_epoch(
    strategy: str,
    where: str,
    workers: int,
    method: str,
    even: Path,
    store: Store,
    tmp_path: Path,
) -> None:
    options: dict[str, Any] = {
        'strategy': strategy,
        'where': where,
        'workers': workers,
        'method': method,
    }
    whole = apart(epochs, even)
    for epoch in range(2):
        ranks = [[batch for number, batch in rank if number == epoch] for rank in whole]
        assert [len(rank) for rank in ranks] == [STEPS, STEPS]
        assert sorted(flat(ranks[0] + ranks[1])) == list(range(SAMPLES))
    out = tmp_path / 'out'
    begun = fit(out, store, **options, stop=5)
    assert begun == [rank[:5] for rank in whole]
    rest = fit(out, store, **options, resume=True)
    assert rest == [rank[5:] for rank in whole]
