"""Loader processes of every kind: what they read, and what happens when one of them is killed.

The data set is opened and read in the training process first, and an iteration is left open there:
whatever threads, locks, descriptors and connections reading takes, they are there when the loader
processes are started.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import re
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.apart import GRACE, apart, threads, until
from support.samples import BATCH, SAMPLES, flat, numbers, same
from torch.utils.data import DataLoader

from shardmill import StreamingDataLoader, StreamingDataset

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.store import Store

EPOCHS = 2
#: Seconds in which a killed loader process has to be told. Those of a fork server are not children
#: of the training process: torch looks for them every five seconds.
TOLD = {'fork': 5.0, 'spawn': 5.0, 'forkserver': 7.0}
#: What torch says of it; the last two where the process was handing over a tensor.
TELLING = (
    r'RuntimeError: DataLoader worker .*(exited unexpectedly|is killed by signal)'
    r'|ConnectionResetError|EOFError'
)
#: Batches before a loader process is killed.
BEFORE = 5

LOADERS: dict[str, Any] = {'streaming': StreamingDataLoader, 'torch': DataLoader}


def opened(remote: str | None, local: Path | str, **options: Any) -> StreamingDataset:
    """The data set of these tests."""
    options = {'batch_size': BATCH, 'shuffle': True, 'shuffle_seed': 7, **options}
    return StreamingDataset(remote=remote, local=str(local), **options)


def orders(folder: Path) -> list[list[list[int]]]:
    """The batches of each epoch, read in one process."""
    loader = LOADERS['torch'](opened(None, folder), batch_size=BATCH)
    return [[numbers(batch) for batch in loader] for _ in range(EPOCHS + 2)]


@pytest.fixture(scope='session')
def order(data: Path) -> list[list[list[int]]]:
    """What every case has to give: epochs of batches of numbers."""
    epochs = apart(orders, data)
    for epoch in epochs:
        assert sorted(flat(epoch)) == list(range(SAMPLES))
    assert len({str(epoch) for epoch in epochs}) == len(epochs)
    return epochs


def read_before(dataset: StreamingDataset) -> Iterator[Any]:
    """Reads a sample and the first batch of epoch 0, and leaves that iteration open."""
    assert same(dataset[SAMPLES // 2], SAMPLES // 2)
    begun = iter(dataset)
    for _ in range(BATCH):
        next(begun)
    return begun


def loop(
    remote: str | None,
    local: Path,
    kind: str,
    method: str,
    workers: int,
    persistent: bool,
) -> tuple[list[list[list[int]]], list[list[int]], str, float]:
    """Epochs 1 and 2, then one in which a loader process is killed.

    Returns:
        The batches of the epochs; those of the last one before the error; the error; seconds from
        the kill to it.
    """
    place = 'local' if remote is None else 'cache'
    dataset = opened(remote, local if remote is None else f'{os.environ["TMPDIR"]}/{place}')
    begun = read_before(dataset)
    if method == 'forkserver':
        # Else every loader process imports torch for itself.
        multiprocessing.set_forkserver_preload(['torch', 'shardmill.base.dataloader'])
    before = threads()
    loader = LOADERS[kind](
        dataset,
        batch_size=BATCH,
        num_workers=workers,
        persistent_workers=persistent,
        multiprocessing_context=method,
    )
    epochs = [[numbers(batch) for batch in loader] for _ in range(EPOCHS)]

    last, error, took = [], '', 0.0
    iteration = iter(loader)
    for _ in range(BEFORE):
        last.append(numbers(next(iteration)))
    victims = [process for process in multiprocessing.active_children() if process.pid]
    assert len(victims) == workers, victims
    victim = victims[0]
    killed = time.monotonic()
    try:
        victim.kill()
        last.extend(numbers(batch) for batch in iteration)
    except (RuntimeError, ConnectionError, EOFError) as raised:
        error, took = f'{type(raised).__name__}: {raised}', time.monotonic() - killed
    # By a signal, torch tells it wherever this process is; also when it has told it already.
    with contextlib.suppress(RuntimeError):
        assert until(lambda: not victim.is_alive(), GRACE)
    del iteration, loader
    gc.collect()
    assert until(lambda: not multiprocessing.active_children(), GRACE)
    left = {thread: name for thread, name in threads().items() if thread not in before}
    assert until(lambda: not set(threads()) - set(before), GRACE), left
    # The iteration that was there before is none the worse for it.
    rest = sum(1 for _ in begun)
    assert rest == SAMPLES - BATCH, rest
    if remote is not None:
        del begun, dataset
        gc.collect()
        remove(f'{os.environ["TMPDIR"]}/{place}')
    return epochs, last, error, took


def remove(folder: str) -> None:
    """Removes a cache: nothing but the files of one may be in it."""
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if os.path.isdir(path):
            remove(path)
        else:
            os.remove(path)
    os.rmdir(folder)


def cases() -> Iterator[Any]:
    """All ways to start loader processes; one of each kind is not slow."""
    quick = {
        ('spawn', False, 1, 'local', 'streaming'),
        ('spawn', True, 1, 's3', 'streaming'),
        ('forkserver', True, 4, 's3', 'streaming'),
        ('forkserver', False, 4, 's3', 'torch'),
    }
    for method in ('fork', 'forkserver', 'spawn'):
        for persistent in (False, True):
            for workers in (1, 4):
                for place in ('local', 's3'):
                    for kind in LOADERS:
                        case = method, persistent, workers, place, kind
                        marks = [] if method == 'fork' or case in quick else [pytest.mark.slow]
                        kept = 'persistent' if persistent else 'anew'
                        name = f'{method}-{kept}-{workers}-{place}-{kind}'
                        yield pytest.param(*case, marks=marks, id=name)


@pytest.mark.parametrize(('method', 'persistent', 'workers', 'place', 'kind'), cases())
def test_every_sample_once_then_one_is_killed(
    method: str,
    persistent: bool,
    workers: int,
    place: str,
    kind: str,
    data: Path,
    store: Store,
    order: list[list[list[int]]],
) -> None:
    remote = 's3://bucket/data' if place == 's3' else None
    epochs, last, error, took = apart(
        loop, remote, data, kind, method, workers, persistent, environment=store.environment
    )
    assert epochs == order[1 : 1 + EPOCHS]
    assert last == order[1 + EPOCHS][: len(last)]
    assert re.match(TELLING, error), f'{len(last)} batches, then: {error!r}'
    assert took < TOLD[method], took


def alone(remote: str | None, local: Path, kind: str) -> list[list[list[int]]]:
    """Two epochs without loader processes."""
    cache = f'{os.environ["TMPDIR"]}/cache'
    dataset = opened(remote, local if remote is None else cache)
    begun = read_before(dataset)
    loader = LOADERS[kind](dataset, batch_size=BATCH)
    epochs = [[numbers(batch) for batch in loader] for _ in range(EPOCHS)]
    # Another iteration of the same data set has begun since.
    assert list(begun) == []
    if remote is not None:
        del begun, loader, dataset
        remove(cache)
    return epochs


@pytest.mark.parametrize('kind', LOADERS)
@pytest.mark.parametrize('place', ['local', 's3'])
def test_every_sample_once_without_loader_processes(
    kind: str, place: str, data: Path, store: Store, order: list[list[list[int]]]
) -> None:
    remote = 's3://bucket/data' if place == 's3' else None
    epochs = apart(alone, remote, data, kind, environment=store.environment)
    assert epochs == order[1 : 1 + EPOCHS]


def while_a_thread_reads(local: Path, rounds: int) -> list[list[list[int]]]:
    """Epochs by loader processes that are forked while other threads read the same data sets."""
    dataset, other = opened(None, local), opened(None, local)
    ended = threading.Event()
    faults: list[str] = []

    def read() -> None:
        number = 0
        while not ended.is_set():
            for _ in other:
                number = (number * 31 + 7) % SAMPLES
                if not same(dataset[number], number):
                    faults.append(f'sample {number}')
                if ended.is_set():
                    return

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        loader = LOADERS['torch'](
            dataset, batch_size=BATCH, num_workers=2, multiprocessing_context='fork'
        )
        epochs = [[numbers(batch) for batch in loader] for _ in range(rounds)]
    finally:
        ended.set()
        for reader in readers:
            reader.join(GRACE)
    assert not faults, faults
    return epochs


def test_forked_while_threads_read(data: Path, order: list[list[list[int]]]) -> None:
    # Locks that a thread holds at the moment of the fork stay locked in the child.
    epochs = apart(while_a_thread_reads, data, 4)
    assert epochs == order[:4]


def two_at_once(local: Path) -> tuple[list[int], list[int]]:
    """Two loaders over two data sets, read in turns."""
    loaders = [
        StreamingDataLoader(opened(None, local, shuffle_seed=seed), batch_size=BATCH, num_workers=2)
        for seed in (1, 2)
    ]
    read: tuple[list[int], list[int]] = [], []
    for pair in zip(*loaders):
        for found, batch in zip(read, pair):
            found.extend(numbers(batch))
    return read


def test_two_loaders_at_once(data: Path) -> None:
    first, second = apart(two_at_once, data)
    assert sorted(first) == sorted(second) == list(range(SAMPLES))
    assert first != second


def killed_training(local: str, pipe: Any) -> None:
    """A training process that never gets to its end."""
    os.setsid()
    dataset = opened('s3://bucket/data', local)
    read_before(dataset)
    loader = StreamingDataLoader(dataset, batch_size=BATCH, num_workers=2)
    iteration = iter(loader)
    pipe.send(numbers(next(iteration)))
    threading.Event().wait(60)


def kill_and_start_again(local: Path) -> list[list[list[int]]]:
    """Kills a training process in mid-epoch and reads with the cache that it leaves."""
    from support.apart import of_session, shared_memory

    before = shared_memory()
    context = multiprocessing.get_context('fork')
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=killed_training, args=(str(local), sender))
    process.start()
    assert receiver.poll(30)
    assert len(receiver.recv()) == BATCH
    session = process.pid
    assert session is not None
    process.kill()
    process.join(GRACE)
    # torch's loader processes look for their parent every five seconds.
    assert until(lambda: not of_session(session), 3 * GRACE), of_session(session)
    assert shared_memory() <= before, shared_memory() - before
    loader = StreamingDataLoader(opened('s3://bucket/data', local), batch_size=BATCH, num_workers=2)
    return [[numbers(batch) for batch in loader]]


def test_a_killed_training_process_leaves_nothing_that_trips_the_next(
    tmp_path: Path, data: Path, store: Store, order: list[list[list[int]]]
) -> None:
    epochs = apart(kill_and_start_again, tmp_path / 'cache', environment=store.environment)
    assert epochs == order[:1]


def failing_worker(local: Path) -> tuple[list[list[int]], str]:
    """A loader process in which a sample cannot be read."""
    dataset = Failing(local=str(local), batch_size=BATCH)
    loader = StreamingDataLoader(dataset, batch_size=BATCH, num_workers=2)
    found = []
    try:
        for batch in loader:
            found.append(numbers(batch))
    except LookupError as error:
        return found, str(error)
    return found, ''


class Failing(StreamingDataset):
    """One of its samples is bad."""

    def get_item(self, sample_id: int, retry: int = 7) -> Any:
        if sample_id == 5 * BATCH + 3:
            raise LookupError(f'sample {sample_id} is bad')
        return super().get_item(sample_id, retry)


def test_an_error_in_a_loader_process_is_that_of_the_training_process(data: Path) -> None:
    found, error = apart(failing_worker, data)
    assert flat(found) == list(range(5 * BATCH))
    assert f'sample {5 * BATCH + 3} is bad' in error


def pinned_and_more(local: Path) -> dict[str, Any]:
    """What loader processes hand over is what torch makes of the samples itself."""
    dataset = opened(None, local, shuffle=False)
    ours = next(iter(StreamingDataLoader(dataset, batch_size=BATCH, num_workers=1)))
    dataset = opened(None, local, shuffle=False)
    theirs = next(iter(LOADERS['torch'](dataset, batch_size=BATCH, num_workers=1)))
    found = {}
    for name in theirs:
        if isinstance(theirs[name], torch.Tensor):
            same_type = ours[name].dtype == theirs[name].dtype
            found[name] = same_type and torch.equal(ours[name], theirs[name])
        else:
            found[name] = ours[name] == theirs[name]
    assert ours.keys() == theirs.keys()
    return found


def test_batches_of_loader_processes_are_those_of_torch(data: Path) -> None:
    found = apart(pinned_and_more, data)
    assert found and all(found.values()), found
