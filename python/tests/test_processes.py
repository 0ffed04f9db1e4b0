"""Loader processes of every kind: what they read, and what happens when one of them is killed.

The dataset is opened and read in the training process first, and an iteration is left open there:
whatever threads, locks, descriptors and connections reading takes, they are there when the loader
processes are started.
"""

from __future__ import annotations

import fcntl
import functools
import gc
import multiprocessing
import os
import re
import shutil
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.apart import GRACE, apart, threads, until
from support.samples import BATCH, SAMPLES, flat, in_worker, numbers, same
from torch.utils.data import DataLoader

from shardmill import StreamingDataLoader, StreamingDataset
from shardmill.base import distributed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
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

#: Those that start processes, with the arguments of these tests.
LOADERS: dict[str, Any] = {
    'streaming': functools.partial(StreamingDataLoader, worker_init_fn=in_worker),
    'torch': DataLoader,
    'threads': StreamingDataLoader,
}


def opened(remote: str | None, local: Path | str, **options: Any) -> StreamingDataset:
    """The dataset of these tests."""
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
    cache = f'{os.environ["TMPDIR"]}/cache'
    dataset = opened(remote, local if remote is None else f'{cache}/local')
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
        try:
            victim.kill()
            last.extend(numbers(batch) for batch in iteration)
        except (RuntimeError, ConnectionError, EOFError) as raised:
            error, took = f'{type(raised).__name__}: {raised}', time.monotonic() - killed
        assert until(lambda: not victim.is_alive(), GRACE)
    except RuntimeError as raised:
        # By a signal, torch tells it wherever this process is, also when it has told it already.
        if not error:
            error, took = f'{type(raised).__name__}: {raised}', time.monotonic() - killed
    del iteration, loader
    gc.collect()
    assert until(lambda: not multiprocessing.active_children(), GRACE)

    def left() -> dict[int, str]:
        """Threads that were not there before, but for those of torch's queues: a killed process may leave one."""
        queues = {
            thread.native_id
            for thread in threading.enumerate()
            if thread.name.startswith('QueueFeederThread')
        }
        found = threads()
        return {number: found[number] for number in found.keys() - before.keys() - queues}

    assert until(lambda: not left(), GRACE), (left(), threading.enumerate())
    # The iteration that was there before is none the worse for it.
    rest = sum(1 for _ in begun)
    assert rest == SAMPLES - BATCH, rest
    if remote is not None:
        del begun, dataset
        gc.collect()
        shutil.rmtree(cache)
    return epochs, last, error, took


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
                    for kind in ('streaming', 'torch'):
                        case = method, persistent, workers, place, kind
                        marks = [] if method == 'fork' or case in quick else [pytest.mark.slow]
                        kept = 'persistent' if persistent else 'anew'
                        name = f'{method}-{kept}-{workers}-{place}-{kind}'
                        yield pytest.param(*case, marks=marks, id=name)


@pytest.mark.parametrize(('method', 'persistent', 'workers', 'place', 'kind'), list(cases()))
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
    # By torch's own loader also where it asks for one from a process that is gone.
    telling = f'{TELLING}|ConnectionRefusedError' if kind == 'torch' else TELLING
    assert re.match(telling, error), f'{len(last)} batches, then: {error!r}'
    assert took < TOLD[method], took


def alone(
    remote: str | None, local: Path, kind: str, options: dict[str, Any]
) -> list[list[list[int]]]:
    """Two epochs without loader processes."""
    cache = f'{os.environ["TMPDIR"]}/cache'
    dataset = opened(remote, local if remote is None else f'{cache}/local')
    begun = read_before(dataset)
    before = threads()
    loader = LOADERS[kind](dataset, batch_size=BATCH, **options)
    epochs = []
    for _ in range(EPOCHS):
        found = []
        for batch in loader:
            found.append(numbers(batch))
            assert not multiprocessing.active_children()
        epochs.append(found)
    assert until(lambda: not set(threads()) - set(before), GRACE), threads()
    # Another iteration of the same dataset has begun since.
    assert list(begun) == []
    if remote is not None:
        del begun, loader, dataset
        shutil.rmtree(cache)
    return epochs


#: Loaders that start no process.
ALONE: dict[str, tuple[str, dict[str, Any]]] = {
    'torch-0': ('torch', {}),
    'streaming-0': ('streaming', {}),
    'threads-1': ('threads', {'num_workers': 1}),
    'threads-4': ('threads', {'num_workers': 4}),
}


@pytest.mark.parametrize('case', ALONE)
@pytest.mark.parametrize('place', ['local', 's3'])
def test_samples_are_read_once_without_loader_processes(
    case: str, place: str, data: Path, store: Store, order: list[list[list[int]]]
) -> None:
    remote = 's3://bucket/data' if place == 's3' else None
    epochs = apart(alone, remote, data, *ALONE[case], environment=store.environment)
    assert epochs == order[1 : 1 + EPOCHS]


def while_a_thread_reads(local: Path, rounds: int) -> list[list[list[int]]]:
    """Epochs by loader processes that are forked while other threads read the same datasets."""
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


def test_fork_while_threads_read_does_not_deadlock(
    data: Path, order: list[list[list[int]]]
) -> None:
    # Locks that a thread holds at the moment of the fork stay locked in the child.
    epochs = apart(while_a_thread_reads, data, 4)
    assert epochs == order[:4]


def several_at_once(local: Path) -> list[list[int]]:
    """Loaders over several datasets, read in turns."""
    loaders = [
        LOADERS[kind](opened(None, local, shuffle_seed=seed), batch_size=BATCH, num_workers=2)
        for seed, kind in enumerate(LOADERS)
    ]
    read: list[list[int]] = [[] for _ in loaders]
    for batches in zip(*loaders):
        for found, batch in zip(read, batches):
            found.extend(numbers(batch))
    return read


def test_concurrent_loaders_read_all_samples(data: Path) -> None:
    read = apart(several_at_once, data)
    assert [sorted(found) for found in read] == [list(range(SAMPLES))] * len(LOADERS)
    assert len(set(map(str, read))) == len(LOADERS)


def iterations_at_once(local: Path) -> list[list[list[int]]]:
    """Three iterations of one loader, open at the same time."""
    loader = LOADERS['torch'](opened(None, local), batch_size=BATCH, num_workers=3)
    begun = []
    for _ in range(3):
        # As a program does that sets its seed for every epoch: the same for all three.
        torch.manual_seed(0)
        begun.append(iter(loader))
        numbers(next(begun[-1]))
    rest = [[numbers(batch) for batch in iteration] for iteration in reversed(begun)]
    return rest[::-1]


def test_concurrent_iterations_of_one_loader_are_epochs(
    data: Path, order: list[list[list[int]]]
) -> None:
    # The iterations are epochs, in the order in which they were begun.
    assert apart(iterations_at_once, data) == [epoch[1:] for epoch in order[:3]]


def left_early(local: Path, method: str) -> list[list[list[int]]]:
    """Iterations that are left before all of their processes have begun."""
    dataset = opened(None, local)
    for workers in (4, 2, 3):
        loader = LOADERS['torch'](
            dataset, batch_size=BATCH, num_workers=workers, multiprocessing_context=method
        )
        numbers(next(iter(loader)))
    loader = LOADERS['torch'](
        dataset, batch_size=BATCH, num_workers=4, multiprocessing_context=method
    )
    return [[numbers(batch) for batch in loader]]


@pytest.mark.parametrize('method', ['fork', pytest.param('spawn', marks=pytest.mark.slow)])
def test_abandoned_iterations_count_as_epochs(
    method: str, data: Path, order: list[list[list[int]]]
) -> None:
    # Each is an epoch; no process may join one that is over.
    assert apart(left_early, data, method) == order[3:4]


def fetching(local: str, pipe: Any) -> None:
    """A training process that fetches a shard, starts a process, and is killed."""
    os.setsid()
    dataset = opened('s3://bucket/slow-shards/data', local)
    threading.Thread(target=next, args=(iter(dataset),), daemon=True).start()
    pipe.recv()
    child = multiprocessing.get_context('fork').Process(target=threading.Event().wait, args=(60,))
    child.start()
    pipe.send(child.pid)
    threading.Event().wait(60)


def locked(folder: Path) -> list[str]:
    """The files below a folder that some process holds a lock on, on all of the file or on a part."""
    found = []
    for path in (path for path in folder.rglob('*') if path.is_file()):
        with path.open('r+b') as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                found.append(path.name)
    return found


@pytest.mark.usefixtures('data')
def test_a_process_does_not_hold_the_locks_of_its_killed_parent(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    store.forget_slow()
    context = multiprocessing.get_context('fork')
    ours, theirs = context.Pipe()
    process = context.Process(target=fetching, args=(str(tmp_path / 'local'), theirs))
    process.start()
    try:
        asked = store.wait_for_slow(60)
        assert until(lambda: locked(tmp_path), 5), asked
        ours.send('start')
        assert ours.poll(60)
        child = ours.recv()
    finally:
        process.kill()
        process.join(GRACE)
    try:
        assert until(lambda: not locked(tmp_path), 5), locked(tmp_path)
        os.kill(child, 0)
    finally:
        os.kill(child, signal.SIGKILL)


def starts_late(worker: int) -> None:
    """Worker 1 is ready only when its parent has ended."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    if worker == 1:
        parent.join(GRACE)


def killed_training(local: str, init: Callable[[int], None], pipe: Any) -> None:
    """A training process that never gets to its end."""
    os.setsid()
    dataset = opened('s3://bucket/data', local)
    read_before(dataset)
    loader = StreamingDataLoader(dataset, batch_size=BATCH, num_workers=2, worker_init_fn=init)
    iteration = iter(loader)
    pipe.send(numbers(next(iteration)))
    threading.Event().wait(60)


def kill_and_start_again(local: Path, init: Callable[[int], None]) -> list[list[list[int]]]:
    """Kills a training process in mid-epoch and reads with the cache that it leaves."""
    from support.apart import of_session, shared_memory

    before = shared_memory()
    context = multiprocessing.get_context('fork')
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=killed_training, args=(str(local), init, sender))
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
    dataset = opened('s3://bucket/data', local)
    loader = LOADERS['streaming'](dataset, batch_size=BATCH, num_workers=2)
    return [[numbers(batch) for batch in loader]]


@pytest.mark.parametrize('init', [in_worker, starts_late])
def test_a_killed_training_process_leaves_nothing_that_trips_the_next(
    init: Callable[[int], None],
    tmp_path: Path,
    data: Path,
    store: Store,
    order: list[list[list[int]]],
) -> None:
    epochs = apart(kill_and_start_again, tmp_path / 'cache', init, environment=store.environment)
    assert epochs == order[:1]


def one_rank(dataset: StreamingDataset, rank: int, kind: str, workers: int, pipe: Any) -> None:
    """A training process that received its dataset at start and learns its rank later."""
    os.environ.update(RANK=str(rank), WORLD_SIZE='2', LOCAL_WORLD_SIZE='2')
    loader = LOADERS[kind](dataset, batch_size=BATCH, num_workers=workers)
    assert len(loader) == -(-(SAMPLES + 1) // 2 // BATCH)
    # As many programs do, on all ranks alike.
    torch.manual_seed(1)
    pipe.send([[numbers(batch) for batch in loader] for _ in range(EPOCHS)])
    pipe.close()


def launched(local: Path, method: str, kind: str, workers: int) -> list[Any]:
    """Two ranks with a dataset that was opened, and read, where they were started."""
    dataset = opened(None, local)
    context: Any = multiprocessing.get_context(method)
    ranks: list[tuple[Any, Any]] = []
    for rank in range(2):
        receiver, sender = context.Pipe(duplex=False)
        process: Any = context.Process(target=one_rank, args=(dataset, rank, kind, workers, sender))
        process.start()
        sender.close()
        ranks.append((process, receiver))
    assert same(dataset[3], 3)
    found = [receiver.recv() for _, receiver in ranks]
    for process, _ in ranks:
        process.join(GRACE)
        assert process.exitcode == 0
    return found


def ranks_apart(local: Path) -> list[Any]:
    """What two ranks read, each of which has opened the dataset for itself."""
    found = []
    for rank in range(2):
        loader = LOADERS['threads'](opened(None, local, rank=rank, world_size=2), batch_size=BATCH)
        found.append([[numbers(batch) for batch in loader] for _ in range(EPOCHS)])
    return found


@pytest.mark.parametrize(
    ('method', 'kind', 'workers'),
    [
        ('fork', 'torch', 0),
        ('fork', 'torch', 2),
        ('fork', 'streaming', 2),
        ('fork', 'threads', 2),
        ('spawn', 'streaming', 0),
        pytest.param('spawn', 'torch', 2, marks=pytest.mark.slow),
        pytest.param('forkserver', 'streaming', 2, marks=pytest.mark.slow),
    ],
)
def test_ranks_can_inherit_an_open_dataset(
    method: str, kind: str, workers: int, data: Path
) -> None:
    wanted = apart(ranks_apart, data)
    for epoch in range(EPOCHS):
        assert {*flat(wanted[0][epoch]), *flat(wanted[1][epoch])} == set(range(SAMPLES))
    assert apart(launched, data, method, kind, workers) == wanted


def failing_worker(local: Path) -> tuple[list[list[int]], str]:
    """A loader process in which a sample cannot be read."""
    dataset = Failing(local=str(local), batch_size=BATCH)
    # torch waits five seconds for each worker that it stops in mid-epoch: one is enough.
    loader = StreamingDataLoader(dataset, batch_size=BATCH, num_workers=1)
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


def test_loader_process_error_reaches_training_process(data: Path) -> None:
    found, error = apart(failing_worker, data)
    assert flat(found) == list(range(5 * BATCH))
    assert f'sample {5 * BATCH + 3} is bad' in error


def in_a_group(local: Path, workers: int) -> list[list[int]]:
    """The batches of rank 1 of 2, which the process group knows of and the environment only in part."""
    os.environ['LOCAL_WORLD_SIZE'] = '2'
    distributed.get_rank = lambda: 1
    distributed.get_world_size = lambda: 2
    how: dict[str, Any] = {'num_workers': 1, 'multiprocessing_context': 'spawn'} if workers else {}
    loader = LOADERS['torch'](opened(None, local), batch_size=BATCH, **how)
    return [numbers(batch) for batch in loader]


def test_spawned_worker_inherits_rank_of_parent(data: Path) -> None:
    expected = apart(in_a_group, data, 0)
    assert 0 < len(flat(expected)) < SAMPLES
    assert apart(in_a_group, data, 1) == expected


def compared(local: Path, kind: str) -> dict[str, Any]:
    """Whether each column of a batch is what torch makes of the samples itself."""
    dataset = opened(None, local, shuffle=False)
    ours = next(iter(LOADERS[kind](dataset, batch_size=BATCH, num_workers=1)))
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


@pytest.mark.parametrize('kind', ['streaming', 'threads'])
def test_batches_equal_those_of_torch_data_loader(kind: str, data: Path) -> None:
    found = apart(compared, data, kind)
    assert found and all(found.values()), found
