"""The dataset as an object: attributes, single samples, subclasses, iterations, what it keeps."""

from __future__ import annotations

import copy
import gc
import itertools
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.apart import GRACE, apart, shared_memory, threads, until
from support.samples import BATCH, SAMPLES, flat, in_worker, numbers, same, sample_of, write
from torch.utils.data import DataLoader, IterableDataset

from shardmill import LocalDataset, Stream, StreamingDataLoader, StreamingDataset
from shardmill.errors import DataError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.store import Store


def opened(folder: Path, **options: Any) -> StreamingDataset:
    """A dataset that is read where it is."""
    return StreamingDataset(local=str(folder), **{'batch_size': BATCH, **options})


def order(samples: Any) -> list[int]:
    """The numbers of samples; every one is checked."""
    found = []
    for sample in samples:
        found.append(int(sample['number']))
        assert same(sample, found[-1])
    return found


# What it is.


def test_dataset_attributes_describe_streams_and_shards(data: Path, tmp_path: Path) -> None:
    other = write(tmp_path / 'other', 50, first=1000)
    streams = [Stream(local=str(data)), Stream(local=str(other), repeat=2)]
    both = StreamingDataset(
        streams=streams, batch_size=BATCH, shuffle=True, predownload=100, cache_limit='1mb'
    )
    shards = len(list(data.glob('*.mds')))
    others = len(list(other.glob('*.mds')))
    assert isinstance(both, IterableDataset)
    assert both.num_samples == both.size == SAMPLES + 50
    assert both.epoch_size == len(both) == SAMPLES + 100
    assert both.num_streams == 2
    assert both.num_shards == len(both.shards) == shards + others
    assert both.samples_per_stream.tolist() == [SAMPLES, 50]
    assert both.sample_offset_per_stream.tolist() == [0, SAMPLES]
    assert both.shards_per_stream.tolist() == [shards, others]
    assert both.shard_offset_per_stream.tolist() == [0, shards]
    assert both.stream_per_shard.tolist() == [0] * shards + [1] * others
    assert both.samples_per_shard.sum() == SAMPLES + 50
    assert both.sample_offset_per_shard[1] == both.samples_per_shard[0]
    assert [shard.samples for shard in both.shards] == both.samples_per_shard.tolist()
    assert both.spanner[SAMPLES] == (shards, 0)
    assert both.cache_limit == 1 << 20
    assert (both.predownload, both.shuffle, both.batch_size) == (100, True, BATCH)
    assert (streams[1].repeat, streams[1].choose) == (2, 100)


def test_length_is_per_rank(data: Path) -> None:
    assert len(opened(data, rank=1, world_size=2)) == (SAMPLES + 1) // 2
    assert len(opened(data, rank=5, world_size=8, replication=4)) == (SAMPLES + 1) // 2
    assert len(opened(data, epoch_size='1k')) == 1000
    loader: Any = StreamingDataLoader(opened(data), batch_size=BATCH)
    assert len(loader) == (SAMPLES + 7) // BATCH


@pytest.mark.parametrize(
    'options',
    [
        {'batching_method': 'alphabetic'},
        {'sampling_method': 'loaded'},
        {'sampling_granularity': 0},
        {'shuffle_seed': -1},
        {'epoch_size': -5},
        {'epoch_size': 1 << 63},
        {'batch_size': -1},
        {'batch_size': np.int64(-1)},
        {'cache_limit': -1},
        {'download_retry': -1},
        {'download_timeout': -0.5},
        {'num_canonical_nodes': -1},
        {'predownload': -1},
        {'sampling_granularity': -1},
        {'shuffle_block_size': -1},
        {'shuffle_block_size': 1 << 63},
        {'shuffle_seed': 1 << 63},
        {'threads': -1},
        {'rank': -1, 'world_size': 1},
        {'rank': 0, 'world_size': 0},
        {'rank': 0, 'world_size': 1, 'local_world_size': -1},
        {'worker': -1, 'num_workers': 1},
        {'worker': 0, 'num_workers': -1},
        {'rank': 0},
        {'worker': 1},
        {'remote': None, 'local': None},
        {'streams': [Stream(local='/')]},
        {'cache_limit': 'plenty'},
        {'validate_hash': 'crc12'},
    ],
    ids=lambda options: next(iter(options)),
)
def test_invalid_values_are_errors(data: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError) as raised:
        StreamingDataset(**{'local': str(data), 'batch_size': BATCH, **options})
    assert str(raised.value)


@pytest.mark.parametrize('name', ['batch_size', 'num_canonical_nodes', 'shuffle_block_size'])
def test_negative_number_error_names_the_argument(data: Path, name: str) -> None:
    options: dict[str, Any] = {'batch_size': BATCH, name: -1}
    with pytest.raises(UsageError, match=f'`{name}` must be .* but got: -1') as raised:
        StreamingDataset(local=str(data), **options)
    assert (raised.value.id, raised.value.object) == ('config-value', name)


@pytest.mark.parametrize(
    'options',
    [{'shuffle_algo': 'py9'}, {'partition_algo': 'loose'}, {'batch_size': None}, {'batch_size': 0}],
    ids=lambda options: next(iter(options)),
)
def test_lazily_checked_arguments_fail_at_first_iteration(
    data: Path, options: dict[str, Any]
) -> None:
    with pytest.raises((ValueError, KeyError)) as raised:
        next(iter(opened(data, shuffle=True, **options)))
    assert str(raised.value)


def test_missing_and_empty_datasets_are_errors(tmp_path: Path) -> None:
    for make in (StreamingDataset, LocalDataset):
        with pytest.raises((FileNotFoundError, RuntimeError), match=r'index\.json'):
            make(local=str(tmp_path))
    (tmp_path / 'index.json').write_text('{"version": 2, "shards": []}')
    with pytest.raises(RuntimeError, match='no samples'):
        StreamingDataset(local=str(tmp_path), batch_size=1)


# Single samples.


def both_kinds(data: Path) -> list[Any]:
    return [opened(data), LocalDataset(str(data))]


def test_samples_are_indexed_like_numpy_arrays(data: Path) -> None:
    for dataset in both_kinds(data):
        assert dataset.size == SAMPLES
        assert order([dataset[3], dataset[-1], dataset[-SAMPLES]]) == [3, SAMPLES - 1, 0]
        assert order([dataset[np.int64(9)], dataset[np.uint8(200)]]) == [9, 200]
        assert order(dataset[10:30:7]) == [10, 17, 24]
        assert order(dataset[-3:]) == [SAMPLES - 3, SAMPLES - 2, SAMPLES - 1]
        assert order(dataset[5:2:-1]) == [5, 4, 3]
        assert order(dataset[[7, -7, 7]]) == [7, SAMPLES - 7, 7]
        assert order(dataset[np.array([1, 100])]) == [1, 100]
        nested = dataset[[[1, 2], [3, [4]]]]
        assert order(nested[0]) == [1, 2]
        assert order([nested[1][0], *nested[1][1]]) == [3, 4]
        assert dataset[[]] == dataset[9:9] == []
        assert [order(row) for row in dataset[np.array([[1, 2], [3, 4]])]] == [[1, 2], [3, 4]]


@pytest.mark.parametrize('at', [SAMPLES, -SAMPLES - 1, 1 << 40, 1 << 70])
def test_out_of_range_sample_is_an_index_error(data: Path, at: int) -> None:
    for dataset in both_kinds(data):
        with pytest.raises(IndexError, match=str(abs(at))):
            dataset[at]


@pytest.mark.parametrize('at', ['3', 3.0, None, [1.5]])
def test_non_integer_sample_index_is_an_error(data: Path, at: Any) -> None:
    for dataset in both_kinds(data):
        with pytest.raises(ValueError):
            dataset[at]


def test_sample_values_have_written_types(data: Path) -> None:
    for sample in (opened(data)[9], next(iter(opened(data))), LocalDataset(str(data))[9]):
        number = sample['number']
        for name, value in sample_of(number).items():
            assert type(sample[name]) is type(value), name
        assert sample['vector'].dtype == np.float32
        assert list(sample) == sorted(sample_of(0))


def test_modifying_a_sample_does_not_affect_later_reads(data: Path) -> None:
    dataset = opened(data)
    first = dataset[1]
    first['vector'][:] = 5
    first['text'] = ''
    assert same(dataset[1], 1)
    batches = iter(StreamingDataLoader(dataset, batch_size=BATCH))
    kept = next(batches)
    kept['vector'][:] = 5
    kept['number'][:] = -1
    assert numbers(next(batches)) == list(range(BATCH, 2 * BATCH))
    assert kept['number'].tolist() == [-1] * BATCH


# Subclasses.


class Counting(StreamingDataset):
    """Notes what it is asked for, and changes what it gives."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.asked: list[int] = []

    def get_item(self, sample_id: int, retry: int = 7) -> Any:
        self.asked.append(sample_id)
        sample = super().get_item(sample_id, retry)
        return {**sample, 'twice': 2 * sample['number']}


class Transformed(StreamingDataset):
    """Gives something else than a dict, by way of `__getitem__`."""

    def __init__(self, transform: Callable[[Any], Any], **options: Any) -> None:
        super().__init__(**options)
        self.transform = transform

    def __getitem__(self, at: Any) -> Any:
        return self.transform(super().__getitem__(at))


class Doubling(StreamingDataset):
    """Gives every sample twice."""

    def __iter__(self) -> Iterator[Any]:
        for sample in super().__iter__():
            yield sample
            yield sample


def square(sample: Any) -> Any:
    return sample['number'] ** 2, sample['text']


def test_get_item_is_called_once_per_sample(data: Path) -> None:
    plain = order(opened(data, shuffle=True))
    dataset = Counting(local=str(data), batch_size=BATCH, shuffle=True)
    found = list(dataset)
    assert dataset.asked == [sample['number'] for sample in found] == plain
    assert all(sample['twice'] == 2 * sample['number'] for sample in found)
    dataset.asked.clear()
    assert dataset[5:8][1]['twice'] == 12
    assert dataset.asked == [5, 6, 7]


def test_random_access_during_iteration_keeps_order(data: Path) -> None:
    dataset = Counting(local=str(data), batch_size=BATCH)
    for expected, sample in enumerate(dataset):
        assert sample['number'] == expected
        assert dataset[(expected * 7) % SAMPLES]['number'] == (expected * 7) % SAMPLES
        assert dataset[expected]['number'] == expected


@pytest.mark.parametrize('workers', [0, 2])
@pytest.mark.parametrize('kind', [DataLoader, StreamingDataLoader])
def test_loaders_use_subclass_samples(data: Path, kind: type[Any], workers: int) -> None:
    def run() -> None:
        counting = Counting(local=str(data), batch_size=BATCH)
        loader = kind(counting, batch_size=BATCH, num_workers=workers)
        found = [batch['twice'].tolist() for batch in loader]
        assert flat(found) == [2 * number for number in range(SAMPLES)]

        changed = Transformed(square, local=str(data), batch_size=BATCH)
        loader = kind(changed, batch_size=BATCH, num_workers=workers)
        squares = [batch[0].tolist() for batch in loader]
        assert flat(squares) == [number**2 for number in range(SAMPLES)]

        doubled = Doubling(local=str(data), batch_size=BATCH)
        loader = kind(doubled, batch_size=BATCH, num_workers=0)
        twice = flat([numbers(batch) for batch in loader])
        assert twice == [number for number in range(SAMPLES) for _ in range(2)]

    apart(run)


@pytest.mark.parametrize('workers', [0, 2])
@pytest.mark.parametrize('batch_size', [BATCH, 5])
def test_custom_collate_fn_keeps_sample_count(data: Path, batch_size: int, workers: int) -> None:
    def run() -> None:
        loader = StreamingDataLoader(
            opened(data), batch_size=batch_size, num_workers=workers, collate_fn=packed
        )
        found = []
        for batch in loader:
            found += batch[0]
            # However many samples a batch seems to have.
            assert loader.num_samples_yielded == len(found)
        assert sorted(found) == list(range(SAMPLES))

    apart(run)


def packed(samples: list[Any]) -> list[list[int]]:
    """A batch of one sequence."""
    assert isinstance(samples, list)
    return [order(samples)]


@pytest.mark.parametrize('workers', [0, 2])
def test_loader_batch_size_can_differ_from_dataset(data: Path, workers: int) -> None:
    def run() -> None:
        loader = StreamingDataLoader(opened(data), batch_size=5, num_workers=workers)
        found = [numbers(batch) for batch in loader]
        assert sorted(flat(found)) == list(range(SAMPLES))
        assert max(map(len, found)) == 5
        single = StreamingDataLoader(opened(data), batch_size=None, num_workers=workers)
        assert sorted(int(sample['number']) for sample in single) == list(range(SAMPLES))
        assert single.num_samples_yielded == SAMPLES

    apart(run)


@pytest.mark.parametrize('init', [None, in_worker], ids=['threads', 'processes'])
@pytest.mark.parametrize('workers', [0, 3])
def test_drop_last_omits_the_partial_batch(data: Path, workers: int, init: Any) -> None:
    def run() -> None:
        loader = StreamingDataLoader(
            opened(data),
            batch_size=BATCH,
            num_workers=workers,
            drop_last=True,
            worker_init_fn=init,
        )
        found = [numbers(batch) for batch in loader]
        assert flat(found) == list(range(SAMPLES - SAMPLES % BATCH))

    apart(run)


# Iterations.


def test_consecutive_iterations_are_consecutive_epochs(data: Path) -> None:
    dataset = opened(data, shuffle=True)
    epochs = [order(dataset) for _ in range(3)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(SAMPLES))] * 3
    assert len(set(map(str, epochs))) == 3
    assert dataset.next_epoch == 3
    dataset.next_epoch = 1
    assert order(dataset) == epochs[1]


def test_abandoned_iteration_counts_as_an_epoch(data: Path) -> None:
    whole = opened(data, shuffle=True)
    epochs = [order(whole) for _ in range(3)]
    dataset = opened(data, shuffle=True)
    assert order(itertools.islice(dataset, 21)) == epochs[0][:21]
    loader = StreamingDataLoader(dataset, batch_size=BATCH)
    for place, batch in enumerate(loader):
        assert numbers(batch) == epochs[1][place * BATCH : (place + 1) * BATCH]
        if place == 3:
            break
    assert order(dataset) == epochs[2]


def test_second_iteration_stops_the_first(data: Path) -> None:
    # The next one is the next epoch, and ends the one before.
    whole = opened(data, shuffle=True)
    epochs = [order(whole) for _ in range(2)]
    dataset = opened(data, shuffle=True)
    first = iter(dataset)
    assert order(itertools.islice(first, BATCH)) == epochs[0][:BATCH]
    second = iter(dataset)
    assert order(second) == epochs[1]
    assert len(list(first)) < SAMPLES - BATCH
    # Those of two datasets have nothing to do with one another.
    pair = opened(data, shuffle=True), opened(data, shuffle=True, shuffle_seed=1)
    taken = list(zip(*pair))
    assert order(sample for sample, _ in taken) == epochs[0]
    assert sorted(order(sample for _, sample in taken)) == list(range(SAMPLES))


class Failing(StreamingDataset):
    """Fails at one sample, the given number of times."""

    failures = 1

    def get_item(self, sample_id: int, retry: int = 7) -> Any:
        if sample_id == 20 and self.failures:
            self.failures -= 1
            raise KeyError('the sample is bad')
        return super().get_item(sample_id, retry)


def test_get_item_exception_stops_iteration(data: Path) -> None:
    before = threads()
    dataset = Failing(local=str(data), batch_size=BATCH)
    read = iter(dataset)
    assert order(itertools.islice(read, 20)) == list(range(20))
    with pytest.raises(KeyError, match='the sample is bad'):
        next(read)
    with pytest.raises(StopIteration):
        next(read)
    assert order(dataset) == list(range(SAMPLES))
    del dataset, read
    gc.collect()
    assert until(lambda: not set(threads()) - set(before), GRACE), threads()


def test_damaged_shard_error_names_the_file(data: Path, tmp_path: Path) -> None:
    folder = write(tmp_path / 'damaged', 100, hashes=['xxh64'])
    shard = folder / 'shard.00001.mds'
    content = bytearray(shard.read_bytes())
    content[-40] ^= 1
    shard.write_bytes(content)
    dataset = opened(folder, validate_hash='xxh64')
    with pytest.raises(ValueError, match=r'shard\.00001\.mds'):
        list(dataset)
    shard.write_bytes(content[:-1])
    with pytest.raises(ValueError, match=r'shard\.00001\.mds'):
        list(opened(folder))
    shard.unlink()
    with pytest.raises((FileNotFoundError, DataError), match=r'shard\.00001\.mds'):
        list(opened(folder))


def test_threads_can_read_samples_concurrently(data: Path) -> None:
    dataset = opened(data)
    faults: list[Any] = []

    def read(first: int) -> None:
        try:
            assert order(dataset[at] for at in range(first, SAMPLES, 4)) == list(
                range(first, SAMPLES, 4)
            )
        except BaseException as error:
            faults.append(error)

    readers = [threading.Thread(target=read, args=(first,)) for first in range(4)]
    for reader in readers:
        reader.start()
    assert order(dataset) == list(range(SAMPLES))
    for reader in readers:
        reader.join(30)
        assert not reader.is_alive()
    assert not faults


# Interruptions.

WAITS = """
import signal, sys, time
# A shell that runs this in the background may have turned it off.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path[:0] = {paths!r}
from shardmill import StreamingDataLoader, StreamingDataset
kind, remote, local = sys.argv[1:]
print('ready', flush=True)
try:
    dataset = StreamingDataset(remote=remote, local=local, batch_size=4)
    print('open', flush=True)
    workers = 2 if kind in ('threads', 'processes') else 0
    init = print if kind == 'processes' else None
    if kind == 'sample':
        dataset[0]
    elif kind == 'iterate':
        next(iter(dataset))
    elif kind == 'batches':
        next(dataset.batches())
    elif kind == 'table':
        dataset.to_arrow()
    else:
        loader = StreamingDataLoader(
            dataset, batch_size=4, num_workers=workers, worker_init_fn=init
        )
        next(iter(loader))
except KeyboardInterrupt:
    print(f'interrupted {{time.monotonic()}}', flush=True)
    raise
"""


#: One of them counts seconds in CI; the others with `--slow`.
KINDS = [
    'iterate',
    'table',
    *(
        pytest.param(kind, marks=pytest.mark.slow)
        for kind in ('index', 'sample', 'batches', 'loader', 'threads', 'processes')
    ),
]


@pytest.mark.parametrize('kind', KINDS)
def test_ctrl_c_interrupts_waiting_for_slow_store(
    kind: str, tmp_path: Path, data: Path, store: Store
) -> None:
    remote = 's3://bucket/slow/data' if kind == 'index' else 's3://bucket/slow-shards/data'
    before = shared_memory()
    store.forget_slow()
    child = subprocess.Popen(
        [
            sys.executable,
            '-c',
            WAITS.format(paths=[path for path in sys.path if path]),
            kind,
            remote,
            str(tmp_path / 'local'),
        ],
        env={**os.environ, **store.environment, 'TMPDIR': str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        waiting = store.wait_for_slow(60)
        assert waiting, 'nothing was asked of the store'
        started = time.monotonic()
        # As a terminal does: to all processes in the foreground.
        os.killpg(child.pid, signal.SIGINT)
        # Most of what it takes is torch's farewell.
        output, errors = child.communicate(timeout=10)
    finally:
        child.kill()
        child.communicate()
    last, _, moment = output.splitlines()[-1].partition(' ')
    assert last == 'interrupted', output + errors
    took = float(moment) - started
    assert took < 2, took
    assert child.returncode in (1, 130, -signal.SIGINT), child.returncode
    assert errors.rstrip().splitlines()[-1].startswith('KeyboardInterrupt'), errors
    assert until(lambda: not shared_memory() - before, GRACE), shared_memory() - before


# Pickles.


@pytest.mark.parametrize('module', ['pickle', 'cloudpickle', 'copy'])
def test_pickled_dataset_is_small_and_usable(data: Path, module: str) -> None:
    dataset = opened(data, shuffle=True)
    whole = [order(dataset) for _ in range(2)]
    begun = opened(data, shuffle=True)
    assert same(begun[11], 11)
    assert begun.shards and begun.spanner
    read = iter(begun)
    next(read)
    if module == 'copy':
        again = copy.deepcopy(begun)
    else:
        dump = pytest.importorskip(module).dumps(begun)
        assert len(dump) < 10_000, len(dump)
        again = pickle.loads(dump)
    assert len(list(read)) == SAMPLES - 1
    assert same(again[11], 11)
    assert (len(again), again.num_shards) == (len(begun), begun.num_shards)
    assert order(again) == whole[1]
    # It has counters of its own.
    assert order(begun) == whole[1]


def test_pickle_keeps_loaded_state(data: Path) -> None:
    first = opened(data, shuffle=True)
    samples = order(first)
    first.load_state_dict(
        {
            'epoch': 0,
            'sample_in_epoch': 3 * BATCH,
            'num_canonical_nodes': 1,
            'shuffle_seed': 9176,
            'initial_physical_nodes': 1,
        }
    )
    again = pickle.loads(pickle.dumps(first))
    assert order(again) == samples[3 * BATCH :]


def test_local_datasets_and_loaders_can_be_pickled(data: Path) -> None:
    local = LocalDataset(str(data))
    dump = pickle.dumps(local)
    assert len(dump) < 10_000
    assert same(pickle.loads(dump)[-1], SAMPLES - 1)
    loader = StreamingDataLoader(opened(data), batch_size=BATCH)
    next(iter(loader))
    again = pickle.loads(pickle.dumps(loader))
    assert sorted(flat([numbers(batch) for batch in again])) == list(range(SAMPLES))


# What is kept.


def resident() -> int:
    """Bytes of memory of this process that are not files."""
    for line in Path('/proc/self/status').read_text().splitlines():
        if line.startswith('RssAnon:'):
            return int(line.split()[1]) << 10
    raise AssertionError('no RssAnon')


def epochs_of_memory(folder: Path, kind: str) -> list[int]:
    """Memory after each epoch."""
    dataset = opened(folder, shuffle=True)
    read: Any = dataset
    if kind != 'dataset':
        read = StreamingDataLoader(dataset, batch_size=BATCH)
    found = []
    for _ in range(25):
        assert sum(1 for _ in read)
        gc.collect()
        found.append(resident())
    return found


@pytest.mark.parametrize('kind', ['dataset', 'loader'])
def test_memory_does_not_grow_over_epochs(tmp_path: Path, kind: str) -> None:
    folder = write(tmp_path / 'data', 2000, shard_bytes=60_000)
    found = apart(epochs_of_memory, folder, kind)
    # The first epochs fill what is kept for later ones.
    assert max(found[20:]) < found[4] * 1.05, found


def descriptors() -> set[str]:
    """Open descriptors of this process."""
    return set(os.listdir('/proc/self/fd'))


def opened_and_closed(folder: Path) -> None:
    """Opens, reads, and forgets a dataset, in several ways."""
    before = shared_memory()

    def once() -> None:
        dataset = opened(folder, shuffle=True)
        assert same(dataset[1], 1)
        read = iter(dataset)
        next(read)
        numbers(next(iter(StreamingDataLoader(dataset, batch_size=BATCH))))
        assert shared_memory() <= before
        del read
        for init in (None, in_worker):
            workers = StreamingDataLoader(
                dataset, batch_size=BATCH, num_workers=1, worker_init_fn=init
            )
            numbers(next(iter(workers)))

    once()
    gc.collect()
    held, running = descriptors(), threads()
    for _ in range(5):
        once()
        gc.collect()
    assert until(lambda: len(descriptors()) <= len(held), GRACE), descriptors() - held
    assert until(lambda: len(threads()) <= len(running), GRACE), threads()
    assert shared_memory() <= before


def test_deleted_dataset_releases_its_resources(data: Path) -> None:
    apart(opened_and_closed, data)


def listing(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob('*'))


def test_reading_local_dataset_changes_no_files(data: Path) -> None:
    before = listing(data)
    read = opened(data, shuffle=True)
    order(read)
    with_remote = StreamingDataset(remote=str(data), local=str(data), batch_size=BATCH)
    order(with_remote)
    assert listing(data) == before


def in_the_temporary_directory(remote: str) -> None:
    """Reads with a cache of its own making."""
    dataset = StreamingDataset(remote=remote, batch_size=BATCH)
    assert order(dataset) == list(range(SAMPLES))
    # One that programs see, and its books.
    folder, _ = sorted(os.listdir(os.environ['TMPDIR']), key=lambda name: name.startswith('.'))
    assert os.path.join(os.environ['TMPDIR'], folder) == dataset.streams[0].local.rstrip('/')
    assert os.stat(dataset.streams[0].local).st_mode & 0o777 == 0o700
    # Another one finds what is there.
    again = StreamingDataset(remote=remote, batch_size=BATCH)
    assert order(again) == list(range(SAMPLES))
    assert again.stats()['fetched_shards'] == 0
    for root, folders, names in os.walk(os.environ['TMPDIR'], topdown=False):
        for name in names:
            os.remove(os.path.join(root, name))
        for name in folders:
            os.rmdir(os.path.join(root, name))


def test_default_cache_is_in_temporary_directory(data: Path, store: Store) -> None:
    apart(in_the_temporary_directory, 's3://bucket/data', environment=store.environment)


def within_a_limit(remote: str, local: Path, limit: int) -> None:
    """Reads two epochs with a cache that is smaller than the dataset."""
    dataset = StreamingDataset(
        remote=remote, local=str(local), batch_size=BATCH, cache_limit=limit, shuffle=True
    )
    for _ in range(2):
        found = []
        for sample in dataset:
            found.append(int(sample['number']))
            size = sum(path.stat().st_size for path in local.rglob('*') if path.is_file())
            assert size <= limit, size
        assert sorted(found) == list(range(SAMPLES))
    # What the folder has no room for is fetched all the same, and kept in memory.
    assert dataset.stats()['bypassed_shards'] + dataset.stats()['evicted_shards'] > 0


def test_cache_stays_within_its_limit(data: Path, store: Store, tmp_path: Path) -> None:
    whole = sum(path.stat().st_size for path in data.iterdir())
    apart(
        within_a_limit,
        's3://bucket/data',
        tmp_path / 'cache',
        whole // 2,
        environment=store.environment,
    )
