"""Trees of files as datasets: every file once, whatever the world; resumed, cached within a limit, mixed."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

import pytest
from support.apart import apart, until
from torch.utils.data import DataLoader

from shardmill import (
    FileDataset,
    FileStream,
    MDSWriter,
    Stream,
    StreamingDataLoader,
    StreamingDataset,
)
from shardmill.errors import (
    ConflictError,
    DataError,
    NotFoundError,
    ShardmillError,
    UnsupportedError,
    UsageError,
)

if TYPE_CHECKING:
    from support.store import Store

FILES = 97
#: What the cache counts for its own sake with each file.
MARKER = 256


def name(number: int) -> str:
    return f'{"abc"[number % 3]}/file {number:03} ä.bin'


def contents(number: int) -> bytes:
    return f'file {number} '.encode() * (number % 7 + 1)


EXPECTED = {name(number): contents(number) for number in range(FILES)}


def write_tree(folder: Path, files: dict[str, bytes]) -> Path:
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return folder


@pytest.fixture(scope='module')
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files, which no test changes."""
    return write_tree(tmp_path_factory.mktemp('tree'), EXPECTED)


def used(local: Path) -> int:
    """Bytes of the cache on the disk."""
    total = 0
    for root in (local, local.parent / f'.{local.name}.shardmill'):
        for folder, _, names in os.walk(root):
            for found in names:
                try:
                    total += os.lstat(os.path.join(folder, found)).st_size
                except FileNotFoundError:
                    continue
    return total


def room(tree: Path, files: int) -> int:
    """A limit for so many files of 1,000 bytes: with the list of all of them and the positions of some processes."""
    lines = len([path for path in tree.rglob('*') if path.is_file()]) * 60
    return lines + 300 + len(str(tree)) + files * (1000 + MARKER)


def check(samples: list[dict[str, Any]]) -> None:
    """All files, each once, as they are."""
    assert {sample['path']: sample['data'] for sample in samples} == EXPECTED
    assert len(samples) == FILES


def test_files_in_place_are_iterated_and_indexed(tree: Path) -> None:
    dataset = FileDataset(remote=str(tree), batch_size=4, shuffle=True)
    assert (len(dataset), dataset.num_samples) == (FILES, FILES)
    first, second = list(dataset), list(dataset)
    check(first)
    check(second)
    assert [sample['path'] for sample in first] != [sample['path'] for sample in second]
    paths = dataset.paths()
    assert paths == sorted(EXPECTED, key=str.encode)
    assert dataset[3] == {'path': paths[3], 'data': EXPECTED[paths[3]]}
    assert dataset[paths[3]] == dataset[3]
    assert dataset[-1]['path'] == paths[-1]
    assert dataset.number_of(paths[5]) == 5
    assert [sample['path'] for sample in dataset[2:4]] == paths[2:4]
    with pytest.raises(IndexError):
        dataset[FILES]
    with pytest.raises(IndexError):
        dataset.path_of(FILES)
    with pytest.raises(NotFoundError) as caught:
        dataset['no such file']
    assert caught.value.id == 'no-such-file'


@pytest.mark.parametrize('ranks', [1, 2, 3, 4, 8])
@pytest.mark.parametrize('workers', [1, 2, 3, 4])
def test_every_file_is_read_once_in_any_world(tree: Path, ranks: int, workers: int) -> None:
    seen: list[str] = []
    given = 0
    for rank in range(ranks):
        for worker in range(workers):
            dataset = FileDataset(
                remote=str(tree),
                batch_size=3,
                shuffle=True,
                rank=rank,
                world_size=ranks,
                worker=worker,
                num_workers=workers,
                num_canonical_nodes=1,
            )
            samples = list(dataset)
            for sample in samples:
                assert sample['data'] == EXPECTED[sample['path']]
            given += len(samples)
            seen += [sample['path'] for sample in samples]
    assert set(seen) == set(EXPECTED)
    # As many for each rank: fewer than a rank's worth come twice.
    assert given == -(-FILES // ranks) * ranks


def _with_workers(tree: str, workers: int, context: Optional[str], yields: str) -> int:
    dataset: Any = FileDataset(remote=tree, batch_size=4, shuffle=True, yields=yields)
    loader: Any = DataLoader(
        dataset,
        batch_size=4,
        num_workers=workers,
        multiprocessing_context=context if workers else None,
        persistent_workers=workers > 0,
    )
    for _ in range(2):
        found: dict[str, bytes] = {}
        for batch in loader:
            data = batch.get('data') or [Path(path).read_bytes() for path in batch['file']]
            found.update(zip(batch['path'], data))
            assert len(batch['path']) <= 4
        assert found == EXPECTED
    return len(found)


@pytest.mark.parametrize('workers', [0, 1, 3])
@pytest.mark.parametrize('context', ['fork', 'spawn'])
@pytest.mark.parametrize('yields', ['data', 'file'])
def test_torch_workers_read_every_file(tree: Path, workers: int, context: str, yields: str) -> None:
    if context == 'spawn' and not workers:
        pytest.skip('no process is started')
    assert apart(_with_workers, str(tree), workers, context, yields) == FILES


@pytest.mark.parametrize('yields', ['data', 'file', 'both'])
def test_streaming_data_loader_reads_every_file(tree: Path, tmp_path: Path, yields: str) -> None:
    dataset = FileDataset(
        remote=str(tree), local=str(tmp_path / 'local'), batch_size=8, shuffle=True, yields=yields
    )
    loader = StreamingDataLoader(dataset, batch_size=8)
    found = {}
    for batch in loader:
        for number, path in enumerate(batch['path']):
            if yields != 'data':
                file = batch['file'][number]
                assert Path(file) == tmp_path / 'local' / path
                found[path] = Path(file).read_bytes()
            if yields != 'file':
                found[path] = batch['data'][number]
    assert found == EXPECTED


def test_file_dataset_resumes_at_every_sample(tree: Path) -> None:
    dataset = FileDataset(remote=str(tree), batch_size=1, shuffle=True)
    whole = [sample['path'] for sample in dataset]
    for stop in range(FILES):
        first = FileDataset(remote=str(tree), batch_size=1, shuffle=True)
        samples = iter(first)
        begun = [next(samples)['path'] for _ in range(stop)]
        assert begun == whole[:stop]
        state = first.state_dict(stop, False) if stop else dataset.state_dict(0, True)
        if not stop:
            continue
        again = FileDataset(remote=str(tree), batch_size=1, shuffle=True)
        again.load_state_dict(state)
        assert [sample['path'] for sample in again] == whole[stop:], stop


@pytest.mark.parametrize('ranks', [1, 2, 4])
def test_file_dataset_resumes_with_other_world_size(tree: Path, ranks: int) -> None:
    options: dict[str, Any] = {'batch_size': 2, 'shuffle': True, 'num_canonical_nodes': 2}

    def opened(rank: int, world: int) -> FileDataset:
        return FileDataset(
            remote=str(tree), rank=rank, world_size=world, local_world_size=1, **options
        )

    parts = [opened(rank, 2) for rank in range(2)]
    begun = [[sample['path'] for _, sample in zip(range(20), part)] for part in parts]
    state = parts[0].state_dict(40, False)
    rest: list[str] = []
    for rank in range(ranks):
        dataset = opened(rank, ranks)
        dataset.load_state_dict(state)
        rest += [sample['path'] for sample in dataset]
    seen = {*begun[0], *begun[1]}
    assert len(seen) == 40
    assert seen | set(rest) == set(EXPECTED)
    # But for what evens out the ranks.
    assert len(seen & set(rest)) < ranks + 2


def test_state_of_different_files_is_rejected(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / 'tree', {'a': b'1', 'b': b'2'})
    dataset = FileDataset(remote=str(tree), batch_size=1)
    next(iter(dataset))
    state = dataset.state_dict(1, False)
    assert state['files'] == dataset.digest
    write_tree(tree, {'c': b'3'})
    other = FileDataset(remote=str(tree), batch_size=1)
    with pytest.raises(ConflictError) as caught:
        other.load_state_dict(state)
    assert caught.value.id == 'state-files'
    assert dataset.digest in str(caught.value)
    assert other.digest in str(caught.value)
    # A worker that is forked later reads what the training process has listed; one that is spawned lists for itself.
    dataset._process = -1
    assert sorted(sample['path'] for sample in dataset) == ['a', 'b']
    with pytest.raises(ConflictError) as caught:
        pickle.loads(pickle.dumps(dataset))
    assert caught.value.id == 'files-digest'


def test_transform_and_get_item_change_samples(tree: Path) -> None:
    def transform(sample: dict[str, Any]) -> int:
        return len(sample['data'])

    sizes = FileDataset(remote=str(tree), batch_size=4, transform=transform)
    assert sorted(sizes) == sorted(map(len, EXPECTED.values()))
    assert sizes[0] == len(EXPECTED[sizes.path_of(0)])

    class Named(FileDataset):
        def get_item(self, sample_id: int, retry: int = 7) -> Any:
            return sample_id, super().get_item(sample_id, retry)['path']

    named = Named(remote=str(tree), batch_size=4, shuffle=True)
    assert sorted(named) == list(enumerate(named.paths()))


def test_batch_files_stay_cached_within_limit(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / 'tree', {f'{number:03}': b'x' * 1000 for number in range(60)})
    limit = room(tree, 9)
    local = tmp_path / 'local'
    dataset = FileDataset(
        remote=str(tree),
        local=str(local),
        batch_size=4,
        shuffle=True,
        yields='file',
        cache_limit=limit,
    )
    for _ in range(3):
        batch: list[str] = []
        count = 0
        for sample in dataset:
            count += 1
            if len(batch) == 4:
                batch = []
            batch.append(sample['file'])
            # All of the batch, until the next one is asked for.
            for path in batch:
                assert os.stat(path).st_size == 1000
            assert used(local) <= limit
        assert count == 60
    assert dataset.stats()['evicted_shards'] > 60
    with pytest.raises(UsageError) as caught:
        FileDataset(
            remote=str(tree),
            local=str(tmp_path / 'small'),
            batch_size=4,
            yields='file',
            cache_limit=3 * (1000 + MARKER),
        )
    assert caught.value.id == 'config-cache-limit'
    assert 'use at least' in str(caught.value)


def _limited(tree: str, local: str, limit: int, workers: int) -> int:
    dataset: Any = FileDataset(
        remote=tree, local=local, batch_size=2, shuffle=True, yields='file', cache_limit=limit
    )
    loader: Any = DataLoader(dataset, batch_size=2, num_workers=workers)
    count = 0
    for batch in loader:
        for path in batch['file']:
            assert len(Path(path).read_bytes()) == 1000
            count += 1
        assert used(Path(local)) <= limit
    return count


@pytest.mark.parametrize('workers', [1, 2, 4])
def test_workers_keep_batch_files_cached_within_limit(tmp_path: Path, workers: int) -> None:
    tree = write_tree(tmp_path / 'tree', {f'{number:03}': b'x' * 1000 for number in range(80)})
    # Three batches of two for each worker.
    limit = room(tree, workers * 6)
    assert apart(_limited, str(tree), str(tmp_path / 'local'), limit, workers) == 80


def test_file_larger_than_cache_limit_is_read(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / 'tree', {'large': b'l' * 100_000, 'small': b's'})
    dataset = FileDataset(
        remote=str(tree), local=str(tmp_path / 'local'), batch_size=2, cache_limit=5000
    )
    assert {sample['path']: len(sample['data']) for sample in dataset} == {
        'large': 100_000,
        'small': 1,
    }
    assert used(tmp_path / 'local') <= 5000


def test_invalid_file_trees_are_errors(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        FileDataset(remote=str(tmp_path / 'nowhere'), batch_size=1)
    (tmp_path / 'empty').mkdir()
    with pytest.raises(NotFoundError) as caught:
        FileDataset(remote=str(tmp_path / 'empty'), batch_size=1)
    assert caught.value.id == 'tree-empty'
    tree = write_tree(tmp_path / 'tree', {'a.jpg': b'1', 'b/c.txt': b'2', 'b/d.jpg': b'3'})
    jpg = FileDataset(remote=str(tree), batch_size=1, include=['*.jpg'], exclude=['b/*'])
    assert jpg.paths() == ['a.jpg']
    with pytest.raises(UsageError):
        FileDataset(remote=str(tree), batch_size=1, include='*.jpg')
    with pytest.raises(UsageError):
        FileDataset(remote=str(tree), batch_size=1, yields='nothing')
    with pytest.raises(UsageError):
        FileDataset(batch_size=1)
    (tree / 'link').symlink_to('a.jpg')
    with pytest.raises(UnsupportedError) as linked:
        FileDataset(remote=str(tree), batch_size=1)
    assert 'link' in str(linked.value)


def test_missing_and_changed_files_are_errors(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / 'tree', {'a': b'1', 'b': b'22', 'c': b'3'})
    dataset = FileDataset(remote=str(tree), batch_size=1)
    (tree / 'a').unlink()
    with pytest.raises(NotFoundError) as gone:
        list(dataset)
    assert (gone.value.id, gone.value.object) == ('file-missing', 'a')
    os.utime(tree / 'b', (0, 0))
    with pytest.raises(DataError) as changed:
        dataset['b']
    assert changed.value.id == 'file-changed'
    if os.geteuid():
        (tree / 'c').chmod(0)
        with pytest.raises(PermissionError, match='c'):
            dataset['c']


def test_remote_objects_are_cached_and_changes_are_errors(
    store: Store, served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in store.environment.items():
        monkeypatch.setenv(key, value)
    write_tree(served / 'files', {**EXPECTED, 'will change': b'before'})
    options: dict[str, Any] = {
        'remote': 's3://bucket/files',
        'local': str(tmp_path / 'local'),
        'batch_size': 4,
        'shuffle': True,
        'exclude': ['will change'],
    }
    dataset = FileDataset(**options)
    check(list(dataset))
    # All of them are here; a new process finds them.
    again = FileDataset(**options)
    check(list(again))
    assert again.stats()['fetched_shards'] == 0
    everything = FileDataset(remote='s3://bucket/files', local=str(tmp_path / 'all'), batch_size=4)
    (served / 'files' / 'will change').write_bytes(b'behind')
    with pytest.raises(ShardmillError) as caught:
        everything['will change']
    assert caught.value.id == 'remote-changed'


def test_file_and_shard_streams_can_be_mixed(tree: Path, tmp_path: Path) -> None:
    with MDSWriter(out=str(tmp_path / 'mds'), columns={'data': 'bytes', 'path': 'str'}) as writer:
        for number in range(40):
            writer.write({'data': b'%d' % number, 'path': f'shard {number}'})

    def opened() -> StreamingDataset:
        streams = [
            FileStream(remote=str(tree), local=str(tmp_path / 'local')),
            Stream(local=str(tmp_path / 'mds')),
        ]
        return StreamingDataset(streams=streams, batch_size=3, shuffle=True)

    def values(samples: list[dict[str, Any]]) -> list[tuple[str, bytes]]:
        return [(sample['path'], sample['data']) for sample in samples]

    whole = values(list(opened()))
    shards = {f'shard {number}': b'%d' % number for number in range(40)}
    assert dict(whole) == {**EXPECTED, **shards}
    assert len(whole) == FILES + 40
    for stop in (3, 30, 66, 135):
        dataset = opened()
        begun = values([sample for _, sample in zip(range(stop), dataset)])
        assert begun == whole[:stop]
        again = opened()
        again.load_state_dict(dataset.state_dict(stop, False))
        assert values(list(again)) == whole[stop:]


READ = """
import sys
from shardmill import _torch

# Importing torch takes longer than all the rest.
_torch.is_installed = lambda: False
from shardmill import FileDataset

remote, local, limit = sys.argv[1:]
dataset = FileDataset(remote=remote, local=local, batch_size=2, shuffle=True, yields='file', cache_limit=int(limit))
count = 0
while True:
    for sample in dataset:
        with open(sample['file'], 'rb') as file:
            assert len(file.read()) == 1000
        count += 1
        print(count, flush=True)
"""


def test_killed_and_started_again(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / 'tree', {f'{number:03}': b'x' * 1000 for number in range(50)})
    local = tmp_path / 'local'
    limit = room(tree, 20)
    environment = {**os.environ, 'PYTHONPATH': os.pathsep.join(path for path in sys.path if path)}
    for kill in range(8):
        child = subprocess.Popen(
            [sys.executable, '-c', READ, str(tree), str(local), str(limit)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert child.stdout is not None
        for _ in range(1 + 11 * kill):
            assert child.stdout.readline()
            # At most the file that is being removed by its name and one in flight are extra.
            assert used(local) <= limit
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        assert used(local) <= limit
    dataset = FileDataset(
        remote=str(tree),
        local=str(local),
        batch_size=2,
        shuffle=True,
        yields='file',
        cache_limit=limit,
    )
    assert len({sample['file'] for sample in dataset}) == 50
    assert used(local) <= limit
    own = local.parent / f'.{local.name}.shardmill'
    assert until(lambda: not list(own.rglob('tmp-*')), 1), list(own.rglob('tmp-*'))
