"""Writes the steps of a reader as traces: for Perfetto, and as spans of OpenTelemetry."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import time
from typing import TYPE_CHECKING, Any, Optional

from shardmill.base._files import whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.trace import TracerProvider

    from shardmill._loggers import Observed
    from shardmill.base._typing import Path

#: Activity, lane, start and duration in seconds.
_Steps = list[tuple[str, int, float, float]]


def replace_file(file: pathlib.Path, text: str) -> None:
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
        replace_file(pathlib.Path(file), text)


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
