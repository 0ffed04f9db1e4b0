"""Streams: hashes and ways of fetching of their own, all shard formats, and what the processes of a rank share."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Optional

import numpy as np
import pytest

from shardmill import (
    CSVWriter,
    JSONWriter,
    MDSWriter,
    Stream,
    StreamingDataset,
    TSVWriter,
    XSVWriter,
    _torch,
)
from shardmill.base import _shared_state
from shardmill.base._fetching import Fetcher
from shardmill.base._shared_state import SharedState
from shardmill.base.storage.download import DOWNLOADER_MAPPINGS, LocalDownloader
from shardmill.errors import (
    DataError,
    MissingIndexError,
    ResourceError,
    ShardmillError,
    UnsupportedError,
    UsageError,
)


def write(folder: Path, samples: int = 60, first: int = 0, **kwargs: Any) -> Path:
    with MDSWriter(
        out=str(folder), columns={'id': 'int', 'text': 'str'}, size_limit=512, **kwargs
    ) as out:
        for number in range(first, first + samples):
            out.write({'id': number, 'text': f'text {number}'})
    return folder


def ids(dataset: StreamingDataset) -> list[int]:
    return [sample['id'] for sample in dataset]


def test_validate_hash_applies_per_stream(tmp_path: Path) -> None:
    one = write(tmp_path / 'one', hashes=['sha1'])
    two = write(tmp_path / 'two', first=60, hashes=['xxh64'])

    def make(first: Optional[str], second: Optional[str], number: int) -> StreamingDataset:
        streams = [
            Stream(
                remote=str(folder),
                local=str(tmp_path / f'{folder.name}-{number}'),
                validate_hash=name,
            )
            for folder, name in [(one, first), (two, second)]
        ]
        return StreamingDataset(streams=streams, batch_size=4)

    assert ids(make('sha1', 'xxh64', 1)) == list(range(120))
    with pytest.raises(ValueError, match='the index has no sha1 hash'):
        make('sha1', 'sha1', 2)
    shard = two / 'shard.00001.mds'
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    with pytest.raises(DataError, match=r'shard\.00001\.mds') as raised:
        ids(make('sha1', 'xxh64', 3))
    assert raised.value.id == 'hash-mismatch'


class Counting(Stream):
    """Fetches with `_download_file` of its own."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.fetched: list[str] = []
        self.fail: Optional[str] = None

    def _download_file(self, from_basename: str, to_basename: Optional[str] = None) -> str:
        if from_basename == self.fail:
            raise ConnectionError(f'no way to {from_basename}')
        assert self.remote is not None
        target = os.path.join(self.local, to_basename or from_basename)
        os.makedirs(self.local, exist_ok=True)
        shutil.copy(os.path.join(self.remote, from_basename), target)
        self.fetched.append(from_basename)
        return target


@pytest.mark.parametrize('compression', [None, 'zstd:3'])
def test_stream_subclass_downloads_each_shard_once(
    tmp_path: Path, compression: Optional[str]
) -> None:
    remote = write(tmp_path / 'remote', compression=compression, hashes=['sha1'])
    stream = Counting(remote=str(remote), local=str(tmp_path / 'local'), validate_hash='sha1')
    dataset = StreamingDataset(streams=[stream], batch_size=4, shuffle=True)
    assert stream.fetched == ['index.json']
    seen = ids(dataset)
    assert sorted(seen) == list(range(60)) and seen != sorted(seen)
    names = sorted(name for name in os.listdir(remote) if name.startswith('shard'))
    assert sorted(stream.fetched[1:]) == names
    # The order is that of a stream that is read in place.
    plain = write(tmp_path / 'plain', compression=compression, hashes=['sha1'])
    assert ids(StreamingDataset(local=str(plain), batch_size=4, shuffle=True)) == seen
    assert dataset[7]['text'] == 'text 7'
    assert sorted(stream.fetched[1:]) == names


def test_download_error_of_stream_subclass_propagates(tmp_path: Path) -> None:
    remote = write(tmp_path / 'remote')
    stream = Counting(remote=str(remote), local=str(tmp_path / 'local'), download_retry=0)
    dataset = StreamingDataset(streams=[stream], batch_size=4)
    stream.fail = 'shard.00001.mds'
    seen = []
    with pytest.raises(ConnectionError, match=r'shard\.00001\.mds'):
        for sample in dataset:
            seen.append(sample['id'])
    assert seen == list(range(len(seen)))
    stream.fail = None
    assert ids(dataset) == list(range(60))


def test_stream_subclass_downloads_stay_within_cache_limit(tmp_path: Path) -> None:
    remote = write(tmp_path / 'remote', samples=200)
    stream = Counting(remote=str(remote), local=str(tmp_path / 'local'))
    dataset = StreamingDataset(
        streams=[stream], batch_size=4, shuffle=True, cache_limit=10_000, predownload=4
    )
    limit = 10_000
    for count, sample in enumerate(dataset):
        assert sample['text'] == f'text {sample["id"]}'
        if count % 20 == 0:
            # The books, as files come and go meanwhile.
            assert dataset.cache_usage <= limit
    assert dataset.cache_usage <= limit
    with pytest.raises(ValueError, match='no shard'):
        for _ in range(dataset.num_shards + 1):
            dataset.evict_coldest_shard()


class Strict(Counting):
    """Knows the index and the shards only, wherever they are."""

    def __init__(self, folder: Path, answer: type[Exception], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.folder, self.answer = folder, answer
        self.asked: list[str] = []

    def _download_file(self, from_basename: str, to_basename: Optional[str] = None) -> str:
        self.asked.append(from_basename)
        if from_basename != 'index.json' and not from_basename.startswith('shard.'):
            raise self.answer(f'never heard of {from_basename}')
        os.makedirs(self.local, exist_ok=True)
        target = os.path.join(self.local, to_basename or from_basename)
        return str(shutil.copy(self.folder / from_basename, target))


@pytest.mark.parametrize('answer', [ConnectionError, KeyError, PermissionError, FileNotFoundError])
@pytest.mark.parametrize('remote', [None, 's3://bucket/prefix', 'mine://bucket/prefix'])
def test_stream_subclass_is_asked_for_index_and_shards_only(
    tmp_path: Path, remote: Optional[str], answer: type[Exception]
) -> None:
    folder = write(tmp_path / 'remote')
    stream = Strict(folder, answer, remote=remote or str(folder), local=str(tmp_path / 'local'))
    dataset = StreamingDataset(streams=[stream], batch_size=4)
    assert ids(dataset) == list(range(60))
    assert stream.asked[0] == 'index.json'
    assert sorted(stream.asked) == sorted(os.listdir(folder))


@pytest.mark.parametrize('level', ['instance', 'class', 'downloader'])
def test_assigned_download_methods_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    folder = write(tmp_path / 'remote')
    asked = []

    def fetch(name: str, target: str) -> str:
        asked.append(name)
        if name != 'index.json' and not name.startswith('shard.'):
            raise ConnectionError(name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        return str(shutil.copy(folder / name, target))

    class Mine(LocalDownloader):
        def _validate_remote_path(self, remote: str) -> None: ...
        def _download_file_impl(self, remote: str, local: str, timeout: float) -> None:
            fetch(os.path.basename(remote), local)

    def download(stream: Stream, name: str, to: Optional[str] = None) -> str:
        return fetch(name, os.path.join(stream.local, to or name))

    remote = 's3://bucket/prefix'
    if level == 'downloader':
        monkeypatch.setitem(DOWNLOADER_MAPPINGS, 's3', Mine)
    elif level == 'class':
        monkeypatch.setattr(Stream, '_download_file', download)
    stream = Stream(remote=remote, local=str(tmp_path / 'local'))
    if level == 'instance':
        monkeypatch.setattr(stream, '_download_file', partial(download, stream))
    assert ids(StreamingDataset(streams=[stream], batch_size=4)) == list(range(60))
    assert sorted(asked) == sorted(os.listdir(folder))


class Half(Stream):
    """Returns every second shard."""

    def get_shards(self, world: Any, allow_unsafe_types: bool) -> Any:
        return super().get_shards(world, allow_unsafe_types)[::2]


class Logging(Stream):
    """Returns all shards."""

    def get_shards(self, world: Any, allow_unsafe_types: bool) -> Any:
        return super().get_shards(world, allow_unsafe_types)


def test_get_shards_must_return_the_shards_of_the_index(tmp_path: Path) -> None:
    folder = write(tmp_path / 'remote')
    stream: Stream = Logging(remote=str(folder), local=str(tmp_path / 'local'))
    assert ids(StreamingDataset(streams=[stream], batch_size=4)) == list(range(60))
    stream = Half(remote=str(folder), local=str(tmp_path / 'half'))
    with pytest.raises(UnsupportedError, match=r'`get_shards` of .*Half returned') as caught:
        StreamingDataset(streams=[stream], batch_size=4)
    assert caught.value.id == 'config-shards'


class Slow(Counting):
    """Downloads only after a release, and counts the shards in flight."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.lock = threading.Lock()
        self.released = threading.Semaphore(0)
        self.in_flight = self.most = 0

    def _download_file(self, from_basename: str, to_basename: Optional[str] = None) -> str:
        if not from_basename.startswith('shard'):
            return super()._download_file(from_basename, to_basename)
        with self.lock:
            self.in_flight += 1
            self.most = max(self.most, self.in_flight)
        self.released.acquire()
        with self.lock:
            self.in_flight -= 1
        return super()._download_file(from_basename, to_basename)


def test_downloads_in_flight_count_toward_cache_limit(tmp_path: Path) -> None:
    remote = write(tmp_path / 'remote', samples=200)
    stream = Slow(remote=str(remote), local=str(tmp_path / 'local'))
    dataset = StreamingDataset(streams=[stream], batch_size=4)
    largest = max(shard.get_raw_size() for shard in dataset.shards)
    # The index and four shards; the check of the constructor would ask for more.
    dataset.cache_limit = stream.get_index_size() + 4 * largest
    with ThreadPoolExecutor(8) as pool:
        prepared = [pool.submit(dataset.prepare_shard, number) for number in range(8)]
        usage = []
        for _ in prepared:
            stream.released.release()
            usage.append(dataset.cache_usage)
    assert all(each.exception() is None for each in prepared)
    assert max(usage) <= dataset.cache_limit
    assert stream.most <= 4
    assert dataset.cache_usage <= dataset.cache_limit


def test_threads_share_one_fetcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = write(tmp_path / 'remote')
    stream = Counting(remote=str(remote), local=str(tmp_path / 'local'))
    dataset = StreamingDataset(streams=[stream], batch_size=4)
    both = threading.Barrier(2, timeout=60)

    class Together(Fetcher):
        def __init__(self, dataset: StreamingDataset) -> None:
            both.wait()
            super().__init__(dataset)

    monkeypatch.setattr('shardmill.base._fetching.Fetcher', Together)
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda _: dataset._fetching(), range(2))
    assert one is other


@pytest.mark.parametrize('retries', [0, 2])
def test_download_retry_sets_number_of_attempts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, retries: int
) -> None:
    attempts = []

    class Failing(LocalDownloader):
        def _download_file_impl(self, remote: str, local: str, timeout: float) -> None:
            attempts.append(remote)
            raise ConnectionError('no answer')

    monkeypatch.setattr('shardmill.base._retrying.sleep', lambda _: None)
    monkeypatch.setitem(DOWNLOADER_MAPPINGS, '', Failing)
    stream = Stream(
        remote=str(tmp_path),
        local=str(tmp_path / 'local'),
        download_retry=retries,
        download_timeout=60,
    )
    with pytest.raises(ConnectionError):
        stream._download_file('shard.00000.mds')
    assert len(attempts) == 1 + retries


def test_second_read_of_a_shard_downloads_whole_shard(tmp_path: Path) -> None:
    remote = write(tmp_path / 'remote')
    local = tmp_path / 'local'
    dataset = StreamingDataset(remote=str(remote), local=str(local), batch_size=4)

    def shards() -> list[str]:
        return sorted(name for name in os.listdir(local) if name.startswith('shard'))

    assert (dataset[0]['id'], shards()) == (0, [])
    assert dataset.stats()['single_samples'] == 1
    assert (dataset[1]['id'], shards()) == (1, ['shard.00000.mds'])
    assert (dataset[59]['id'], shards()) == (59, ['shard.00000.mds'])
    assert [sample['id'] for sample in dataset[:5]] == [0, 1, 2, 3, 4]
    assert dataset.stats()['fetched_shards'] == 1


def test_fully_cached_dataset_needs_no_remote(tmp_path: Path) -> None:
    remote = write(tmp_path / 'remote')
    local = tmp_path / 'local'
    assert len(ids(StreamingDataset(remote=str(remote), local=str(local), batch_size=4))) == 60
    shutil.rmtree(remote)
    assert len(ids(StreamingDataset(remote=str(remote), local=str(local), batch_size=4))) == 60


@pytest.mark.parametrize(
    ('make', 'columns'),
    [
        (JSONWriter, {'id': 'int', 'text': 'str', 'x': 'float'}),
        (CSVWriter, {'id': 'int', 'text': 'str', 'x': 'float'}),
        (TSVWriter, {'id': 'int', 'text': 'str', 'x': 'float'}),
        (
            lambda **kwargs: XSVWriter(separator='|', **kwargs),
            {'id': 'int', 'text': 'str', 'x': 'float'},
        ),
    ],
)
@pytest.mark.parametrize('compression', [None, 'gz'])
def test_text_format_shards_round_trip(
    tmp_path: Path, make: Callable[..., Any], columns: dict[str, str], compression: Optional[str]
) -> None:
    samples = [{'id': number, 'text': f'é {number}', 'x': number / 4} for number in range(50)]
    with make(out=str(tmp_path), columns=columns, size_limit=400, compression=compression) as out:
        for sample in samples:
            out.write(sample)
    dataset = StreamingDataset(local=str(tmp_path), batch_size=7)
    assert list(dataset) == samples
    assert dataset[-1] == samples[-1]
    assert [type(value) for value in dataset[3].values()] == [int, str, float]


def test_arrays_of_dynamic_shape_round_trip(tmp_path: Path) -> None:
    with MDSWriter(out=str(tmp_path), columns={'a': 'ndarray', 'b': 'ndarray:float32'}) as out:
        for number in range(40):
            rows = 3 if number < 20 else number % 4 + 1
            kind = np.int16 if number < 20 or number % 2 else np.float64
            out.write(
                {'a': np.full((rows, 2), number, kind), 'b': np.full(rows, number, np.float32)}
            )
    for number, sample in enumerate(StreamingDataset(local=str(tmp_path), batch_size=8)):
        rows = 3 if number < 20 else number % 4 + 1
        kind = np.int16 if number < 20 or number % 2 else np.float64
        assert (sample['a'].shape, sample['a'].dtype) == ((rows, 2), kind)
        assert (sample['b'].shape, sample['b'].dtype) == ((rows,), np.float32)
        assert (sample['a'] == number).all() and (sample['b'] == number).all()
        # An array of one's own: writing to it changes nothing else.
        sample['a'][...] = -1


def test_invalid_utf8_error_names_the_column(tmp_path: Path) -> None:
    folder = write(tmp_path / 'data')
    shard = folder / 'shard.00001.mds'
    shard.write_bytes(shard.read_bytes().replace(b'text 2', b'\xffext 2', 1))
    with pytest.raises(DataError, match='`text`') as raised:
        ids(StreamingDataset(local=str(folder), batch_size=4))
    assert raised.value.id == 'value-utf8'


def test_errors_can_be_pickled() -> None:
    error = DataError('shard 3: wrong', 'hash-mismatch', 'shard 3', 'fetch it again')
    same = pickle.loads(pickle.dumps(error))
    assert (type(same), str(same), same.id, same.object, same.hint) == (
        DataError,
        str(error),
        'hash-mismatch',
        'shard 3',
        'fetch it again',
    )
    assert issubclass(DataError, ValueError) and issubclass(DataError, ShardmillError)


def test_too_large_shared_state_is_an_error() -> None:
    shared = SharedState()
    with pytest.raises(UsageError, match='at most 65536'):
        shared.state = {'x': 'y' * 70_000}
    assert shared.state is None


def begin(monkeypatch: pytest.MonkeyPatch, shared: SharedState, worker: int, birth: int) -> int:
    """The epoch that the worker of an iteration of three begins in, with the seed that all of them have."""
    info = SimpleNamespace(id=worker, num_workers=3, seed=7 + worker)
    monkeypatch.setattr(_torch, 'worker_info', lambda: info)
    monkeypatch.setattr(_shared_state, '_birth', lambda: birth)
    # As in a process of its own.
    shared._begun = 0
    return shared.begin(worker)


def test_workers_of_iterations_with_equal_seed_are_distinguished(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Whichever of them begins when: each iteration is an epoch, and all three are different ones.
    workers = [(iteration, worker) for iteration in range(3) for worker in range(3)]
    for seed in range(200):
        random.Random(seed).shuffle(workers)
        shared = SharedState()
        epochs: dict[int, set[int]] = {}
        for iteration, worker in workers:
            epoch = begin(monkeypatch, shared, worker, 1 + 3 * iteration + worker)
            epochs.setdefault(iteration, set()).add(epoch)
        assert sorted(map(sorted, epochs.values())) == [[0], [1], [2]], workers
        assert shared.next_epoch == 3


def test_gap_in_worker_start_order_keeps_one_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared = SharedState()
    births = [(0, 4), (1, 6), (2, 7)]
    assert [begin(monkeypatch, shared, worker, birth) for worker, birth in births] == [0, 0, 0]


def test_workers_without_start_order_are_counted_by_id(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = SharedState()
    order = [0, 1, 2, 0, 2, 1]
    assert [begin(monkeypatch, shared, worker, 0) for worker in order] == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize('content', [b'', b'{"version": 2, "shards": [', b'{"version" 2}'])
def test_corrupted_index_raises_json_decode_error(tmp_path: Path, content: bytes) -> None:
    folder = write(tmp_path / 'set')
    (folder / 'index.json').write_bytes(content)
    with pytest.raises(json.JSONDecodeError, match='is empty or corrupted') as raised:
        StreamingDataset(local=str(folder), batch_size=4)
    assert isinstance(raised.value, DataError)


@pytest.mark.parametrize(('room', 'parts'), [(1 << 40, 256), (1_000_000, 3), (300_000, 1)])
def test_file_size_limit_reduces_shared_state_slots(
    monkeypatch: pytest.MonkeyPatch, room: int, parts: int
) -> None:
    monkeypatch.setattr('resource.getrlimit', lambda _: (room, room))
    shared = SharedState()
    assert len(shared._memory) == _shared_state._PIDS.size + parts * _shared_state._PART
    shared.state = {'epoch': 3}
    assert shared.state == {'epoch': 3}
    monkeypatch.setattr(_shared_state, '_is_alive', lambda _: True)
    for pid in range(1, parts):
        monkeypatch.setattr(_shared_state, 'training_process', lambda pid=pid: -pid & 0xFFFF_FFFF)
        assert shared.state == {'epoch': 3}
    monkeypatch.setattr(_shared_state, 'training_process', lambda: 1)
    with pytest.raises(ResourceError, match=f'more than {parts} training processes'):
        _ = shared.state


def test_too_low_file_size_limit_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('resource.getrlimit', lambda _: (50_000, 50_000))
    with pytest.raises(ResourceError, match='at most 50000 bytes') as raised:
        SharedState()
    assert (raised.value.id, raised.value.hint) == ('disk-full', 'raise `ulimit -f`')


def test_missing_index_hint_lists_split_folders(tmp_path: Path) -> None:
    for split in ('val', 'train'):
        write(tmp_path / 'shards' / split, 3)
    with pytest.raises(MissingIndexError) as caught:
        StreamingDataset(local=str(tmp_path / 'shards'), batch_size=1)
    assert caught.value.hint == "the folder has the datasets train, val: pass split='train'"
    with pytest.raises(MissingIndexError) as caught:
        StreamingDataset(local=str(tmp_path), batch_size=1)
    assert caught.value.hint is None
