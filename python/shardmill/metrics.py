"""Metrics of a loader, for monitoring a training run."""

from __future__ import annotations

from time import perf_counter
from typing import Callable, Optional, Protocol

from shardmill.base import _arguments as check
from shardmill.stats import LoaderStats

__all__ = ['Callback', 'Watch', 'log_to_mlflow']

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

    def report(self, stats: Callable[[], LoaderStats]) -> None:
        """Calls the callbacks that are due."""
        reported: Optional[LoaderStats] = None
        for callback, every in self._callbacks:
            if self.batches % every == 0:
                reported = stats() if reported is None else reported
                callback(reported, self.batches)


class _Observed(Protocol):
    """A loader that reports its statistics."""

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
