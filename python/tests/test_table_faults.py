"""Tables in a store whose requests fail, and whose files change."""

from __future__ import annotations

import random
import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

import pytest
from support.bucket import Answer, Bucket, Request
from support.tables import FILES, ids, write_delta, write_table

from shardmill import StreamingDataset
from shardmill.errors import NotFoundError, RemoteError, ShardmillError

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    bucket = Bucket()
    for key, value in bucket.environment.items():
        monkeypatch.setenv(key, value)
    yield bucket
    bucket.close()


def faults(bucket: Bucket, seed: int, share: float) -> list[str]:
    """Makes a share of the requests fail in different ways, and returns the ways so far."""
    chance = random.Random(seed)
    lock = threading.Lock()
    made: list[str] = []

    def fault(request: Request) -> Optional[Answer]:
        with lock:
            if chance.random() >= share:
                return None
            made.append(chance.choice(['throttled', 'failed', 'cut', 'empty']))
            way = made[-1]
        if way == 'throttled':
            return 503, {'Retry-After': '0'}, b'<Error><Code>SlowDown</Code></Error>'
        if way == 'failed':
            return 500, {}, b'<Error><Code>InternalError</Code></Error>'
        status, headers, data = bucket.answer(request)
        # The connection ends before the body does.
        headers = {**headers, 'Content-Length': str(len(data)), 'Connection': 'close'}
        return status, headers, data[: len(data) // 2] if way == 'cut' else b''

    bucket.fault = fault
    return made


@pytest.mark.parametrize('seed', range(4))
def test_failed_store_requests_do_not_change_samples(
    bucket: Bucket, tmp_path: Path, seed: int
) -> None:
    folder = write_table(tmp_path / 'table', [[7, 5], [11], [3, 9, 1], *[[2, 2]] * 6])
    if seed % 2:
        shutil.rmtree(folder)
        write_delta(folder, [10, 5, 5, 4, 4, 4], [1, 12])
    for path in folder.rglob('*'):
        if path.is_file():
            bucket.objects[f'table/{path.relative_to(folder).as_posix()}'] = path.read_bytes()
    options: dict[str, Any] = {
        'format': 'delta' if seed % 2 else 'parquet',
        'columns': ['id', 'text'],
        'batch_size': 4,
        'shuffle': True,
        'shuffle_seed': seed,
    }
    whole = StreamingDataset(remote=str(folder), local=str(tmp_path / 'here'), **options)
    expected = [(int(sample['id']), sample['text']) for sample in whole]
    made = faults(bucket, seed, 0.1)
    for number in range(5):
        dataset = StreamingDataset(
            remote='s3://bucket/table',
            local=str(tmp_path / f'cache-{number}'),
            download_retry=5,
            **options,
        )
        assert [(int(sample['id']), sample['text']) for sample in dataset] == expected
    assert len(made) > 2


def test_permanent_store_failure_is_an_error(bucket: Bucket, tmp_path: Path) -> None:
    folder = write_table(tmp_path / 'table', FILES)
    for path in folder.iterdir():
        bucket.objects[f'table/{path.name}'] = path.read_bytes()
    options: dict[str, Any] = {'remote': 's3://bucket/table', 'format': 'parquet', 'batch_size': 1}
    dataset = StreamingDataset(local=str(tmp_path / 'cache'), download_retry=1, **options)
    faults(bucket, 0, 1)
    for read in (
        lambda: ids(dataset),
        lambda: StreamingDataset(local=str(tmp_path / 'other'), download_retry=1, **options),
    ):
        with pytest.raises(RemoteError) as caught:
            read()
        assert caught.value.id
        assert 's3://bucket/table' in str(caught.value)
    # An object that changes or vanishes between two row groups.
    bucket.fault = lambda _: None
    changed = StreamingDataset(local=str(tmp_path / 'changed'), **options)
    assert int(changed[0]['id']) == 0
    other = write_table(tmp_path / 'changed-table', [[5, 7]])
    bucket.objects['table/part-000.parquet'] = (other / 'part-000.parquet').read_bytes()
    with pytest.raises(ShardmillError) as caught_change:
        changed[8]
    assert caught_change.value.id in ('remote-changed', 'object-changed')
    assert 'part-000.parquet' in str(caught_change.value)
    del bucket.objects['table/part-001.parquet']
    with pytest.raises(NotFoundError) as gone:
        changed[13]
    assert 'part-001.parquet' in str(gone.value)
