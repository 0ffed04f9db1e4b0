"""Metrics of a loader, for monitoring a training run."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import pathlib
import tempfile
import threading
from collections.abc import Iterator, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any, Callable, Optional, Protocol

from shardmill._openmetrics import CONTENT_TYPE, openmetrics_text
from shardmill.base import _arguments as check
from shardmill.stats import LoaderStats

if TYPE_CHECKING:
    from shardmill.base._typing import Path

__all__ = [
    'CONTENT_TYPE',
    'Callback',
    'Server',
    'Watch',
    'log_to_mlflow',
    'openmetrics_text',
    'serve',
    'trace',
    'write_textfile',
]

#: Receives the result of `StreamingDataLoader.stats` and the number of batches since the loader was constructed.
Callback = Callable[[LoaderStats, int], None]


class Watch:
    """Counts the batches of a loader and the time spent waiting for them.

    Attributes:
        batches: Batches returned since the loader was constructed.
        wait_seconds: Total time spent waiting for batches.
        last_wait_seconds: The wait for the last batch.
        longest_wait_seconds: The longest wait for a batch.
    """

    def __init__(self) -> None:
        self.batches = 0
        self.wait_seconds = 0.0
        self.last_wait_seconds = 0.0
        self.longest_wait_seconds = 0.0
        self._callbacks: list[tuple[Callback, int]] = []
        self._since = 0.0
        self._began = 0.0
        self._before = 0, 0.0

    def begin(self) -> None:
        """Begins an iteration."""
        self._began = perf_counter()
        self._before = self.batches, self.wait_seconds

    def of_iteration(self) -> tuple[int, float, float]:
        """Returns the batches, the seconds and the seconds waited since the iteration began."""
        batches, waited = self._before
        elapsed = perf_counter() - self._began if self._began else 0.0
        return self.batches - batches, elapsed, self.wait_seconds - waited

    def start(self) -> None:
        """Starts timing when a batch is requested."""
        self._since = perf_counter()

    def stop(self) -> None:
        """Stops timing when the batch has arrived."""
        waited = perf_counter() - self._since
        self.batches += 1
        self.wait_seconds += waited
        self.last_wait_seconds = waited
        self.longest_wait_seconds = max(self.longest_wait_seconds, waited)

    def add(self, callback: Callback, every: int) -> None:
        """Registers a callback.

        Raises:
            ValueError: `every` is not positive.
        """
        every = check.whole('every', every, 1)
        check.function('callback', callback)
        self._callbacks.append((callback, every))

    def report(self, read: Callable[[], LoaderStats]) -> None:
        """Calls the callbacks that are due."""
        reported: Optional[LoaderStats] = None
        for callback, every in self._callbacks:
            if self.batches % every == 0:
                reported = read() if reported is None else reported
                callback(reported, self.batches)


class _Observed(Protocol):
    """A loader that reports its statistics."""

    dataset: Any

    def stats(self) -> LoaderStats: ...

    def on_stats(self, callback: Callback, every: int) -> None: ...


def log_to_mlflow(loader: _Observed, every: int = 100, prefix: str = 'shardmill/') -> None:
    """Logs the metrics of a loader to the active MLflow run, by batch number.

    Args:
        loader: The `StreamingDataLoader`.
        every: The number of batches between log entries.
        prefix: The prefix of metric names.

    Raises:
        ImportError: MLflow is not installed.
        ValueError: `every` is not positive.
    """
    try:
        import mlflow
    except ImportError as error:
        raise ImportError(
            'logging to MLflow needs MLflow: run `pip install mlflow-skinny`', name='mlflow'
        ) from error

    def log(stats: LoaderStats, batch: int) -> None:
        numbers = {f'{prefix}{name}': float(value) for name, value in stats.items()}
        mlflow.log_metrics(numbers, step=batch)

    loader.on_stats(log, every)


def write_textfile(
    loader: _Observed,
    file: Path,
    every: int = 100,
    labels: Optional[Mapping[str, Any]] = None,
) -> None:
    """Writes the metrics of a loader to a file regularly, for the textfile collector of Prometheus.

    The file is replaced as a whole, so that it is never read half-written.

    Args:
        loader: The `StreamingDataLoader`.
        file: The file. Ranks need different files.
        every: The number of batches between writes.
        labels: Labels of every metric, such as ``{'rank': 3}``.

    Raises:
        ValueError: `every` is not positive.
    """
    target = pathlib.Path(file)

    def write(stats: LoaderStats, _: int) -> None:
        _replace(target, openmetrics_text(stats, labels))

    loader.on_stats(write, every)


def _replace(file: pathlib.Path, text: str) -> None:
    """Writes a file under another name, then renames it."""
    number, name = tempfile.mkstemp(prefix=f'.{file.name}-', dir=file.parent)
    try:
        with os.fdopen(number, 'w', encoding='utf-8') as out:
            out.write(text)
        os.chmod(name, 0o644)
        os.replace(name, file)
    except BaseException:
        os.unlink(name)
        raise


class Server:
    """An HTTP server that answers with the metrics of a loader. It ends with the process, or with `close`.

    Attributes:
        address: The address of the metrics.
    """

    def __init__(self, server: http.server.HTTPServer) -> None:
        host, port = server.server_address[:2]
        self.address = f'http://{host!s}:{port}/metrics'
        self._server = server
        thread = threading.Thread(
            target=server.serve_forever, name='shardmill-metrics', daemon=True
        )
        thread.start()

    def close(self) -> None:
        """Stops the server."""
        self._server.shutdown()
        self._server.server_close()


def serve(
    loader: _Observed,
    port: int = 9400,
    host: str = '127.0.0.1',
    labels: Optional[Mapping[str, Any]] = None,
) -> Server:
    """Serves the metrics of a loader at ``/metrics``, in a thread.

    Args:
        loader: The `StreamingDataLoader`.
        port: The port; 0 for a free one.
        host: The address to listen on. Anyone who can reach it can read the metrics.
        labels: Labels of every metric, such as ``{'rank': 3}``.

    Raises:
        OSError: The port is in use.
    """

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != '/metrics':
                self.send_error(404)
                return
            body = openmetrics_text(loader.stats(), labels).encode()
            self.send_response(200)
            self.send_header('Content-Type', CONTENT_TYPE)
            self.send_header('Content-Length', str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Requests are not logged."""

    port = check.whole('port', port, 0)
    return Server(http.server.ThreadingHTTPServer((check.text('host', host), port), Handler))


@contextlib.contextmanager
def trace(loader: _Observed, file: Path, rank: int = 0) -> Iterator[None]:
    """Records what the reader of a loader does, and writes it to a file for Perfetto or ``chrome://tracing``.

    The file has a line for each fetch, hash check, decompression, write to the cache, batch that is filled and wait
    for a batch. It covers what this process reads; worker processes are not recorded.

    Args:
        loader: The `StreamingDataLoader`.
        file: The JSON file, written when the block ends.
        rank: The number of this rank. Traces of several ranks can be concatenated.
    """
    reader = loader.dataset._here()
    reader.start_trace()
    try:
        yield
    finally:
        steps = reader.end_trace()
        lanes = {(name, lane) for name, lane, *_ in steps}
        events: list[dict[str, Any]] = [
            {'ph': 'M', 'name': 'process_name', 'pid': rank, 'args': {'name': f'rank {rank}'}}
        ]
        threads = {key: number for number, key in enumerate(sorted(lanes), start=1)}
        for (name, lane), number in threads.items():
            label = {'name': f'{name} {lane + 1}'}
            events.append(
                {'ph': 'M', 'name': 'thread_name', 'pid': rank, 'tid': number, 'args': label}
            )
        for name, lane, start, duration in steps:
            events.append(
                {
                    'ph': 'X',
                    'name': name,
                    'cat': 'shardmill',
                    'pid': rank,
                    'tid': threads[name, lane],
                    'ts': start * 1e6,
                    'dur': duration * 1e6,
                }
            )
        _replace(pathlib.Path(file), json.dumps({'displayTimeUnit': 'ms', 'traceEvents': events}))
