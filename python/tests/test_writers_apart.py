"""Writing with others: uploads, exceptions, threads, processes, signals."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.writing import (
    MDS,
    WRITERS,
    columns,
    files,
    index_of,
    read,
    samples,
    write,
)

import shardmill.base.storage.upload as uploads
from shardmill import MDSWriter, _core
from shardmill.base.format.mds import encodings

if TYPE_CHECKING:
    from collections.abc import Iterator


# Uploads.


class Recorder(uploads.CloudUploader):
    """Copies nothing; remembers names, and when each upload began and ended."""

    events: list[tuple[str, str]]
    fail: str = ''

    def upload_file(self, filename: str) -> None:
        self.events.append(('begin', filename))
        time.sleep(random.Random(filename).uniform(0, 0.02))
        assert os.path.exists(os.path.join(self.local, filename))
        if filename == self.fail:
            raise RuntimeError(f'no way to {filename}')
        self.events.append(('end', filename))
        if not self.keep_local:
            os.remove(os.path.join(self.local, filename))


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Recorder]]:
    def get(*args: Any, **options: Any) -> Recorder:
        return Recorder(*args, **options)

    monkeypatch.setattr(uploads.CloudUploader, 'get', get)
    Recorder.events = []
    Recorder.fail = ''
    yield Recorder
    Recorder.events = []


@pytest.mark.parametrize('keep_local', [False, True])
@pytest.mark.parametrize('format_', WRITERS)
def test_written_files_are_uploaded_to_remote(
    format_: str, keep_local: bool, tmp_path: Path
) -> None:
    rows = samples(format_, 100)
    options = {'columns': columns(format_), 'size_limit': 1000}
    write(format_, tmp_path / 'expected', rows, **options)
    local, remote = tmp_path / 'local', tmp_path / 'remote'
    with WRITERS[format_](
        out=(str(local), str(remote)), keep_local=keep_local, **options
    ) as writer:
        for row in rows:
            writer.write(row)
    assert files(remote) == files(tmp_path / 'expected')
    assert local.exists() == keep_local
    if keep_local:
        assert files(local) == files(remote)


@pytest.mark.parametrize('in_python', [False, True])
def test_index_is_uploaded_after_all_shards(
    in_python: bool, recorder: type[Recorder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if in_python:
        monkeypatch.setattr(MDSWriter, '_columns', lambda self: None)
    with MDSWriter(
        columns=MDS, out=(str(tmp_path), 's3://bucket/x'), size_limit=500, max_workers=4
    ) as writer:
        for row in samples('mds', 100):
            writer.write(row)
    ended = [name for what, name in recorder.events if what == 'end']
    assert recorder.events[-2:] == [('begin', 'index.json'), ('end', 'index.json')]
    assert sorted(ended[:-1]) == [f'shard.{n:05}.mds' for n in range(len(ended) - 1)]
    assert len(ended) > 10
    assert not tmp_path.exists()


@pytest.mark.parametrize('in_python', [False, True])
@pytest.mark.parametrize('at_the_end', [False, True])
def test_failed_upload_stops_the_writer(
    at_the_end: bool,
    in_python: bool,
    recorder: type[Recorder],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if in_python:
        monkeypatch.setattr(MDSWriter, '_columns', lambda self: None)
    recorder.fail = 'shard.00001.mds'
    writer = MDSWriter(columns={'b': 'bytes'}, out=(str(tmp_path), 's3://bucket/x'), size_limit=500)
    sample = {'b': bytes(490)}
    with pytest.raises(RuntimeError, match='no way'):
        # A chunk of samples is looked at when it is full.
        for _ in range(20 if at_the_end else 1_000_000):
            writer.write(sample)
        writer.finish()
    assert writer.event.is_set()
    assert ('begin', 'index.json') not in recorder.events
    assert not tmp_path.exists()
    with pytest.raises(RuntimeError, match='no way'):
        writer.write(sample)


def test_failed_index_upload_is_an_error(recorder: type[Recorder], tmp_path: Path) -> None:
    recorder.fail = 'index.json'
    with pytest.raises(RuntimeError, match='no way to index'):
        with MDSWriter(columns=MDS, out=(str(tmp_path), 's3://bucket/x')) as writer:
            writer.write(samples('mds', 1)[0])


def test_exception_in_with_block_uploads_no_index(recorder: type[Recorder], tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        with MDSWriter(columns=MDS, out=(str(tmp_path), 's3://b/x'), size_limit=500) as writer:
            for row in samples('mds', 100):
                writer.write(row)
            writer.write({})
    assert ('begin', 'index.json') not in recorder.events
    assert not tmp_path.exists()


# Threads, processes, signals.


def test_threads_can_write_concurrently(tmp_path: Path) -> None:
    with MDSWriter(
        columns={'n': 'int', 'json': 'json'}, out=str(tmp_path), size_limit=20_000
    ) as writer:

        def run(start: int) -> None:
            for n in range(start, start + 2000):
                writer.write({'n': n, 'json': {'n': n}})

        threads = [threading.Thread(target=run, args=(2000 * k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = read(tmp_path)
    assert sorted(sample['n'] for sample in found) == list(range(8000))
    assert all(sample['json'] == {'n': sample['n']} for sample in found)


def test_reentrant_write_from_encoder_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Loop(encodings.Encoding):
        def encode(self, obj: Any) -> bytes:
            writer.write({'a': obj})
            return b''

        def decode(self, data: bytes) -> Any:
            return data

    writer = _core.SampleWriter(
        str(tmp_path),
        format='mds',
        columns=[('a', 'pkl', Loop())],
        durable=False,
    )
    with pytest.raises(RuntimeError, match='in use'):
        writer.write({'a': 1})
    writer.push(b'\0\0\0\0')
    writer.finish()
    assert index_of(tmp_path)['shards'][0]['samples'] == 1


@pytest.mark.skipif(not hasattr(os, 'fork'), reason='needs fork')
def test_finish_in_forked_child_is_an_error(tmp_path: Path) -> None:
    writer = MDSWriter(columns={'b': 'bytes'}, out=str(tmp_path), size_limit=1 << 16)
    for _ in range(200):
        writer.write({'b': bytes(1 << 15)})
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            writer.finish()
        except RuntimeError as error:
            status = 0 if 'forked' in str(error) else 2
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    writer.finish()
    assert len(read(tmp_path)) == 200


@pytest.mark.skipif(sys.platform == 'win32', reason='needs setitimer')
def test_signal_interrupts_writer_finish(tmp_path: Path) -> None:
    class AlarmError(Exception):
        pass

    def raise_now(*_: Any) -> None:
        raise AlarmError

    noise = random.Random(0).randbytes(1 << 22)
    before = signal.signal(signal.SIGALRM, raise_now)
    try:
        with pytest.raises(AlarmError):
            with MDSWriter(columns={'b': 'bytes'}, out=str(tmp_path), compression='br') as writer:
                for _ in range(12):
                    writer.write({'b': noise})
                signal.setitimer(signal.ITIMER_REAL, 0.3)
                started = time.monotonic()
                writer.finish()
        # 50 MB take brotli a minute.
        assert time.monotonic() - started < 15
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not (tmp_path / 'index.json').exists()
