"""Metrics of a loader, for monitoring a training run."""

from __future__ import annotations

import http.server
import pathlib
import threading
from collections.abc import Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any, Callable, Optional

from shardmill._loggers import (
    Callback,
    Observed,
    lightning_callback,
    log_to_mlflow,
    log_to_transformers,
)
from shardmill._openmetrics import CONTENT_TYPE, openmetrics_text
from shardmill._traces import otlp_trace, replace_file, trace
from shardmill.base import _arguments as check
from shardmill.stats import LoaderStats

if TYPE_CHECKING:
    from shardmill.base._typing import Path

__all__ = [
    'CONTENT_TYPE',
    'Callback',
    'Server',
    'Watch',
    'lightning_callback',
    'log_to_mlflow',
    'log_to_transformers',
    'openmetrics_text',
    'otlp_trace',
    'serve',
    'trace',
    'write_textfile',
]


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


def write_textfile(
    loader: Observed,
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
        replace_file(target, openmetrics_text(stats, labels))

    loader.on_stats(write, every)


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
    loader: Observed,
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
