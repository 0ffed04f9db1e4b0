"""What a loader has cost so far, for whoever watches a training run."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, Callable, Optional

from shardmill.base import _arguments as check

if TYPE_CHECKING:
    from shardmill.base.dataloader import StreamingDataLoader

__all__ = ['Callback', 'Watch', 'log_to_mlflow']

#: Is given what `StreamingDataLoader.stats` tells, and how many batches were given out since the loader was made.
Callback = Callable[[dict[str, Any], int], None]


class Watch:
    """Counts the batches of a loader and the time that is spent waiting for them.

    Attributes:
        batches: Batches given out since the loader was made.
        wait_seconds: Time spent waiting for them, all together.
        last_wait_seconds: For the last of them.
        longest_wait_seconds: For the one that took longest.
    """

    def __init__(self) -> None:
        self.batches = 0
        self.wait_seconds = 0.0
        self.last_wait_seconds = 0.0
        self.longest_wait_seconds = 0.0
        self._callbacks: list[tuple[Callback, int]] = []
        self._since = 0.0

    def ask(self) -> None:
        """A batch is asked for."""
        self._since = perf_counter()

    def come(self) -> None:
        """It has come."""
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

    def tell(self, stats: Callable[[], dict[str, Any]]) -> None:
        """Calls the callbacks whose turn it is."""
        told: Optional[dict[str, Any]] = None
        for callback, every in self._callbacks:
            if self.batches % every == 0:
                told = stats() if told is None else told
                callback(told, self.batches)


def log_to_mlflow(
    loader: StreamingDataLoader, every: int = 100, prefix: str = 'shardmill/'
) -> None:
    """Logs what a loader costs to the active MLflow run, as metrics by the number of the batch.

    Args:
        loader: The loader.
        every: After how many batches each time.
        prefix: In front of the names of `StreamingDataLoader.stats`.

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

    def log(stats: dict[str, Any], batch: int) -> None:
        numbers = {f'{prefix}{name}': float(value) for name, value in stats.items()}
        mlflow.log_metrics(numbers, step=batch)

    loader.on_stats(log, every)
