"""Sources that are read through fsspec."""

from __future__ import annotations

import http.client
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import shardmill
from shardmill import LocalDataset
from shardmill._foreign import is_foreign, served
from shardmill.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def memory() -> Iterator[fsspec.AbstractFileSystem]:
    filesystem = fsspec.filesystem('memory')
    filesystem.store.clear()
    yield filesystem
    filesystem.store.clear()


def table(first: int, rows: int) -> pa.Table:
    numbers = range(first, first + rows)
    return pa.table({'id': numbers, 'text': [f'text {number}' for number in numbers]})


def samples(out: Path) -> list[Any]:
    dataset = LocalDataset(str(out))
    return [dataset[number] for number in range(len(dataset))]


def test_is_foreign_accepts_only_fsspec_urls() -> None:
    for place in ('memory://a', 'zip://x::data.zip', 'simplecache::s3://bucket/a', 'ftp://host/a'):
        assert is_foreign(place)
    for place in (
        'data',
        './a:b',
        's3://bucket/a',
        'HTTPS://host/a',
        'hf://datasets/a/b',
        's3a://x/y',
    ):
        assert not is_foreign(place)


def test_fsspec_memory_tables_are_converted(
    memory: fsspec.AbstractFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The settings of the environment belong to other stores.
    for name in ('AWS_ENDPOINT_URL', 'AWS_ENDPOINT_URL_S3', 'S3_ENDPOINT_URL'):
        monkeypatch.setenv(name, 'http://127.0.0.1:1')
    monkeypatch.setenv('AWS_SESSION_TOKEN', 'token')
    memory.makedirs('/tables/deep & wide')
    for number in range(3):
        with memory.open(f'/tables/deep & wide/part {number}+é.parquet', 'wb') as file:
            pq.write_table(table(number * 1000, 1000), file, row_group_size=100)
    out = tmp_path / 'out'
    report = shardmill.convert('memory://tables', out)
    assert (report.outcome, report.samples) == ('converted', 3000)
    assert [sample['id'] for sample in samples(out)] == list(range(3000))
    # The files have not changed, so there is nothing to do.
    assert shardmill.convert('memory://tables', out).outcome == 'already_done'
    one = shardmill.convert('memory://tables/deep & wide/part 1+é.parquet', tmp_path / 'one')
    assert one.samples == 1000


def test_fsspec_zip_tree_is_converted(tmp_path: Path) -> None:
    archive = tmp_path / 'photos.zip'
    with zipfile.ZipFile(archive, 'w', zipfile.ZIP_DEFLATED) as file:
        for number in range(20):
            file.writestr(
                f'photos/{number:02}.bin', bytes([number]) * (9 << 20 if number == 7 else 50)
            )
            file.writestr(f'photos/{number:02}.cls', str(number))
        file.writestr('notes/a.txt', 'not a photo')
    out = tmp_path / 'out'
    report = shardmill.convert(f'zip://photos::{archive}', out)
    assert report.samples == 20
    found = samples(out)
    assert [int(sample['cls']) for sample in found] == list(range(20))
    assert found[7]['bin'] == b'\7' * (9 << 20)
    assert np.frombuffer(found[3]['bin'], np.uint8).sum() == 150


def test_local_and_fsspec_sources_keep_given_order(
    memory: fsspec.AbstractFileSystem, tmp_path: Path
) -> None:
    with memory.open('/second.parquet', 'wb') as file:
        pq.write_table(table(10, 10), file)
    pq.write_table(table(0, 10), tmp_path / 'first.parquet')
    sources: list[Union[Path, str]] = [tmp_path / 'first.parquet', 'memory://second.parquet']
    shardmill.convert(sources, tmp_path / 'out')
    assert [sample['id'] for sample in samples(tmp_path / 'out')] == list(range(20))


def test_unreadable_fsspec_sources_are_errors(
    memory: fsspec.AbstractFileSystem, tmp_path: Path
) -> None:
    with pytest.raises(NotFoundError, match='memory://nothing'):
        shardmill.convert('memory://nothing', tmp_path / 'out')
    with pytest.raises(UsageError, match='nonesuch'):
        shardmill.convert('nonesuch://a', tmp_path / 'out')
    with pytest.raises(UsageError, match=r's3://bucket/out: cannot go with memory://a'):
        shardmill.convert('memory://a', 's3://bucket/out')


def test_fsspec_server_listings_have_pages_and_prefixes(memory: fsspec.AbstractFileSystem) -> None:
    for number in range(5):
        memory.pipe(f'/tree/a/{number}.txt', b'x')
        memory.pipe(f'/tree/b{number}.txt', b'x')
    with served(['memory://tree'], 'out') as (places, settings):
        assert places == ['s3://fsspec/0/tree']
        address = settings['S3_ENDPOINT_URL'].removeprefix('http://')
        signed = {'Authorization': f'AWS4 Credential={settings["AWS_ACCESS_KEY_ID"]}/x'}

        def get(path: str, headers: dict[str, str]) -> tuple[int, str]:
            connection = http.client.HTTPConnection(address)
            connection.request('GET', path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

        assert get('/fsspec/0/tree/b0.txt', {})[0] == 403
        assert get('/fsspec/0/tree/b0.txt', signed) == (200, 'x')
        assert get('/fsspec/0/tree/none', signed)[0] == 404
        status, page = get('/fsspec?list-type=2&prefix=0/tree/&delimiter=/&max-keys=2', signed)
        assert status == 200
        assert '<Prefix>0/tree/a/</Prefix>' in page
        assert '<Key>0/tree/b0.txt</Key>' in page
        assert '<IsTruncated>true</IsTruncated>' in page
        token = '<NextContinuationToken>0/tree/b0.txt</NextContinuationToken>'
        assert token in page
        page = get('/fsspec?list-type=2&prefix=0/tree/&continuation-token=0/tree/b0.txt', signed)[1]
        assert page.count('<Key>') == 4
        assert '<IsTruncated>false</IsTruncated>' in page
