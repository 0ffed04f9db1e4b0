"""Shared memory for processes that were started separately."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
import tempfile
from multiprocessing import shared_memory as builtin
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pytest

from shardmill.base.constant import BARRIER_FILELOCK, LOCALS, RESUME, SHM_TO_CLEAN
from shardmill.base.shared import (
    SharedArray,
    SharedBarrier,
    SharedMemory,
    SharedScalar,
    get_shm_prefix,
    prefix,
)
from shardmill.base.shared.prefix import _check_and_find
from shardmill.base.util import clean_stale_shared_memory
from shardmill.base.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def name() -> Iterator[str]:
    """A name of a block, which is destroyed afterwards."""
    chosen = f'shardmill-test-{os.getpid()}'
    yield chosen
    destroy(chosen)


def destroy(name: str) -> None:
    if exists(name):
        block = builtin.SharedMemory(name)
        block.close()
        block.unlink()


def exists(name: str) -> bool:
    return Path('/dev/shm', name).exists()


def test_shared_memory_is_created_and_attached(name: str) -> None:
    with pytest.raises(FileNotFoundError):
        SharedMemory(name, False)
    creator = SharedMemory(name, True, 16)
    creator.buf[:3] = b'abc'
    with pytest.raises(FileExistsError):
        SharedMemory(name, True, 16)
    for attached in (SharedMemory(name, False), SharedMemory(name, None, 16)):
        assert bytes(attached.buf[:3]) == b'abc'
        attached.cleanup()
        attached.cleanup()
        assert exists(name)
    creator.cleanup()
    creator.cleanup()
    assert not exists(name)
    with pytest.raises(ValueError, match='closed'):
        _ = creator.buf


def test_numpy_array_stays_valid_after_cleanup(name: str) -> None:
    shared = SharedArray(2, np.int64, name)
    array = shared.numpy()
    shared.shm.cleanup()
    assert not exists(name)
    array[:] = 7
    assert array.tolist() == [7, 7]


def test_cleanup_in_forked_child_keeps_shared_memory(name: str) -> None:
    memory = SharedMemory(name, True, 16)
    child = os.fork()
    if child == 0:
        memory.cleanup()
        os._exit(0)
    os.waitpid(child, 0)
    assert exists(name)
    memory.cleanup()
    assert not exists(name)


ATTACH = """
import sys
from shardmill.base.shared import SharedMemory
print(bytes(SharedMemory(sys.argv[1], False).buf[:3]))
"""
CREATE = """
import sys
from shardmill.base.shared import SharedMemory
SharedMemory(sys.argv[1], True, 8).buf[:3] = b'abc'
"""


def run(program: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, '-c', program, *arguments], capture_output=True, text=True, check=True
    )
    # The tracker of shared memory tells its trouble there.
    assert done.stderr == ''
    return done.stdout.strip()


def test_only_creator_removes_shared_memory_at_exit(name: str) -> None:
    memory = SharedMemory(name, True, 8)
    memory.buf[:3] = b'abc'
    assert run(ATTACH, name) == "b'abc'"
    assert exists(name)
    memory.cleanup()
    run(CREATE, name)
    assert not exists(name)


def test_shared_array_is_visible_to_other_instances(name: str) -> None:
    array = SharedArray((2, 3), np.int32, name)
    try:
        assert array.shape == (2, 3)
        assert len(array) == 2
        assert array[:].tolist() == [[0] * 3] * 2
        array[1] = [1, 2, 3]
        array[0, [0, 2]] = 9
        other = SharedArray((2, 3), np.int32, name)
        assert other.numpy().tolist() == [[9, 0, 9], [1, 2, 3]]
        assert isinstance(other[1, 2], np.int32)
        copy = pickle.loads(pickle.dumps(array))
        copy[0, 0] = 5
        assert array[0, 0] == 5
        assert SharedArray(3, np.float64, f'{name}-2').shape == (3,)
    finally:
        array.shm.cleanup()
        destroy(f'{name}-2')


def test_shared_scalar_is_visible_to_other_instances(name: str) -> None:
    number = SharedScalar(np.int64, name)
    assert number.get() == 0
    number.set(1 << 40)
    assert SharedScalar(np.int64, name).get() == 1 << 40
    assert isinstance(number.get(), np.int64)
    number.arr.shm.cleanup()


def at_barrier(barrier: SharedBarrier, processes: int, steps: Any) -> None:
    for step in range(5):
        steps.put((step, 'before'))
        barrier(processes)
        steps.put((step, 'after'))
        barrier(processes)


@pytest.mark.parametrize('method', ['fork', 'spawn'])
def test_barrier_waits_for_all_processes(name: str, tmp_path: Path, method: str) -> None:
    context: Any = multiprocessing.get_context(method)
    barrier = SharedBarrier(str(tmp_path / 'lock'), name)
    assert (barrier.num_enter, barrier.num_exit, barrier.flag) == (0, -1, True)
    with context.Manager() as manager:
        steps = manager.Queue()
        processes = [context.Process(target=at_barrier, args=(barrier, 3, steps)) for _ in range(3)]
        for process in processes:
            process.start()
        for process in processes:
            process.join(120)
            assert process.exitcode == 0
        found = [steps.get() for _ in range(30)]
    expected = [(step, when) for step in range(5) for when in ('before', 'after') for _ in range(3)]
    assert found == expected
    assert (barrier.num_enter, barrier.num_exit, barrier.flag) == (0, -1, True)
    barrier.num_enter, barrier.num_exit, barrier.flag = 4, 5, False
    assert (barrier.num_enter, barrier.num_exit, barrier.flag) == (4, 5, False)
    # A process that attaches later leaves the counters as they are.
    other = SharedBarrier(str(tmp_path / 'lock'), name)
    assert (other.num_enter, other.num_exit, other.flag) == (4, 5, False)
    assert (barrier.num_enter, barrier.num_exit, barrier.flag) == (4, 5, False)
    barrier._arr.shm.cleanup()


@pytest.fixture
def no_prefix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Prefixes of our own: those of this machine may be in use."""
    monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path))
    monkeypatch.setattr(prefix, '_get_path', path)
    yield
    for number in range(9):
        for name in SHM_TO_CLEAN:
            destroy(path(number, name))


def path(number: int, name: str) -> str:
    return f'shardmill-{os.getpid()}-{number}_{name}'


ALONE = World(1, 1, 1, 0)


def test_shared_memory_path_contains_prefix_number() -> None:
    assert prefix._get_path(12, 'locals') == '000012_locals'


@pytest.mark.usefixtures('no_prefix')
def test_runs_get_different_prefixes() -> None:
    first, memory = get_shm_prefix(['/a', '/b'], ['s3://a', None], ALONE)
    assert first == 0
    assert bytes(memory.buf[4:11]) == b'/a\0/b\x000'
    second, _ = get_shm_prefix(['/c'], ['s3://c'], ALONE)
    assert second == 1
    # A folder that nothing is downloaded to may be shared.
    assert get_shm_prefix(['/b'], [None], ALONE)[0] == 2
    assert get_shm_prefix(['/a', '/d'], [None, 's3://d'], ALONE)[0] == 3
    # Not the first of its node: it finds what the first one registered.
    with pytest.raises(RuntimeError, match='has not registered the prefix 4'):
        get_shm_prefix(['/e'], ['s3://e'], World(1, 2, 1, 1))


@pytest.mark.usefixtures('no_prefix')
def test_reused_local_folder_is_an_error() -> None:
    with pytest.raises(ValueError, match=r'Reused local directory: .*Provide a different one'):
        get_shm_prefix(['/a', '/a'], [None, None], ALONE)
    get_shm_prefix(['/a'], ['s3://a'], ALONE)
    with pytest.raises(ValueError, match=r'Reused local directory: .* vs .*different one'):
        get_shm_prefix(['/b', '/a'], ['s3://b', 's3://a'], ALONE, retry=2)
    with pytest.raises(ValueError, match='retry'):
        get_shm_prefix(['/b'], ['s3://b'], ALONE, retry=-1)


@pytest.mark.usefixtures('no_prefix')
def test_inaccessible_shared_memory_is_skipped() -> None:
    with mock.patch.object(
        SharedMemory, '__init__', side_effect=[PermissionError, FileNotFoundError]
    ):
        assert _check_and_find(['/a'], [None], LOCALS) == 1
    Path(tempfile.gettempdir(), path(0, BARRIER_FILELOCK)).touch()
    assert _check_and_find(['/a'], [None], LOCALS) == 1


@pytest.mark.usefixtures('no_prefix')
def test_stale_shared_memory_is_removed() -> None:
    clean_stale_shared_memory()
    left = [path(0, LOCALS), path(1, RESUME), path(2, RESUME)]
    for name in [*left, path(4, RESUME)]:
        builtin.SharedMemory(name, True, 8).close()
    clean_stale_shared_memory()
    assert not any(map(exists, left))
    # Behind a gap there is another run, or nothing.
    assert exists(path(4, RESUME))
    destroy(path(4, RESUME))


@pytest.mark.usefixtures('no_prefix')
def test_only_local_rank_zero_removes_stale_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = SharedMemory(path(0, RESUME), True, 8)
    monkeypatch.setenv('LOCAL_RANK', '1')
    clean_stale_shared_memory()
    assert exists(path(0, RESUME))
    monkeypatch.setenv('LOCAL_RANK', '0')
    clean_stale_shared_memory()
    assert not exists(path(0, RESUME))
    memory.cleanup()
