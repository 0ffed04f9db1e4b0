"""What `loader.explain()` names as the limit, for loaders that are slowed down on purpose."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

import numpy as np
import pytest
from support.bucket import Answer, Bucket, Request

from shardmill import MDSWriter, StreamingDataLoader, StreamingDataset
from shardmill.base._limits import Times, explain

SAMPLES = 240
BATCH = 8


def write(out: Path, size: int, random: bool, **options: Any) -> Path:
    """Writes a dataset of byte strings, in shards of one batch."""
    values = np.random.default_rng(3)
    with MDSWriter(
        out=str(out), columns={'x': 'bytes'}, size_limit=BATCH * (size + 64), **options
    ) as writer:
        for number in range(SAMPLES):
            data = values.bytes(size) if random else bytes([number % 256]) * size
            writer.write({'x': data})
    return out


@pytest.fixture(scope='module')
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp('limits') / 'small', 100, True)


@pytest.fixture
def bucket(small: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    bucket = Bucket()
    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)
    for file in small.iterdir():
        bucket.objects[f'small/{file.name}'] = file.read_bytes()
    yield bucket
    bucket.close()


def run(dataset: StreamingDataset[Any], pause: float = 0, **options: Any) -> str:
    loader = StreamingDataLoader(dataset, batch_size=BATCH, **options)
    for _ in loader:
        time.sleep(pause)
    found = loader.explain()
    print(found)
    assert found.verdict in str(found) and 0 <= found.wait_share <= 1
    return found.verdict


def test_slow_consumer_is_the_limit(small: Path) -> None:
    assert run(StreamingDataset(local=str(small), batch_size=BATCH), 0.01) == 'consumer'


def shards_only(request: Request) -> bool:
    return request.method == 'GET' and request.key.endswith('.mds')


def test_slow_store_makes_network_the_limit(bucket: Bucket, tmp_path: Path) -> None:
    def late(request: Request) -> Optional[Answer]:
        if shards_only(request):
            time.sleep(0.2)
        return None

    bucket.fault = late
    dataset = StreamingDataset(
        remote='s3://bucket/small', local=str(tmp_path / 'c'), batch_size=BATCH, predownload=BATCH
    )
    assert run(dataset) == 'network'


def test_throttling_store_is_the_limit(bucket: Bucket, tmp_path: Path) -> None:
    seen: set[str] = set()

    def throttled(request: Request) -> Optional[Answer]:
        if not shards_only(request) or request.key in seen:
            return None
        seen.add(request.key)
        return 503, {}, b'<Error><Code>SlowDown</Code></Error>'

    bucket.fault = throttled
    dataset = StreamingDataset(
        remote='s3://bucket/small', local=str(tmp_path / 'c'), batch_size=BATCH, predownload=BATCH
    )
    assert run(dataset) == 'throttling'
    assert dataset.stats().throttled == len(seen)


def test_slow_decompression_is_the_limit(tmp_path: Path) -> None:
    # The slowest to decompress.
    data = write(tmp_path / 'data', 1 << 16, True, compression='bz2')
    local = str(tmp_path / 'c')
    assert run(StreamingDataset(remote=str(data), local=local, batch_size=BATCH)) == 'decompression'


def test_slow_hashing_is_the_limit(tmp_path: Path) -> None:
    data = write(tmp_path / 'data', 1 << 18, True, hashes=['sha3_512'])
    local = str(tmp_path / 'c')
    dataset = StreamingDataset(
        remote=str(data), local=local, batch_size=BATCH, validate_hash='sha3_512'
    )
    assert run(dataset) == 'hashing'


class Slow(StreamingDataset[Any]):
    """A dataset with a slow transform."""

    def get_item(self, sample_id: int, retry: int = 7) -> Any:
        time.sleep(0.002)
        return super().get_item(sample_id, retry)


@pytest.mark.parametrize('workers', [0, 2])
def test_slow_transform_is_the_limit(small: Path, workers: int) -> None:
    slow = Slow(local=str(small), batch_size=BATCH)
    # Other ways of starting workers take longer than this epoch.
    options: dict[str, Any] = {'num_workers': workers}
    if workers:
        options['multiprocessing_context'] = 'fork'
    assert run(slow, **options) == 'transform'

    def collate(samples: list[Any]) -> Any:
        time.sleep(0.02)
        return samples

    plain = StreamingDataset(local=str(small), batch_size=BATCH)
    assert run(plain, collate_fn=collate, **options) == 'transform'


def test_explain_covers_only_latest_iteration(small: Path) -> None:
    dataset = StreamingDataset(local=str(small), batch_size=BATCH)
    loader = StreamingDataLoader(dataset, batch_size=BATCH)
    assert loader.explain().verdict == 'unknown'
    dataset._transform_seconds = 1000.0
    for _ in loader:
        time.sleep(0.05)
    assert loader.explain().verdict == 'consumer'


def test_verdict_is_unknown_without_enough_measurements() -> None:
    assert explain(10, 10.0, 9.0, [Times(fetch=0.1)]).verdict == 'unknown'
    assert explain(1, 10.0, 9.0, [Times(fetch=9.0)]).verdict == 'unknown'
    assert explain(10, 10.0, 9.0, [Times(fetch=9.0, requests=50)]).verdict == 'network'
    assert (
        explain(10, 10.0, 9.0, [Times(fetch=9.0, requests=50, throttled=5)]).verdict == 'throttling'
    )
    assert explain(10, 10.0, 0.5, [Times(fetch=9.0)]).verdict == 'consumer'
