"""Sizes as text, waiting, trying again, merging indexes."""

from __future__ import annotations

import json
import logging
import threading
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, Optional

import pytest

from shardmill.base.util import (
    _format_remote_index_files,
    bytes_to_int,
    get_import_exception_message,
    get_list_arg,
    merge_index,
    number_abbrev_to_int,
    retry,
    wait_for_file_to_exist,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ('text', 'parts'), [('', []), ('a', ['a']), ('a,b', ['a', 'b']), (',', ['', ''])]
)
def test_list_argument_is_split_at_commas(text: str, parts: list[str]) -> None:
    assert get_list_arg(text) == parts


@pytest.mark.parametrize(
    ('text', 'number'),
    [
        ('0', 0),
        ('1234', 1234),
        ('7b', 7),
        ('7B', 7),
        (' 100 KB ', 102_400),
        ('1.5mb', 1_572_864),
        ('1gb', 1 << 30),
        ('2tb', 2 << 40),
        ('1pb', 1 << 50),
        ('1eb', 1 << 60),
        ('1zb', 1 << 70),
        ('1yb', 1 << 80),
        (35.9, 35),
        (1 << 50, 1 << 50),
    ],
)
def test_byte_sizes_are_parsed(text: Any, number: int) -> None:
    assert bytes_to_int(text) == number
    assert type(bytes_to_int(text)) is int


@pytest.mark.parametrize(
    ('text', 'number'),
    [
        ('0', 0),
        ('50K', 50_000),
        (' 1.5 m ', 1_500_000),
        ('2b', 2 * 10**9),
        ('3t', 3 * 10**12),
        (2.5, 2),
    ],
)
def test_abbreviated_numbers_are_parsed(text: Any, number: int) -> None:
    assert number_abbrev_to_int(text) == number
    assert type(number_abbrev_to_int(text)) is int


@pytest.mark.parametrize(
    'text', ['', 'b', 'kb', '12kbb', 'one mb', '1.5', '-1', '1e400gb', 'nankb']
)
def test_invalid_byte_size_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match='Unsupported value/suffix'):
        bytes_to_int(text)


@pytest.mark.parametrize('text', ['', 'k', '12kb', '1kk', 'many', '1.5', '-1', 'p 64', 'infk'])
def test_invalid_abbreviated_number_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match='Unsupported value/suffix'):
        number_abbrev_to_int(text)


def test_wait_for_file_returns_or_times_out(tmp_path: Path) -> None:
    path = tmp_path / 'file'
    with pytest.raises(RuntimeError, match=r'too late: .*file is not there'):
        wait_for_file_to_exist(str(path), 0.001, 0.01, 'too late')
    timer = threading.Timer(0.05, path.touch)
    timer.start()
    wait_for_file_to_exist(str(path), 0.001, 60, 'too late')
    timer.join()


def test_import_error_message_names_extra() -> None:
    message = get_import_exception_message('pillow', 'shardmill[images]')
    assert 'pillow' in message
    assert 'without pillow support' in message
    assert 'pip install shardmill[images]' in message
    assert '[pillow]' in message


class Flaky:
    """Fails so many times."""

    def __init__(self, failures: int, error: type[Exception] = OSError) -> None:
        self.failures, self.error, self.calls = failures, error, 0

    def __call__(self, value: int) -> int:
        self.calls += 1
        if self.calls <= self.failures:
            raise self.error(f'call {self.calls}')
        return value


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []
    monkeypatch.setattr('shardmill.base._retrying.sleep', slept.append)
    return slept


def test_retry_succeeds_with_exponential_backoff(sleeps: list[float]) -> None:
    cleaned: list[int] = []
    flaky = Flaky(2)

    @retry(OSError, lambda: cleaned.append(1), num_attempts=3, initial_backoff=2, max_jitter=0)
    def call(value: int) -> int:
        return flaky(value)

    assert call(5) == 5
    assert call.__name__ == 'call'
    assert (flaky.calls, len(cleaned), sleeps) == (3, 2, [2, 4])


def test_retry_raises_after_last_attempt(sleeps: list[float]) -> None:
    flaky = Flaky(9)
    cleaned: list[int] = []
    with pytest.raises(OSError, match='call 3'):
        retry(clean_up_fn=lambda: cleaned.append(1), max_jitter=0.5)(flaky.__call__)(5)
    assert len(cleaned) == 3
    assert len(sleeps) == 2
    assert 1 <= sleeps[0] < 1.5
    assert 2 <= sleeps[1] < 2.5


@pytest.mark.usefixtures('sleeps')
def test_retry_applies_only_to_given_exceptions() -> None:
    with pytest.raises(KeyError):
        retry([OSError, ValueError])(Flaky(1, KeyError).__call__)(5)
    assert retry([OSError, ValueError])(Flaky(1, ValueError).__call__)(5) == 5
    assert retry((OSError,))(Flaky(1).__call__)(5) == 5
    with pytest.raises(ValueError, match='num_attempts'):
        retry(num_attempts=0)

    @retry
    def bare() -> int:
        return 7

    assert bare() == 7


def shard(number: int) -> dict[str, Any]:
    return {
        'column_encodings': ['int'],
        'column_names': ['x'],
        'column_sizes': [8],
        'compression': None,
        'format': 'mds',
        'hashes': [],
        'raw_data': {'basename': f'shard.{number:05}.mds', 'bytes': 100, 'hashes': {}},
        'samples': 3,
        'size_limit': 1 << 26,
        'version': 2,
        'zip_data': None,
    }


def write(root: Path, *folders: str, shards: int = 2) -> list[str]:
    paths = []
    for folder in folders:
        (root / folder).mkdir(parents=True)
        path = root / folder / 'index.json'
        path.write_text(json.dumps({'version': 2, 'shards': [shard(n) for n in range(shards)]}))
        paths.append(str(path))
    return paths


def names(root: Path) -> list[str]:
    index = json.loads((root / 'index.json').read_text())
    assert index['version'] == 2
    return [shard['raw_data']['basename'] for shard in index['shards']]


def expected(*folders: str) -> list[str]:
    return [f'{folder}/shard.{number:05}.mds' for folder in folders for number in range(2)]


def test_merge_index_finds_nested_folders(tmp_path: Path) -> None:
    write(tmp_path, 'b', 'a/2', 'a/1/x', '.shardmill/work')
    (tmp_path / 'c').mkdir()
    merge_index(str(tmp_path))
    assert names(tmp_path) == expected('a/1/x', 'a/2', 'b')
    # Its own result is not a part of it.
    merge_index(out=str(tmp_path))
    assert names(tmp_path) == expected('a/1/x', 'a/2', 'b')
    assert {path.name for path in tmp_path.iterdir()} == {'.shardmill', 'a', 'b', 'c', 'index.json'}


def test_merge_index_keeps_list_order(tmp_path: Path) -> None:
    first, second = write(tmp_path, 'b', 'a')
    merge_index([first, (second, 's3://nowhere/a/index.json'), first], str(tmp_path))
    assert names(tmp_path) == expected('b', 'a')


def test_merged_index_has_exact_json_format(tmp_path: Path) -> None:
    write(tmp_path, 'a')
    merge_index(str(tmp_path))
    shards = [shard(0), shard(1)]
    for one in shards:
        one['raw_data']['basename'] = f'a/{one["raw_data"]["basename"]}'
    assert (tmp_path / 'index.json').read_text() == json.dumps({'version': 2, 'shards': shards})


def test_partitions_outside_output_are_named_by_folder(tmp_path: Path) -> None:
    (path,) = write(tmp_path / 'elsewhere', 'deep/part')
    merge_index([path], str(tmp_path / 'out'), True, 5)
    assert names(tmp_path / 'out') == expected('part')


def test_merged_index_is_removed_without_keep_local(tmp_path: Path) -> None:
    (path,) = write(tmp_path, 'a')
    merge_index(str(tmp_path), keep_local=False)
    assert [entry.name for entry in tmp_path.iterdir()] == ['a']
    out = tmp_path / 'out'
    merge_index([path], str(out), keep_local=False)
    assert not out.exists()


@pytest.mark.parametrize('arguments', [[[], 'out'], [['x'], ''], ['']])
def test_merging_no_indexes_warns(
    arguments: list[Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        merge_index(*arguments)
        merge_index(str(tmp_path))
    assert len(caplog.records) == 2
    assert not list(tmp_path.iterdir())


def test_unmergeable_indexes_are_errors(tmp_path: Path) -> None:
    missing = str(tmp_path / 'none' / 'index.json')
    with pytest.raises(RuntimeError, match=r'^Failed to download index\.json: .*none'):
        merge_index([missing], str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r'^Check data availability!.*none'):
        merge_index([(missing, '')], str(tmp_path))
    # Two partitions of one name would be one.
    paths = [*write(tmp_path / '1', 'part'), *write(tmp_path / '2', 'part')]
    with pytest.raises(ValueError, match='index-duplicate-shard'):
        merge_index(paths, str(tmp_path / 'out'))
    (tmp_path / '1' / 'part' / 'index.json').write_text('{')
    with pytest.raises(ValueError, match='index'):
        merge_index(str(tmp_path / '1'))
    assert not (tmp_path / '1' / 'index.json').exists()
    assert not (tmp_path / 'out').exists()


@pytest.mark.parametrize(
    ('args', 'kwargs'),
    [
        ([], {}),
        ([5], {}),
        ([['x']], {}),
        (['x', True, 5, 6], {}),
        (['x'], {'out': 'y'}),
        ([], {'other': 1}),
    ],
)
def test_invalid_merge_index_arguments_are_errors(args: list[Any], kwargs: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match='Invalid arguments to merge_index'):
        merge_index(*args, **kwargs)


def test_remote_partitions_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a store that is a folder."""
    remote, local = tmp_path / 'remote', tmp_path / 'local'
    write(remote, 'a', 'b/c')
    write(local, 'a', shards=1)
    downloads: list[str] = []

    def direct_download(url: str, path: str, timeout: float) -> None:
        assert timeout == 7
        downloads.append(url)
        source = remote / url[len('s3://bucket/top/') :]
        with open(path, 'wb') as file:
            file.write(source.read_bytes())

    class CloudUploader:
        local = ''
        remote = 's3://bucket/top'

        @classmethod
        def get(cls, out: tuple[str, str], exist_ok: bool, keep_local: bool) -> CloudUploader:
            assert exist_ok
            assert keep_local
            self = cls()
            self.local = out[0]
            return self

        def list_objects(self) -> list[str]:
            files = sorted(str(path.relative_to(remote)) for path in remote.rglob('*.json'))
            return [f'top/{file}' for file in files]

        def upload_file(self, name: str) -> None:
            (remote / name).write_bytes((local / name).read_bytes())

    modules: list[tuple[str, dict[str, Any]]] = [
        ('shardmill.base.storage', {}),
        ('shardmill.base.storage.upload', {'CloudUploader': CloudUploader}),
        (
            'shardmill.base.storage.download',
            {'CloudDownloader': SimpleNamespace(direct_download=direct_download)},
        ),
    ]
    for name, content in modules:
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(__import__('sys').modules, name, module)
    for _ in range(2):
        merge_index((str(local), CloudUploader.remote), True, 7)
        # What is here is not downloaded.
        assert names(remote) == ['a/shard.00000.mds', *expected('b/c')]
        assert names(local) == names(remote)
    beside = ['s3://bucket/top/b/c/index.json', 's3://bucket/top/b/c/index.provenance']
    assert downloads == beside * 2
    merge_index(
        [f'{CloudUploader.remote}/b/c/index.json'], (str(local), CloudUploader.remote), False, 7
    )
    assert names(remote) == expected('b/c')
    assert [path.name for path in local.iterdir()] == ['a']


@pytest.mark.parametrize('second', ['g/1', 'g/sub/2'])
@pytest.mark.parametrize('only', [None, 'local', 'remote'])
def test_local_and_remote_partitions_are_merged(
    tmp_path: Path, second: str, only: Optional[str]
) -> None:
    local, remote = tmp_path / 'local', tmp_path / 'remote'
    for root in (local, remote):
        write(root, 'g/0')
        if only in (None, root.name):
            write(root, second)
    for _ in range(2):
        merge_index((str(local), str(remote)))
        assert names(local) == names(remote) == expected('g/0', second)


@pytest.mark.parametrize(
    ('remote', 'files', 'urls'),
    [
        (
            's3://bucket/top/',
            ['top/index.json', 'top/a/index.json', 'top/a/shard.mds'],
            ['s3://bucket/top/a/index.json'],
        ),
        ('gs://bucket', ['index.json', 'a/index.json'], ['gs://bucket/a/index.json']),
        ('/top', ['/top/index.json', '/top/a/index.json'], ['/top/a/index.json']),
        (
            'dbfs:/Volumes/x',
            ['Volumes/x/index.json', 'Volumes/x/a/index.json'],
            ['dbfs:/Volumes/x/a/index.json'],
        ),
    ],
)
def test_remote_index_files_become_urls(remote: str, files: list[str], urls: list[str]) -> None:
    assert _format_remote_index_files(remote, files) == urls
