"""Two processes whose samples another library splits: accelerate, transformers' Trainer, torchdata."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.launch import launch
from support.samples import flat

from shardmill import MDSWriter, StreamingDataLoader, StreamingDataset
from shardmill.base._sharding import Split
from shardmill.base.world import World

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

for package in ('accelerate', 'transformers', 'torchdata'):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f'{package} is not installed', allow_module_level=True)

PROGRAM = Path(__file__).parent / 'programs' / 'sharded_train.py'
#: No multiple of the global batch, nor of the processes.
SAMPLES = 1003
BATCH = 8
RANKS = 2
#: Steps of an epoch.
STEPS = -(-SAMPLES // (BATCH * RANKS))

DISPATCH: Any = {'dispatch_batches': True}
SHARD: Any = {'dispatch_batches': False}
SPLIT: Any = {'split_batches': True}
STATEFUL: Any = {**SHARD, 'use_stateful_dataloader': True}
GLOBAL: Any = {'batch': BATCH * RANKS}
WORKERS: Any = {'workers': 2}
SPAWNED: Any = {'workers': 2, 'method': 'spawn'}

Case = dict[str, Any]

#: What `accelerator.prepare` is given, and with which configuration.
ACCELERATE: dict[str, Case] = {
    'default': {},
    'default-streaming': {'loader': 'streaming'},
    'shard': {'config': SHARD},
    'shard-streaming-workers': {'config': SHARD, 'loader': 'streaming', **WORKERS},
    'shard-spawn': {'config': SHARD, **SPAWNED},
    'shard-split': {'config': {**SHARD, **SPLIT}, **GLOBAL},
    'shard-uneven': {'config': {**SHARD, 'even_batches': False}},
    'shard-stateful': {'config': STATEFUL},
    'shard-mapped': {'config': SHARD, 'shape': 'mapped'},
    'shard-subclass': {'config': SHARD, 'shape': 'subclass', **WORKERS},
    'dispatch-fork': {'config': DISPATCH, **WORKERS},
    'dispatch-spawn': {'config': DISPATCH, **SPAWNED},
    'dispatch-split': {'config': {**DISPATCH, **SPLIT}, **GLOBAL},
    'dispatch-mapped': {'config': DISPATCH, 'shape': 'mapped'},
}
TRAINER: dict[str, Case] = {
    'trainer-default': {'with': 'trainer'},
    'trainer-shard': {'with': 'trainer', 'config': SHARD},
}
TORCHDATA: dict[str, Case] = {
    'torchdata': {'with': 'torchdata'},
    'torchdata-workers': {'with': 'torchdata', **WORKERS},
}
#: The cases that run without `--slow`: each way of splitting, and each library.
QUICK = {
    'default',
    'shard',
    'shard-split',
    'shard-stateful',
    'shard-mapped',
    'dispatch-fork',
    'trainer-shard',
    'torchdata-workers',
}
#: Cases that are stopped in the middle of the second epoch, and how they continue.
STOPPED: dict[str, str] = {
    'default': 'skip',
    'shard-streaming-workers': 'skip',
    'shard-stateful': 'stateful',
    'trainer-default': 'skip',
    'trainer-shard': 'skip',
    'torchdata': 'state',
    'torchdata-workers': 'state',
}
STOP = STEPS + 5
REFUSED: dict[str, Case] = {
    'dispatch-stateful': {'config': {**DISPATCH, 'use_stateful_dataloader': True}},
}
EVERY: dict[str, Case] = {**ACCELERATE, **TRAINER, **TORCHDATA}

Results = dict[str, list[dict[str, Any]]]


def write_numbers(path: Path, samples: int) -> Path:
    """A dataset of numbers, which can be sent from one process to another as tensors."""
    columns = {'number': 'int', 'input': 'ndarray:float32:2'}
    with MDSWriter(out=str(path), columns=columns, size_limit=4000) as out:
        for number in range(samples):
            out.write({'number': number, 'input': np.full(2, number, np.float32)})
    return path


@pytest.fixture(scope='module')
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_numbers(tmp_path_factory.mktemp('trainers') / 'data', SAMPLES)


def run(folder: Path, out: Path, cases: dict[str, Case]) -> Results:
    """Runs cases in two processes, one after the other; what each process reports of each."""
    defaults = {
        'data': str(folder),
        'with': 'accelerate',
        'loader': 'torch',
        'workers': 0,
        'method': 'fork',
        'batch': BATCH,
        'shape': 'plain',
        'config': {},
        'dataset': {'batch_size': BATCH},
        'epochs': 1,
        'stop': 0,
        'resume': '',
    }
    given = [
        {**defaults, 'out': str(out / name), **case, 'name': name} for name, case in cases.items()
    ]
    words = ['-m', 'torch.distributed.run', '--standalone', '--nproc-per-node', str(RANKS)]
    launch([*words, str(PROGRAM), json.dumps(given)], {'CUDA_VISIBLE_DEVICES': ''}, 540)
    return {
        name: [json.loads((out / name / f'rank{rank}.json').read_text()) for rank in range(RANKS)]
        for name in cases
    }


#: Tests of one fixture run in one process of pytest-xdist, so that it is made once.
ONCE = pytest.mark.xdist_group('once')


def marked(names: Iterable[str]) -> list[Any]:
    """Parameters of tests: those that are not quick are slow."""
    return [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in names]


def chosen(names: Iterable[str], config: pytest.Config) -> list[str]:
    """The names that this run of the tests needs."""
    return [name for name in names if config.getoption('--slow') or name in QUICK]


@pytest.fixture(scope='module')
def once(
    folder: Path, pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Results:
    """The cases, for one epoch."""
    cases = {name: EVERY[name] for name in chosen(EVERY, pytestconfig)}
    return run(folder, tmp_path_factory.mktemp('once'), {**cases, **REFUSED})


@pytest.fixture(scope='module')
def stopped(
    folder: Path, pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Results, ...]:
    """Some cases for two epochs without a stop, up to one, and after it in other processes."""
    out = tmp_path_factory.mktemp('stopped')
    names = chosen(STOPPED, pytestconfig)
    two = {name: {**EVERY[name], 'epochs': 2} for name in names}
    begun = run(folder, out, {name: {**case, 'stop': STOP} for name, case in two.items()})
    rest = {name: {**case, 'resume': STOPPED[name]} for name, case in two.items()}
    whole = {f'{name}-whole': case for name, case in two.items()}
    both = run(folder, out, {**rest, **whole})
    return {name: both[f'{name}-whole'] for name in names}, begun, both


def samples(results: list[dict[str, Any]]) -> list[list[int]]:
    """The samples that each rank was given."""
    assert not any('error' in result for result in results), results
    return [flat([numbers for _, numbers in result['found']]) for result in results]


@ONCE
@pytest.mark.parametrize('name', marked(EVERY))
def test_split_ranks_read_every_sample_once(name: str, once: Results) -> None:
    results = once[name]
    found = samples(results)
    both = found[0] + found[1]
    assert len(set(both)) == SAMPLES, f'{len(set(both))} distinct samples'
    assert len(found[0]) == len(found[1])
    # As few twice as batches of equal size need.
    assert len(both) <= STEPS * BATCH * RANKS
    assert len(results[0]['found']) == STEPS


@ONCE
@pytest.mark.parametrize('name', marked(ACCELERATE))
def test_accelerate_counts_steps_and_gathers_all_samples(name: str, once: Results) -> None:
    result = once[name][0]
    assert set(result['gathered']) == set(range(SAMPLES))
    # accelerate counts too many steps of split batches of an iterable dataset.
    most = STEPS + 1 if name == 'shard-split' else STEPS
    assert STEPS <= result['steps'] <= most


@ONCE
@pytest.mark.parametrize('name', marked(TRAINER))
def test_trainer_takes_every_step_and_evaluates_all_samples(name: str, once: Results) -> None:
    results = once[name]
    assert results[0]['steps'] == STEPS
    assert set(flat(results[0]['evaluated'] + results[1]['evaluated'])) == set(range(SAMPLES))


@pytest.mark.xdist_group('stopped')
@pytest.mark.parametrize('name', marked(STOPPED))
def test_stopped_run_resumes_exactly(name: str, stopped: tuple[Results, ...]) -> None:
    whole, begun, rest = (results[name] for results in stopped)
    for rank in range(RANKS):
        expected = [numbers for _, numbers in whole[rank]['found']]
        first = [numbers for _, numbers in begun[rank]['found']]
        last = [numbers for _, numbers in rest[rank]['found']]
        assert len(first) == STOP
        assert first == expected[:STOP]
        assert last == expected[STOP:]
    # The epochs differ.
    assert len(expected) == 2 * STEPS
    assert expected[:STEPS] != expected[STEPS:]


@ONCE
def test_dispatching_ranks_cause_a_warning(once: Results) -> None:
    def warned(name: str, words: str) -> bool:
        return any(words in text for text in once[name][0]['warnings'])

    assert warned('default', 'dispatch_batches=False')
    assert warned('shard-mapped', 'collate_fn')
    assert not warned('shard', 'dispatch_batches')
    assert not warned('shard', 'collate_fn')


@ONCE
def test_state_with_dispatched_batches_is_rejected(once: Results) -> None:
    for result in once['dispatch-stateful']:
        assert 'dispatch_batches=False' in result['error']


def test_replication_is_derived_from_process_groups() -> None:
    world = World(2, 4, 1, 5)
    split = Split('Shard', False, True, 4, 2, BATCH, False)
    # Four groups of two ranks, as with tensor parallelism.
    assert split.order(world, None).replication == 2
    assert split.order(world, 2).replication == 2
    with pytest.raises(ValueError, match='replication is 4'):
        split.order(world, 4)
    # One that reads for all cannot give several ranks the same samples.
    with pytest.raises(ValueError, match='replication is 2'):
        split._replace(is_dispatched=True).order(world, 2)
    # What the user asks for stands where every rank is addressed by itself.
    alone = split._replace(processes=8, number=5)
    assert alone.order(world, 2).replication == 2
    # Processes that the dataset does not know of.
    found = split._replace(processes=3, number=1).order(World(1, 1, 2, 1), None).world
    assert (found.num_ranks, found.rank, found.worker_of_rank) == (3, 1, 1)


def test_different_loader_batch_size_warns(folder: Path) -> None:
    from accelerate.data_loader import IterableDatasetShard

    dataset = StreamingDataset(local=str(folder), batch_size=6)
    shard = IterableDatasetShard(dataset, 8, num_processes=3, process_index=0)
    with pytest.warns(UserWarning, match='of the loader is 8, and that of the dataset is 6'):
        next(iter(shard))


def test_direct_iterable_dataset_shard_is_detected(folder: Path) -> None:
    from accelerate.data_loader import IterableDatasetShard

    for split in (False, True):
        found = []
        for rank in range(3):
            dataset = StreamingDataset(local=str(folder), batch_size=6)
            size = 18 if split else 6
            shard = IterableDatasetShard(
                dataset, size, num_processes=3, process_index=rank, split_batches=split
            )
            found.append([int(sample['number']) for sample in shard])
        assert [len(rank) for rank in found] == [336] * 3
        assert set(flat(found)) == set(range(SAMPLES))


def test_loader_nested_in_iterable_dataset_warns(folder: Path) -> None:
    from accelerate.data_loader import IterableDatasetShard
    from torch.utils.data import IterableDataset

    class Loaded(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            dataset = StreamingDataset(local=str(folder), batch_size=6, rank=rank, world_size=3)
            for batch in StreamingDataLoader(dataset, batch_size=6):
                yield from batch['number'].tolist()

    found = []
    for rank in range(3):
        shard = IterableDatasetShard(Loaded(), 6, num_processes=3, process_index=rank)
        with pytest.warns(UserWarning, match='every rank has to read all samples'):
            found.append(list(shard))
    assert [len(rank) for rank in found] == [336] * 3
    assert set(flat(found)) == set(range(SAMPLES))


def test_set_epoch_counts_from_loaded_state(folder: Path) -> None:
    def dataset() -> StreamingDataset:
        return StreamingDataset(local=str(folder), batch_size=BATCH, shuffle=True)

    def numbers(data: StreamingDataset) -> list[int]:
        return [int(sample['number']) for sample in data]

    straight = dataset()
    epochs = [numbers(straight) for _ in range(5)]
    chosen = dataset()
    for epoch in (3, 1, 1):
        chosen.set_epoch(epoch)
        assert numbers(chosen) == epochs[epoch]
    assert numbers(chosen) == epochs[2]
    resumed = dataset()
    resumed.load_state_dict(
        {'epoch': 3, 'sample_in_epoch': 400, 'num_canonical_nodes': 1, 'shuffle_seed': 9176}
    )
    # accelerate counts the iterations of a process.
    for iteration, expected in enumerate([epochs[3][400:], epochs[4]]):
        resumed.set_epoch(iteration)
        resumed.set_epoch(iteration)
        assert numbers(resumed) == expected
    resumed.set_epoch(0)
    assert numbers(resumed) == epochs[3]
    with pytest.raises(ValueError, match='epochs count from 0'):
        resumed.set_epoch(-1)


def test_state_dict_without_num_samples_is_an_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other tests import the loader that asks the dataset itself.
    monkeypatch.delitem(sys.modules, 'torchdata.stateful_dataloader', raising=False)
    dataset = StreamingDataset(local=str(folder), batch_size=BATCH)
    iterator = iter(dataset)
    next(iterator)
    with pytest.raises(ValueError, match='num_samples'):
        dataset.state_dict()


GUIDE = Path(__file__).parents[2] / 'docs' / 'guide' / 'trainers.md'


def test_trainer_guide_snippets_run(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def forward(self, **batch: torch.Tensor) -> dict[str, torch.Tensor]:
            return {'loss': self.layer(batch['input']).mean()}

    monkeypatch.setenv('ACCELERATE_USE_CPU', 'true')
    snippets = re.findall(r'^```python\n(.*?)^```$', GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(snippets) == 5
    launched = types.ModuleType('launched')
    vars(launched).update(folder=str(folder), output=str(tmp_path), model=Model())
    monkeypatch.setitem(sys.modules, 'launched', launched)
    names: dict[str, Any] = {}
    steps, firsts = [], []
    for number, snippet in enumerate(snippets):
        exec(snippet, names)
        steps.append(names.get('step'))
        if number > 2:
            firsts.append(next(iter(names['loader']))['number'].tolist())
    # An epoch of one rank; torchdata stopped after its sixth batch, and continues with the next.
    assert steps == [125, 125, 125, 5, 5]
    assert names['trainer'].state.global_step == 2 * 126
    plain = StreamingDataset(local=str(folder), batch_size=BATCH, shuffle=True)
    order = [int(sample['number']) for sample in plain]
    assert firsts == [order[6 * BATCH : 7 * BATCH], order[3 * BATCH : 4 * BATCH]]
