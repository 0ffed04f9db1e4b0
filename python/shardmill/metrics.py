"""Metrics of a loader, for monitoring a training run: as a file, over HTTP, in loggers, and as traces."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import threading
import time
from collections.abc import Iterator, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any, Callable, Optional, Protocol

from shardmill.base import _arguments as check
from shardmill.base._files import whole
from shardmill.errors import UsageError

if TYPE_CHECKING:
    from http.server import HTTPServer

    from lightning.pytorch import Callback as LightningCallback
    from lightning.pytorch import LightningModule
    from lightning.pytorch import Trainer as LightningTrainer
    from opentelemetry.trace import TracerProvider

    from shardmill.base._typing import Path
    from shardmill.stats import LoaderStats, Stats

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

#: Receives the result of `StreamingDataLoader.stats` and the number of batches since the loader was constructed.
Callback = Callable[['LoaderStats', int], None]

#: The value of the header of HTTP for this format.
CONTENT_TYPE = 'application/openmetrics-text; version=1.0.0; charset=utf-8'

#: Statistics that also fall: they are of this epoch or this moment.
_GAUGES = frozenset(
    (
        'batches',
        'bytes',
        'cached_bytes',
        'first_batch_seconds',
        'loader_last_wait_seconds',
        'loader_longest_wait_seconds',
        'memory_bytes',
        'num_samples_yielded',
        'open_shards',
        'preloading',
        'quota',
        'samples',
        'wait_seconds',
        'waits',
    )
)

#: Activity, lane, start and duration in seconds.
_Steps = list[tuple[str, int, float, float]]


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


class Observed(Protocol):
    """A loader that reports its statistics."""

    dataset: Any

    def stats(self) -> LoaderStats: ...

    def on_stats(self, callback: Callback, every: int) -> None: ...


def openmetrics_text(stats: Stats, labels: Optional[Mapping[str, Any]] = None) -> str:
    """Returns statistics in the OpenMetrics text format.

    Each is a metric named ``shardmill_`` and its attribute: a counter, or a gauge if it can fall.

    Args:
        stats: The result of `StreamingDataLoader.stats`, `StreamingDataset.stats` or `CacheClient.stats`.
        labels: Labels of every metric, such as ``{'rank': 3}``.
    """
    pairs = [f'{name}="{_escaped(str(value))}"' for name, value in (labels or {}).items()]
    text = '{' + ','.join(pairs) + '}' if pairs else ''
    helps = _helps(type(stats))
    lines = []
    for name, value in stats.items():
        metric = f'shardmill_{name}'
        kind, suffix = ('gauge', '') if name in _GAUGES else ('counter', '_total')
        lines.append(f'# TYPE {metric} {kind}')
        if name.endswith(('_seconds', '_bytes')):
            lines.append(f'# UNIT {metric} {name.rsplit("_", 1)[1]}')
        if name in helps:
            lines.append(f'# HELP {metric} {_escaped(helps[name])}')
        lines.append(f'{metric}{suffix}{text} {value}')
    return '\n'.join([*lines, '# EOF', ''])


def _escaped(text: str) -> str:
    return text.replace('\\', r'\\').replace('\n', r'\n').replace('"', r'\"')


def _helps(cls: type) -> dict[str, str]:
    """Returns what the documentation of a class and its bases says of each attribute."""
    found: dict[str, str] = {}
    for each in cls.__mro__:
        for line in (each.__doc__ or '').splitlines():
            item = re.fullmatch(r'\s+(\w+): (.*)', line)
            if item:
                found.setdefault(item[1], item[2])
    return found


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
        _replace_file(target, openmetrics_text(stats, labels))

    loader.on_stats(write, every)


class Server:
    """An HTTP server that answers with the metrics of a loader. It ends with the process, or with `close`.

    Attributes:
        address: The address of the metrics.
    """

    def __init__(self, server: HTTPServer) -> None:
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

    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    class Handler(BaseHTTPRequestHandler):
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
    return Server(ThreadingHTTPServer((check.text('host', host), port), Handler))


def _numbers(stats: Stats, prefix: str) -> dict[str, float]:
    return {f'{prefix}{name}': float(value) for name, value in stats.items()}


def log_to_mlflow(loader: Observed, every: int = 100, prefix: str = 'shardmill/') -> None:
    """Logs the metrics of a loader to the active MLflow run, by batch number.

    Args:
        loader: The `StreamingDataLoader`.
        every: The number of batches between log entries.
        prefix: The prefix of metric names.

    Raises:
        ImportError: MLflow is not installed.
        ValueError: `every` is not positive.
    """
    from shardmill.base.storage._sdk import sdk

    mlflow = sdk('mlflow', 'mlflow-skinny')

    def log(stats: LoaderStats, batch: int) -> None:
        mlflow.log_metrics(_numbers(stats, prefix), step=batch)

    loader.on_stats(log, every)


def lightning_callback(every: int = 100, prefix: str = 'shardmill/') -> LightningCallback:
    """Returns a callback for the Trainer of PyTorch Lightning: it logs the metrics of the loader with its loggers.

    Args:
        every: The number of steps between log entries.
        prefix: The prefix of metric names.

    Raises:
        ImportError: Lightning is not installed.
        ValueError: `every` is not positive.
    """
    from lightning.pytorch import Callback as LightningCallback

    every = check.whole('every', every, 1)

    class LoaderMetrics(LightningCallback):
        """Logs the metrics of the loader."""

        def on_train_batch_end(
            self,
            trainer: LightningTrainer,
            pl_module: LightningModule,
            outputs: Any,
            batch: Any,
            batch_idx: int,
        ) -> None:
            if trainer.global_step % every:
                return
            loader: Any = trainer.train_dataloader
            if not hasattr(loader, 'stats'):
                raise UsageError(
                    f'the Trainer reads from a {type(loader).__name__}, which has no statistics',
                    'config-value',
                    'train_dataloaders',
                    'pass a StreamingDataLoader',
                )
            for logger in trainer.loggers:
                logger.log_metrics(_numbers(loader.stats(), prefix), step=trainer.global_step)

    return LoaderMetrics()


def log_to_transformers(trainer: Any, every: int = 100, prefix: str = 'shardmill/') -> None:
    """Logs the metrics of the training dataset with the reports of a Trainer of transformers.

    The Trainer constructs its loader itself, so the metrics are those of `StreamingDataset.stats`.

    Args:
        trainer: The Trainer. Its ``train_dataset`` is a `StreamingDataset`.
        every: The number of steps between log entries.
        prefix: The prefix of metric names.

    Raises:
        ValueError: `every` is not positive.
    """
    from transformers import TrainerCallback

    every = check.whole('every', every, 1)

    class DatasetMetrics(TrainerCallback):
        """Logs the metrics of the dataset."""

        def _log(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step % every == 0:
                trainer.log(_numbers(trainer.train_dataset.stats(), prefix))

        on_step_end = _log

    trainer.add_callback(DatasetMetrics())


def _replace_file(file: pathlib.Path, text: str) -> None:
    """Writes a file under another name, then renames it."""
    with whole(str(file)) as part:
        pathlib.Path(part).write_text(text, encoding='utf-8')
        # Some file systems have no permissions.
        with contextlib.suppress(OSError):
            os.chmod(part, 0o644)


@contextlib.contextmanager
def _recorded(loader: Observed) -> Iterator[_Steps]:
    """Records what the reader of a loader does. The list is filled when the block ends."""
    reader = loader.dataset._here()
    steps: _Steps = []
    reader.start_trace()
    try:
        yield steps
    finally:
        steps += reader.end_trace()


@contextlib.contextmanager
def trace(loader: Observed, file: Path, rank: int = 0) -> Iterator[None]:
    """Records what the reader of a loader does, and writes it to a file for Perfetto or ``chrome://tracing``.

    The file has a line for each fetch, hash check, decompression, write to the cache, batch that is filled and wait
    for a batch. It covers what this process reads; worker processes are not recorded.

    Args:
        loader: The `StreamingDataLoader`.
        file: The JSON file, written when the block ends.
        rank: The number of this rank. Traces of several ranks can be concatenated.
    """
    steps: _Steps = []
    try:
        with _recorded(loader) as steps:
            yield
    finally:
        events: list[dict[str, Any]] = [
            {'ph': 'M', 'name': 'process_name', 'pid': rank, 'args': {'name': f'rank {rank}'}}
        ]
        lanes = sorted({(name, lane) for name, lane, *_ in steps})
        threads = {key: number for number, key in enumerate(lanes, start=1)}
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
        text = json.dumps({'displayTimeUnit': 'ms', 'traceEvents': events})
        _replace_file(pathlib.Path(file), text)


@contextlib.contextmanager
def otlp_trace(
    loader: Observed, rank: int = 0, provider: Optional[TracerProvider] = None
) -> Iterator[None]:
    """Records what the reader of a loader does, as spans of OpenTelemetry.

    When the block ends, a span named ``read`` and a child of it for each step of `trace` are given to the provider.
    Its exporter sends them, for example by OTLP. Spans of other code in the block are not changed.

    Args:
        loader: The `StreamingDataLoader`.
        rank: The number of this rank, an attribute of the spans.
        provider: The provider; by default that of the process.

    Raises:
        ImportError: OpenTelemetry is not installed.
    """
    from shardmill.base.storage._sdk import sdk

    spans = sdk('opentelemetry.trace', '"shardmill[otlp]"')
    tracer = (provider or spans.get_tracer_provider()).get_tracer('shardmill')
    begun = time.time_ns()
    steps: _Steps = []
    try:
        with _recorded(loader) as steps:
            yield
    finally:
        labels = {'shardmill.rank': rank}
        parent = tracer.start_span('read', start_time=begun, attributes=labels)
        context = spans.set_span_in_context(parent)
        for name, lane, start, duration in steps:
            at = begun + int(start * 1e9)
            attributes = {**labels, 'shardmill.lane': lane}
            span = tracer.start_span(name, context, start_time=at, attributes=attributes)
            span.end(at + int(duration * 1e9))
        parent.end()
