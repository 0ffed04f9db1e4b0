"""Logs the statistics of loaders with the loggers of other libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Protocol

from shardmill.base import _arguments as check
from shardmill.errors import UsageError
from shardmill.stats import LoaderStats, Stats

if TYPE_CHECKING:
    from lightning.pytorch import Callback as LightningCallback
    from lightning.pytorch import LightningModule
    from lightning.pytorch import Trainer as LightningTrainer

#: Receives the result of `StreamingDataLoader.stats` and the number of batches since the loader was constructed.
Callback = Callable[[LoaderStats, int], None]


class Observed(Protocol):
    """A loader that reports its statistics."""

    dataset: Any

    def stats(self) -> LoaderStats: ...

    def on_stats(self, callback: Callback, every: int) -> None: ...


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

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step % every == 0:
                trainer.log(_numbers(trainer.train_dataset.stats(), prefix))

    trainer.add_callback(DatasetMetrics())
