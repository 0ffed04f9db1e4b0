"""Read-only mounts, bind mounts, and file systems that refuse calls."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support import refuse
from support.launch import launch
from support.samples import write

from shardmill import FileDataset, MDSWriter, StreamingDataset
from shardmill._program import find_program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.store import Store

PROGRAM = Path(__file__).parent / 'programs/epoch_read.py'
SAMPLES = 100
NUMBERS = list(range(SAMPLES))


def _mount(*words: object) -> None:
    try:
        done = subprocess.run(
            ['mount', *map(str, words)], capture_output=True, text=True, check=False
        )
    except OSError as error:
        pytest.skip(f'SKIP there is no mount: {error}')
    if done.returncode:
        pytest.skip(f'SKIP nothing can be mounted: {done.stderr.strip()}')


@contextlib.contextmanager
def bound(source: Path, target: Path) -> Iterator[Path]:
    """Mounts a folder in another place as well."""
    source.mkdir(parents=True, exist_ok=True)
    target.mkdir(parents=True, exist_ok=True)
    _mount('--bind', source, target)
    try:
        yield target
    finally:
        subprocess.run(['umount', '-l', str(target)], check=True)


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Mounts a folder over itself, read-only."""
    with bound(folder, folder):
        _mount('-o', 'remount,bind,ro', folder)
        yield


def numbers(dataset: StreamingDataset[Any]) -> list[int]:
    return sorted(int(sample['number']) for sample in dataset)


def shardmill(*words: object, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [find_program(), *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **(environment or {})},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def cached(local: Path, remote: Path, **options: Any) -> StreamingDataset[Any]:
    return StreamingDataset(remote=str(remote), local=str(local), batch_size=4, **options)


@pytest.mark.parametrize('writer', [{}, {'compression': 'zstd'}], ids=['plain', 'packed'])
@pytest.mark.parametrize('own_files', ['with', 'without'])
def test_complete_cache_is_read_from_a_read_only_mount(
    tmp_path: Path, writer: dict[str, Any], own_files: str
) -> None:
    remote = write(tmp_path / 'remote', SAMPLES, **writer)
    node = tmp_path / 'node'
    local = node / 'local'
    assert numbers(cached(local, remote, keep_zip=True)) == NUMBERS
    if own_files == 'without':
        shutil.rmtree(node / '.local.shardmill')
    before = sorted(path.relative_to(node) for path in node.rglob('*'))
    for mounted in (node, local):
        with read_only(mounted):
            # Shards of the origin are not needed, only its index.
            for shard in remote.glob('shard.*'):
                shard.rename(tmp_path / shard.name)
            for options in ({}, {'cache_limit': '50kb'}, {'shuffle': True}):
                assert numbers(cached(local, remote, **options)) == NUMBERS
            for shard in tmp_path.glob('shard.*'):
                shard.rename(remote / shard.name)
    assert sorted(path.relative_to(node) for path in node.rglob('*')) == before


def test_missing_shards_of_a_read_only_cache_are_fetched_to_memory(tmp_path: Path) -> None:
    remote = write(tmp_path / 'remote', SAMPLES)
    local = tmp_path / 'local'
    assert numbers(cached(local, remote)) == NUMBERS
    (local / 'shard.00001.mds').unlink()
    with read_only(tmp_path):
        assert numbers(cached(local, remote)) == NUMBERS
    assert not (local / 'shard.00001.mds').exists()


@pytest.mark.parametrize('writer', [{}, {'compression': 'zstd'}], ids=['plain', 'packed'])
def test_read_only_dataset_is_read_in_place(tmp_path: Path, writer: dict[str, Any]) -> None:
    folder = write(tmp_path / 'data', SAMPLES, **writer)
    home = tmp_path / 'home'
    home.mkdir()
    with read_only(folder), read_only(home):
        assert numbers(StreamingDataset(local=str(folder), batch_size=4)) == NUMBERS
        # The same folder as both.
        assert numbers(cached(folder, folder, keep_zip=True)) == NUMBERS
        environment = {'HOME': str(home)}
        shardmill('verify', folder, environment=environment)
        shardmill('inspect', folder, environment=environment)
        shardmill('convert', folder, tmp_path / 'out', environment=environment)
        with bound(tmp_path / 'files', tmp_path / 'files'):
            assert len(list(FileDataset(remote=str(folder), batch_size=4))) > 1
    assert numbers(StreamingDataset(local=str(tmp_path / 'out'), batch_size=4)) == NUMBERS


def test_cache_and_compressed_folder_can_be_bind_mounts(tmp_path: Path) -> None:
    packed = write(tmp_path / 'packed', SAMPLES, compression='zstd')
    with bound(tmp_path / 'volume', tmp_path / 'node/local') as local:
        for options in ({'keep_zip': True}, {}, {'cache_limit': '40kb'}):
            assert numbers(cached(local, packed, **options)) == NUMBERS
        assert (local / '.shardmill').is_dir()
        assert not (tmp_path / 'node/.local.shardmill').exists()
    with bound(packed, tmp_path / 'place/data') as folder:
        assert numbers(StreamingDataset(local=str(folder), batch_size=4)) == NUMBERS
        assert numbers(cached(folder, folder)) == NUMBERS
        assert (folder / 'shard.00000.mds').exists()
    # A shard folder in a cache can be another mount as well.
    for part in ('a', 'b'):
        write(tmp_path / 'remote' / part, SAMPLES)
    with bound(tmp_path / 'volume-a', tmp_path / 'split/a'):
        found = cached(tmp_path / 'split', tmp_path / 'remote', split='a')
        assert numbers(found) == NUMBERS


def test_files_of_a_tree_are_cached_across_a_bind_mount(
    tmp_path: Path, store: Store, served: Path
) -> None:
    tree = served / 'mounted-tree'
    for name in ('a/x', 'a/y', 'b/z'):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(name)
    options = {'remote': 's3://bucket/mounted-tree', 'local': str(tmp_path / 'local')}
    what = {'files': True, 'options': options}
    with bound(tmp_path / 'volume', tmp_path / 'local/a'):
        for _ in range(2):
            printed = launch([str(PROGRAM), json.dumps(what)], store.environment, 120)
            assert json.loads(printed.splitlines()[-1])['numbers'] == ['a/x', 'a/y', 'b/z']


def test_destination_of_a_conversion_can_have_mounts(tmp_path: Path) -> None:
    source = write(tmp_path / 'source', SAMPLES)
    splits = tmp_path / 'splits'
    options: list[object] = ['--split', 'a=0.5,b=0.5', '--temp-dir', tmp_path / 'temp']
    (tmp_path / 'temp').mkdir()
    shardmill('convert', source, splits, *options)
    shutil.copytree(splits / 'a', tmp_path / 'part')
    with (
        bound(tmp_path / 'volume', tmp_path / 'tree/dest') as dest,
        bound(tmp_path / 'part', splits / 'a'),
        bound(tmp_path / 'elsewhere', tmp_path / 'temp') as temp,
    ):
        for _ in range(2):
            shardmill('convert', source, dest, '--temp-dir', temp)
        shardmill('convert', source, splits, *options, '--compression', 'zstd', '--overwrite')
        shardmill('gc', dest, '--delete')
        for folder in (dest, splits / 'a', splits / 'b'):
            shardmill('verify', folder)
        with MDSWriter(out=str(dest / 'python'), columns={'number': 'int'}) as out:
            out.write({'number': 0})
        assert numbers(StreamingDataset(local=str(dest / 'python'), batch_size=1)) == [0]
    assert not list(tmp_path.glob('**/tmp-*'))


#: What a kind of file system refuses.
REFUSALS = {
    'cifs': ['chmod=EPERM', 'link=EPERM', 'exclusive-rename=EINVAL', 'range-lock=ENOLCK'],
    'fuse': ['chmod=ENOTSUP', 'link=ENOTSUP', 'nameless=EOPNOTSUPP', 'shared-map=ENODEV'],
    'lockless': ['flock=ENOLCK', 'range-lock=ENOLCK', 'chmod=EACCES'],
    'sandbox': ['statx=ENOSYS', 'openat2=ENOSYS', 'range-lock=EINVAL', 'exclusive-rename=ENOSYS'],
    'seccomp': ['statx=EPERM', 'openat2=EPERM'],
    '9p': ['statx=EINVAL', 'link=EPERM', 'exclusive-rename=EINVAL', 'flock=EINVAL'],
}


@pytest.mark.parametrize('kind', REFUSALS)
def test_file_system_that_refuses_calls_has_all_of_it(
    tmp_path: Path, served: Path, store: Store, kind: str
) -> None:
    prefix = [sys.executable, refuse.__file__, *REFUSALS[kind], '--']
    try:
        subprocess.run([*prefix, 'true'], check=True, capture_output=True)
    except (KeyError, subprocess.CalledProcessError) as error:
        pytest.skip(f'SKIP calls cannot be refused: {error}')

    def refused(*words: object) -> str:
        done = subprocess.run(
            [*prefix, *map(str, words)], capture_output=True, text=True, check=False, timeout=200
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    source = write(tmp_path / 'source', SAMPLES)
    dest = tmp_path / 'dest'
    for more_words in ([], [], ['--overwrite', '--compression', 'zstd']):
        refused(find_program(), 'convert', source, dest, *more_words)
    refused(find_program(), 'verify', dest)
    refused(find_program(), 'gc', dest, '--delete')
    page = tmp_path / 'page.html'
    refused(find_program(), 'view', dest, '--export', page)
    assert page.exists()
    remote = served / f'refused-{kind}'
    if not remote.exists():
        write(remote, SAMPLES, compression='zstd')
    local = tmp_path / 'local'
    options: dict[str, Any] = {
        'remote': f's3://bucket/{remote.name}',
        'local': str(local),
        'shuffle': True,
    }
    wanted = sorted(NUMBERS, key=str)
    # Python itself links files to make what loader processes share.
    workers = 0 if any(rule.startswith('link') for rule in REFUSALS[kind]) else 2
    for number, more in enumerate(({}, {'cache_limit': '40kb'})):
        what: dict[str, Any] = {'options': {**options, **more}, 'workers': workers * number}
        what |= {'out': str(tmp_path / f'written-{number}')}
        words = [refuse.__file__, *REFUSALS[kind], '--', sys.executable, str(PROGRAM)]
        printed = launch([*words, json.dumps(what)], store.environment, 200)
        assert json.loads(printed.splitlines()[-1])['numbers'] == wanted
    # Where the permissions of the cache can be set, other users have none.
    if not REFUSALS[kind][0].startswith('chmod'):
        for folder in (tmp_path / '.local.shardmill').rglob('cache-*'):
            assert folder.stat().st_mode & 0o077 == 0


def test_permissions_of_a_cache_are_closed_where_that_works(tmp_path: Path) -> None:
    remote = write(tmp_path / 'remote', SAMPLES)
    local = tmp_path / 'local'
    assert numbers(cached(local, remote)) == NUMBERS
    own = tmp_path / '.local.shardmill'
    own.chmod(0o755)
    assert numbers(cached(local, remote)) == NUMBERS
    assert own.stat().st_mode & 0o777 == 0o700
