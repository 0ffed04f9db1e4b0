"""Writes statistics in the OpenMetrics text format, which Prometheus and OpenTelemetry collectors read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Optional

from shardmill.stats import Stats

__all__ = ['CONTENT_TYPE', 'openmetrics_text']

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
