"""Threads that call Python code, and batches in compiled functions and without torch."""

from __future__ import annotations

import random
import subprocess
import sys
import sysconfig
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from support.apart import until
from support.samples import BATCH, SAMPLES, collate, flat, numbers

from shardmill import StreamingDataLoader, StreamingDataset
from shardmill.errors import UsageError


class Transformed(StreamingDataset[Any]):
    """A dataset with a transform."""

    def get_item(self, sample_id: int, retry: int = 7) -> Any:
        sample = super().get_item(sample_id, retry)
        assert int(sample['number']) == sample_id, 'a sample of another thread'
        return sample


def make(data: Path, **options: Any) -> StreamingDataLoader[Any]:
    dataset = Transformed(local=str(data), batch_size=BATCH, shuffle=True)
    return StreamingDataLoader(dataset, BATCH, collate_fn=collate, **options)


def test_thread_workers_keep_single_thread_order(data: Path) -> None:
    def epochs(**options: Any) -> list[list[int]]:
        loader = make(data, **options)
        return [numbers(batch) for _ in range(2) for batch in loader]

    alone = epochs()
    assert sorted(flat(alone)) == sorted([*range(SAMPLES)] * 2)
    assert epochs(num_workers=3, worker_type='threads') == alone
    short = epochs(num_workers=3, worker_type='threads', drop_last=True)
    assert short == [batch for batch in alone if len(batch) == BATCH]


def test_run_resumes_with_other_thread_count(data: Path) -> None:
    whole = [numbers(batch) for batch in make(data)]
    loader = make(data, num_workers=4, worker_type='threads')
    begun = []
    for batch in loader:
        begun.append(numbers(batch))
        if len(begun) == 7:
            break
    resumed = make(data, num_workers=2, worker_type='threads')
    # Batches that threads have made ahead do not count.
    resumed.load_state_dict(loader.state_dict() or {})
    assert begun + [numbers(batch) for batch in resumed] == whole


def test_thread_workers_collate_concurrently(data: Path) -> None:
    both = threading.Barrier(2)

    def meet(samples: list[Any]) -> Any:
        # All but the last batch have a partner.
        if len(samples) == BATCH:
            both.wait(60)
        return samples

    dataset = StreamingDataset(local=str(data), batch_size=BATCH)
    loader = StreamingDataLoader(
        dataset, BATCH, num_workers=2, worker_type='threads', collate_fn=meet, drop_last=True
    )
    assert sum(len(batch) for batch in loader) == SAMPLES // BATCH * BATCH
    assert SAMPLES // BATCH % 2 == 0


def test_dataset_can_be_shared_during_iteration(data: Path) -> None:
    single = make(data)
    alone = [numbers(batch) for _ in range(5) for batch in single]
    loader = make(data, num_workers=2, worker_type='threads')
    is_done = threading.Event()

    def use(seed: int) -> int:
        draw = random.Random(seed)
        used = 0
        while not is_done.is_set():
            number = draw.randrange(SAMPLES)
            assert int(loader.dataset[number]['number']) == number
            assert loader.stats().num_samples_yielded <= SAMPLES
            loader.state_dict()
            used += 1
        return used

    with ThreadPoolExecutor(3) as pool:
        users = [pool.submit(use, seed) for seed in range(3)]
        try:
            shared = [numbers(batch) for _ in range(5) for batch in loader]
        finally:
            is_done.set()
        assert min(user.result() for user in users) > 0
    assert shared == alone


@pytest.mark.skipif(
    not sysconfig.get_config_var('Py_GIL_DISABLED'), reason='this interpreter has a lock'
)
def test_import_keeps_gil_disabled_on_free_threaded_python() -> None:
    program = 'import sys, shardmill._core; print(sys._is_gil_enabled())'
    done = subprocess.run(
        [sys.executable, '-W', 'error', '-c', program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ['False']


def test_worker_threads_stop_with_the_iteration(data: Path) -> None:
    def running() -> bool:
        return any(each.name.startswith('shardmill-transform') for each in threading.enumerate())

    iterator = iter(make(data, num_workers=2, worker_type='threads'))
    next(iterator)
    assert running()
    iterator.close()  # type: ignore[attr-defined]
    assert until(lambda: not running(), 30)


def test_collate_error_propagates_from_worker_thread(data: Path) -> None:
    def fail(samples: list[Any]) -> Any:
        raise KeyError('from the transform')

    dataset = StreamingDataset(local=str(data), batch_size=BATCH)
    loader = StreamingDataLoader(
        dataset, BATCH, num_workers=2, worker_type='threads', collate_fn=fail
    )
    with pytest.raises(KeyError, match='from the transform'):
        next(iter(loader))


def test_invalid_thread_worker_arguments_are_errors(data: Path) -> None:
    dataset = StreamingDataset(local=str(data), batch_size=BATCH)
    for given, size, problem in (
        (dataset, 4, '`batch_size` is 4, and 8 in the dataset'),
        ([1, 2, 3], 4, 'list is no StreamingDataset'),
    ):
        with pytest.raises(UsageError, match=problem) as wrong:
            StreamingDataLoader(given, size, num_workers=2, worker_type='threads')  # type: ignore[arg-type]
        assert wrong.value.object == 'worker_type'
    with pytest.raises(ValueError, match='worker_type'):
        StreamingDataLoader(dataset, BATCH, worker_type='fibres')


def test_compiled_function_is_not_recompiled_per_batch(data: Path) -> None:
    compiled = []

    def backend(graph: Any, _: list[Any]) -> Any:
        compiled.append(graph)
        return graph.forward

    def total(batch: dict[str, Any]) -> Any:
        return batch['vector'].sum() + (batch['number'] * 2).sum()

    step = torch.compile(total, backend=backend, fullgraph=True)
    dataset = StreamingDataset(local=str(data), batch_size=BATCH, shuffle=True)
    for batch in StreamingDataLoader(dataset, BATCH, drop_last=True):
        tensors = {name: batch[name] for name in ('vector', 'number')}
        assert torch.equal(step(tensors), total(tensors))
    assert len(compiled) == 1


WITHOUT_TORCH = """
import importlib.util
import sys
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == 'torch' else find(name, *rest)
import numpy as np
from shardmill import StreamingDataset
{imports}
dataset = StreamingDataset(local={data!r}, batch_size=8)
for number, batch in enumerate(dataset.batches(columns=['number', 'vector'])):
    taken = {{name: {take}(values) for name, values in batch.items()}}
    assert taken['number'].tolist() == batch['number'].tolist()
    assert np.array_equal(np.asarray(taken['vector']), batch['vector'])
assert number == 50, number
assert 'torch' not in sys.modules
"""


@pytest.mark.parametrize(
    ('package', 'imports', 'take'),
    [('numpy', '', 'np.from_dlpack'), ('jax', 'import jax.numpy', 'jax.numpy.from_dlpack')],
)
def test_batches_export_by_dlpack_without_torch(
    package: str, imports: str, take: str, data: Path
) -> None:
    pytest.importorskip(package)
    program = WITHOUT_TORCH.format(data=str(data), imports=imports, take=take)
    done = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
