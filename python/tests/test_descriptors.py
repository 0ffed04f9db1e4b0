"""How many files a process has open: few, however many shards and streams there are."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.launch import launch
from support.samples import write

if TYPE_CHECKING:
    from support.store import Store

PROGRAM = Path(__file__).parent / 'programs/epoch_read.py'
#: The most descriptors that reading takes, whatever is read. Python itself has about ten.
MOST = 100
#: The lowest limit with which an epoch has to be read.
LIMIT = 256
SHARDS, STREAMS = 250, 110
#: The writer puts about this many samples into a shard.
OF_SHARD = 2


def read(store: Store | None, **what: Any) -> dict[str, Any]:
    environment = {} if store is None else store.environment
    printed = launch([str(PROGRAM), json.dumps(what)], environment, 300)
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    sys.stdout.write(f'{found["most"]} descriptors: {found["kinds"]}\n')
    return found


@pytest.fixture(scope='module')
def many(served: Path) -> Path:
    """A dataset of many shards, in the store."""
    samples = SHARDS * OF_SHARD
    folder = write(served / 'many', samples, shard_bytes=700)
    assert len(list(folder.glob('shard.*'))) >= SHARDS / 2
    return folder


@pytest.mark.parametrize(('workers', 'limited'), [(0, False), (2, True)])
def test_epoch_of_many_remote_shards_takes_few_descriptors(
    tmp_path: Path, store: Store, many: Path, workers: int, limited: bool
) -> None:
    options: dict[str, Any] = {'remote': 's3://bucket/many', 'local': str(tmp_path / 'local')}
    options |= {'shuffle': True, 'predownload': 64}
    if limited:
        options |= {'cache_limit': '200kb'}
    found = read(store, options=options, workers=workers, limit=[LIMIT, LIMIT])
    assert found['numbers'] == sorted(range(SHARDS * OF_SHARD), key=str)
    # The pipes are those of torch's loader processes.
    pipes = dict(found['kinds']).get('pipe', 0)
    assert found['most'] - pipes <= MOST, found['kinds']


@pytest.mark.parametrize('kind', ['remote', 'cache limit', 'local'])
def test_epoch_of_many_streams_takes_few_descriptors(
    tmp_path: Path, served: Path, store: Store, kind: str
) -> None:
    streams = []
    for number in range(STREAMS):
        name = f'mix/{number}'
        if not (served / name).exists():
            write(served / name, 3, first=3 * number)
        streams.append(
            {'remote': f's3://bucket/{name}', 'local': str(tmp_path / name)}
            if kind != 'local'
            else {'local': str(served / name)}
        )
    options: dict[str, Any] = {'shuffle': True}
    if kind == 'cache limit':
        options['cache_limit'] = '400kb'
    found = read(store, streams=streams, options=options, limit=[LIMIT, LIMIT])
    assert found['numbers'] == sorted(range(3 * STREAMS), key=str)
    assert found['most'] <= MOST, found['kinds']


def test_compressed_shards_files_and_tables_take_few_descriptors(tmp_path: Path) -> None:
    pq = pytest.importorskip('pyarrow.parquet')
    pa = pytest.importorskip('pyarrow')
    limit = [LIMIT, LIMIT]
    packed = write(tmp_path / 'packed', 200, shard_bytes=700, compression='zstd')
    numbers = sorted(range(200), key=str)
    found = read(None, options={'local': str(packed)}, limit=limit)
    assert (found['numbers'], found['most'] <= MOST) == (numbers, True), found['kinds']
    (tmp_path / 'files').mkdir()
    for number in range(200):
        (tmp_path / f'files/{number:03}.bin').write_bytes(bytes(number))
    options = {'remote': str(tmp_path / 'files'), 'shuffle': True}
    found = read(None, files=True, options=options, limit=limit)
    assert (len(found['numbers']), found['most'] <= MOST) == (200, True), found['kinds']
    (tmp_path / 'table').mkdir()
    for number in range(200):
        pq.write_table(pa.table({'number': [number]}), tmp_path / f'table/{number:03}.parquet')
    options = {'remote': str(tmp_path / 'table'), 'local': str(tmp_path / 'kept')}
    options |= {'format': 'parquet'}
    found = read(None, options=options, limit=limit)
    assert (found['numbers'], found['most'] <= MOST) == (numbers, True), found['kinds']


def test_import_raises_the_limit_of_open_files(tmp_path: Path) -> None:
    write(tmp_path / 'data', 10)
    found = read(None, options={'local': str(tmp_path / 'data')}, limit=[200, 1000])
    assert found['limit'] == 1000
