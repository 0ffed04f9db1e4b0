"""Files by name, within a quota: held, preloaded, shared by processes, known again after a kill."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.apart import apart, until
from test_files import room, used, write_tree

from shardmill import CacheClient
from shardmill.errors import DataError, NotFoundError, ResourceError, ShardmillError, UsageError

if TYPE_CHECKING:
    from support.store import Store

NAMES = [f'{number:03}' for number in range(20)]


def written(tmp_path: Path) -> Path:
    return write_tree(tmp_path / 'tree', {name: name.encode() * 333 + b'.' for name in NAMES})


def client(tmp_path: Path, files: int = 5, timeout: float = 0.3) -> CacheClient:
    return CacheClient(
        str(tmp_path / 'tree'),
        str(tmp_path / 'local'),
        quota=room(tmp_path / 'tree', files),
        timeout=timeout,
    )


def test_use_pins_files_until_release(tmp_path: Path) -> None:
    written(tmp_path)
    cache = client(tmp_path)
    assert (len(cache), list(cache)) == (20, NAMES)
    assert '003' in cache
    assert 'no' not in cache
    assert not cache.contains('003')
    with cache.use('003') as file:
        assert file.path == tmp_path / 'local' / '003'
        assert file.read() == b'003' * 333 + b'.'
        assert os.fspath(file) == str(file.path)
        assert file.is_held
        assert cache.contains('003')
    assert not file.is_held
    held = [cache.use(name) for name in NAMES[:5]]
    with pytest.raises(ResourceError) as caught:
        cache.use('010')
    assert (caught.value.id, caught.value.object) == ('cache-no-room', '010')
    # By name, and by letting go of it.
    assert cache.release('002')
    assert not cache.release('002')
    with cache.use('010'):
        assert not cache.contains('002')
    del held[0]
    with cache.use('011'):
        pass
    assert all(file.path.exists() for file in held if file.is_held)
    assert used(tmp_path / 'local') <= room(tmp_path / 'tree', 5)
    stats = cache.stats()
    assert stats['quota'] == room(tmp_path / 'tree', 5)
    assert stats['fetched_shards'] >= 7
    with pytest.raises(NotFoundError) as missing:
        cache.use('no')
    assert missing.value.id == 'no-such-file'


def test_preloaded_files_are_cached_and_used_files_evicted(tmp_path: Path) -> None:
    written(tmp_path)
    cache = client(tmp_path, files=8)
    assert cache.preload(NAMES[:6], wait=True) == 6
    assert [name for name in NAMES if cache.contains(name)] == NAMES[:6]
    before = cache.stats()['fetched_shards']
    for name in NAMES[:6]:
        with cache.use(name):
            pass
    assert cache.stats()['fetched_shards'] == before
    # Those that were used leave, those that are held and those that were preloaded do not.
    held = cache.use('000')
    cache.preload(NAMES[10:], wait=True)
    here = [name for name in NAMES if cache.contains(name)]
    # As many as there is room for; which of them is for the threads to tell that ask for room side by side.
    assert here[0] == '000'
    assert len(here) == 8
    assert set(here[1:]) <= set(NAMES[10:])
    assert held.path.exists()
    assert used(tmp_path / 'local') <= room(tmp_path / 'tree', 8)


def test_file_larger_than_quota_can_only_be_read(tmp_path: Path) -> None:
    write_tree(tmp_path / 'tree', {'large': b'l' * 100_000, 'small': b's'})
    cache = client(tmp_path)
    with pytest.raises(UsageError) as caught:
        cache.use('large')
    assert caught.value.id == 'config-cache-limit'
    assert caught.value.object == 'quota'
    assert 'large: `quota` is ' in str(caught.value)
    assert cache.read('large') == b'l' * 100_000
    assert cache.read('small') == b's'
    assert cache.contains('small')
    assert not cache.contains('large')
    assert used(tmp_path / 'local') <= room(tmp_path / 'tree', 5)


def test_quota_smaller_than_file_list_is_an_error(tmp_path: Path) -> None:
    tree = written(tmp_path)
    for quota in ('10', 1):
        with pytest.raises(
            UsageError, match=r'`quota` is .* the list of the files alone'
        ) as caught:
            CacheClient(str(tree), str(tmp_path / 'local'), quota=quota)
        assert (caught.value.id, caught.value.object) == ('config-cache-limit', 'quota')
        assert 'cache_limit' not in str(caught.value)


def test_cached_files_survive_reopening_and_pickling(tmp_path: Path) -> None:
    written(tmp_path)
    with client(tmp_path).use('001'):
        pass
    again: CacheClient = pickle.loads(pickle.dumps(client(tmp_path)))
    assert again.contains('001')
    with again.use('001'):
        pass
    assert again.stats()['fetched_shards'] == 0


def test_local_tree_is_read_in_place(tmp_path: Path) -> None:
    tree = written(tmp_path)
    cache = CacheClient(str(tree), quota=1)
    assert cache.preload(NAMES) == 0
    with cache.use('004') as file:
        assert file.path == tree / '004'
    assert cache.contains('004')
    assert cache.read('004') == b'004' * 333 + b'.'


def test_changed_and_missing_files_are_errors(tmp_path: Path) -> None:
    tree = written(tmp_path)
    cache = client(tmp_path)
    with cache.use('000'):
        pass
    cache.check('000')
    for name in ('000', '001'):
        (tree / name).write_bytes(b'changed')
    with pytest.raises(DataError) as caught:
        cache.use('001')
    assert caught.value.id == 'file-changed'
    with pytest.raises(DataError):
        cache.check('000')
    (tree / '002').unlink()
    with pytest.raises(NotFoundError):
        cache.check('002')
    anew = CacheClient(str(tree), str(tmp_path / 'local'), quota=room(tree, 5), relist=True)
    assert len(anew) == 19
    assert anew.read('000') == b'changed'


def test_changed_objects_are_errors(
    store: Store, served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in store.environment.items():
        monkeypatch.setenv(key, value)
    write_tree(served / 'cached', {'a b.txt': b'one', 'ä/2': b'two'})
    cache = CacheClient('s3://bucket/cached', str(tmp_path / 'local'), quota='1mb')
    assert cache.read('a b.txt') == b'one'
    (served / 'cached' / 'ä' / '2').write_bytes(b'TWO')
    with pytest.raises(ShardmillError) as caught:
        cache.read('ä/2')
    assert caught.value.id == 'remote-changed'
    with pytest.raises(DataError):
        cache.check('ä/2')


def test_concurrent_threads_stay_within_quota(tmp_path: Path) -> None:
    written(tmp_path)
    cache = client(tmp_path, files=6, timeout=20)
    wrong: list[BaseException] = []

    def work(first: int) -> None:
        try:
            for turn in range(60):
                name = NAMES[(first + 7 * turn) % len(NAMES)]
                with cache.use(name) as file:
                    assert file.read() == name.encode() * 333 + b'.'
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert used(tmp_path / 'local') <= room(tmp_path / 'tree', 6)


def _forked(tree: str, local: str) -> bool:
    cache = CacheClient(tree, local, quota=room(Path(tree), 3))
    with cache.use('001'):
        child = os.fork()
        if not child:
            # It has a reader of its own, and what the parent holds stays.
            good = cache.read('002') == b'002' * 333 + b'.'
            for name in NAMES[3:]:
                good = good and cache.read(name) == name.encode() * 333 + b'.'
            os._exit(0 if good and cache.contains('001') else 1)
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status) == 0 and cache.contains('001')


def test_forked_process_can_use_cache(tmp_path: Path) -> None:
    tree = written(tmp_path)
    assert apart(_forked, str(tree), str(tmp_path / 'local'))


USE = """
import itertools, sys
from shardmill import CacheClient

tree, local, quota, first = sys.argv[1:]
cache = CacheClient(tree, local, quota=int(quota), timeout=60)
names = list(cache)
for turn in itertools.count(int(first)):
    name = names[turn * 7 % len(names)]
    with cache.use(name) as file:
        assert file.read() == name.encode() * 333 + b'.'
    print(turn, flush=True)
"""


def test_processes_that_are_killed(tmp_path: Path) -> None:
    tree = written(tmp_path)
    local, quota = tmp_path / 'local', room(tree, 8)
    environment = {**os.environ, 'PYTHONPATH': os.pathsep.join(path for path in sys.path if path)}
    children = []

    def start(first: int) -> subprocess.Popen[str]:
        words = [sys.executable, '-c', USE, str(tree), str(local), str(quota), str(first)]
        return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment)

    try:
        children = [start(number) for number in range(3)]
        for kill in range(9):
            child = children[kill % 3]
            assert child.stdout is not None
            for _ in range(3 + 4 * kill):
                assert child.stdout.readline()
                assert used(local) <= quota
            child.send_signal(signal.SIGKILL)
            child.wait()
            child.stdout.close()
            children[kill % 3] = start(kill)
    finally:
        for child in children:
            child.kill()
            child.wait()
            if child.stdout is not None:
                child.stdout.close()
    cache = CacheClient(str(tree), str(local), quota=quota, timeout=5)
    for name in NAMES:
        assert cache.read(name) == name.encode() * 333 + b'.'
    assert used(local) <= quota
    own = local.parent / f'.{local.name}.shardmill'
    assert until(lambda: not list(own.rglob('tmp-*')), 1), list(own.rglob('tmp-*'))
