"""Samples and fields as files of a filesystem of fsspec."""

from __future__ import annotations

import io
import os
import pickle
from hashlib import md5
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import numpy as np
import pytest
from fsspec.tests.abstract import AbstractFixtures, AbstractGetTests

from shardmill import MDSWriter
from shardmill.errors import NotFoundError
from shardmill.filesystem import ShardmillFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.store import Store


def _write(out: Path, samples: list[dict[str, Any]], **columns: str) -> str:
    with MDSWriter(out=str(out), columns=columns, size_limit=2000) as writer:
        for sample in samples:
            writer.write(sample)
    return str(out)


def _data(out: Path) -> str:
    columns = {
        'text': 'str',
        'data': 'bytes',
        'number': 'int',
        'facts': 'json',
        'vector': 'ndarray:float32',
        'camera/left': 'bytes',
    }
    samples = [
        {
            'text': f'größe {n}',
            'data': bytes(range(n % 256)),
            'number': n,
            'facts': {'n': n},
            'vector': np.arange(n % 5 + 1, dtype=np.float32),
            'camera/left': b'left' * n,
        }
        for n in range(120)
    ]
    return _write(out, samples, **columns)


@pytest.fixture
def fs() -> ShardmillFileSystem:
    return ShardmillFileSystem(skip_instance_cache=True)


def test_fields_are_read_as_files(tmp_path: Path, fs: ShardmillFileSystem) -> None:
    data = _data(tmp_path / 'data')
    url = f'shardmill://{data}!/7'
    assert fs.cat_file(f'{url}/text') == 'größe 7'.encode()
    assert fs.cat_file(f'{url}/data', start=2, end=-1) == bytes(range(7))[2:-1]
    assert fs.cat_file(f'{url}/number') == b'7'
    assert fs.cat_file(f'{url}/facts') == b'{"n": 7}'
    assert fs.cat_file(f'{url}/camera/left') == b'left' * 7
    vector = np.load(io.BytesIO(fs.cat_file(f'{url}/vector')))
    np.testing.assert_array_equal(vector, np.arange(3, dtype=np.float32))
    with fs.open(f'{url}/text', 'r', encoding='utf-8') as file:
        assert file.read() == 'größe 7'
    assert fs.info(f'{url}/data') == {'name': f'{data}!/7/data', 'size': 7, 'type': 'file'}
    assert fs.size(f'{url}/camera/left') == 28


def test_samples_and_fields_are_listed_as_directories(
    tmp_path: Path, fs: ShardmillFileSystem
) -> None:
    data = _data(tmp_path / 'data')
    root = f'{data}!'
    samples = fs.ls(data, detail=False)
    assert samples == [f'{root}/{n:03}' for n in range(120)]
    assert fs.ls(f'{root}/', detail=False) == samples
    fields = fs.ls(f'{root}/005', detail=False)
    names = ['camera', 'data', 'facts', 'number', 'text', 'vector']
    assert fields == [f'{root}/005/{name}' for name in names]
    assert fs.isdir(root) and fs.isdir(fields[0]) and fs.isfile(fields[1])
    assert fs.ls(f'{root}/005/camera', detail=False) == [f'{root}/005/camera/left']
    assert fs.glob(f'{root}/00[12]/text') == [f'{root}/001/text', f'{root}/002/text']
    assert len(fs.find(f'{root}/005')) == 6
    assert fs.du(f'{root}/005/camera') == 20
    for missing in ('120', '-1', 'x', '5/none', '5/text/deeper', '5/cam'):
        assert not fs.exists(f'{root}/{missing}')
        with pytest.raises(FileNotFoundError):
            fs.open(f'{root}/{missing}')
    with pytest.raises(IsADirectoryError):
        fs.open(f'{root}/5/camera')
    with pytest.raises(NotFoundError):
        fs.ls(str(tmp_path / 'none'))


def test_filesystem_is_read_only(tmp_path: Path, fs: ShardmillFileSystem) -> None:
    root = f'{_data(tmp_path / "data")}!'
    attempts: list[Callable[[], Any]] = [
        lambda: fs.open(f'{root}/5/text', 'wb'),
        lambda: fs.pipe_file(f'{root}/5/text', b''),
        lambda: fs.mkdir(f'{root}/500'),
        lambda: fs.makedirs(f'{root}/500/a'),
        lambda: fs.rm(f'{root}/5/text'),
        lambda: fs.rmdir(f'{root}/5'),
        lambda: fs.cp_file(f'{root}/5/text', f'{root}/6/text'),
        lambda: fs.put_file(__file__, f'{root}/5/text'),
    ]
    for attempt in attempts:
        with pytest.raises(OSError, match='Read-only'):
            attempt()


def test_fsspec_opens_shardmill_urls(tmp_path: Path) -> None:
    """The entry point of the package names the class; tests run without an installed package."""
    text = (Path(__file__).parents[1] / 'pyproject.toml').read_text()
    assert (
        """[project.entry-points.'fsspec.specs']
shardmill = 'shardmill.filesystem.ShardmillFileSystem'""".replace("'", '"')
        in text
    )
    fsspec.register_implementation(
        'shardmill', 'shardmill.filesystem.ShardmillFileSystem', clobber=True
    )
    data = _data(tmp_path / 'data')
    with fsspec.open(f'shardmill://{data}!/3/text', 'rt', encoding='utf-8') as file:
        assert file.read() == 'größe 3'
    files = fsspec.open_files(f'shardmill://{data}!/11*/number')
    found = []
    for each in files:
        with each as file:
            found.append(int(file.read()))
    assert found == list(range(110, 120))
    with fsspec.open(f'simplecache::shardmill://{data}!/3/number') as file:
        assert file.read() == b'3'


def test_pickled_and_forked_filesystem_can_read(tmp_path: Path) -> None:
    data = _data(tmp_path / 'data')
    fs = ShardmillFileSystem(skip_instance_cache=True)
    assert fs.cat_file(f'{data}!/3/number') == b'3'
    assert pickle.loads(pickle.dumps(fs)).cat_file(f'{data}!/4/number') == b'4'
    child = os.fork()
    if child == 0:
        os._exit(0 if fs.cat_file(f'{data}!/5/number') == b'5' else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_remote_dataset_is_read_as_files(tmp_path: Path, served: Path, store: Store) -> None:
    _data(served / 'samples')
    fs = ShardmillFileSystem(skip_instance_cache=True, settings=store.environment)
    assert fs.cat_file('shardmill://s3://bucket/samples!/64/text') == 'größe 64'.encode()
    assert len(fs.ls('s3://bucket/samples')) == 120


class TestAbstractGet(AbstractFixtures, AbstractGetTests):  # type: ignore[misc]
    """The tests of fsspec for reading, with samples whose columns are the files that they expect."""

    @pytest.fixture
    def fs(self) -> ShardmillFileSystem:
        return ShardmillFileSystem(skip_instance_cache=True)

    @pytest.fixture
    def fs_path(self, tmp_path: Path) -> str:
        return str(tmp_path)

    def _sample(self, fs_path: str, files: dict[str, bytes]) -> str:
        columns = dict.fromkeys(files, 'bytes')
        return f'{_write(Path(fs_path, "data"), [files], **columns)}!/0'

    def test_get_directory_recursive(self, fs: ShardmillFileSystem, fs_path: str) -> None:
        """The test of fsspec makes the directory itself."""
        source = self._sample(fs_path, {'file': b'content'})
        for number, slash in enumerate(('', '/')):
            target = f'{fs_path}/target{number}'
            for copied in (f'{target}/file', f'{target}/0/file' if not slash else f'{target}/file'):
                fs.get(source + slash, target, recursive=True)
                assert Path(copied).read_bytes() == b'content'

    @pytest.fixture
    def fs_bulk_operations_scenario_0(self, fs_path: str) -> str:
        names = [
            'file1',
            'file2',
            'subdir/subfile1',
            'subdir/subfile2',
            'subdir/nesteddir/nestedfile',
        ]
        return self._sample(fs_path, dict.fromkeys(names, b''))

    @pytest.fixture
    def fs_glob_edge_cases_files(self, fs_path: str) -> str:
        names = ['file1', 'file2']
        for folder in ('subdir0', 'subdir1'):
            names += [
                f'{folder}/{name}' for name in ('subfile1', 'subfile2', 'nesteddir/nestedfile')
            ]
        return self._sample(fs_path, dict.fromkeys(names, b''))

    @pytest.fixture
    def fs_dir_and_file_with_same_name_prefix(self, fs_path: str) -> str:
        return self._sample(fs_path, {'subdir.txt': b'', 'subdir/subfile.txt': b''})

    @pytest.fixture
    def fs_10_files_with_hashed_names(self, fs_path: str) -> str:
        names = [f'{md5(str(n).encode()).hexdigest()}.txt' for n in range(10)]
        return self._sample(fs_path, {name: str(n).encode() for n, name in enumerate(names)})
