"""Trains two epochs in two processes with PyTorch Lightning, or resumes from a checkpoint.

    python lightning_train.py OPTIONS

OPTIONS are JSON: `strategy`, `remote`, `local`, `out` (a folder for what each process read),
`batch`, `workers`, `method` (how loader processes start), `where` (the dataset is made: `before`
the launcher starts the processes, or `late`), `stop` (the step at which to stop, with a checkpoint;
0 for never), `resume` (go on from the checkpoint).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from support.samples import numbers

from shardmill import StreamingDataLoader, StreamingDataset


class Model(LightningModule):
    """Learns nothing, and notes what it is given."""

    def __init__(self, out: str) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)
        self.out = out
        self.found: list[tuple[int, list[int]]] = []

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.found.append((self.current_epoch, numbers(batch)))
        return self.layer(batch['vector'].float()).mean() * 0

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def on_train_end(self) -> None:
        path = Path(self.out, f'rank{self.global_rank}.json')
        path.write_text(json.dumps(self.found))


class StopAt(Callback):
    """Writes a checkpoint behind a step, and stops there."""

    def __init__(self, step: int, path: str) -> None:
        self.step, self.path = step, path

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if trainer.global_step == self.step:
            trainer.save_checkpoint(self.path)
            trainer.should_stop = True


def make_loader(options: dict[str, Any]) -> StreamingDataLoader:
    dataset = StreamingDataset(
        remote=options['remote'],
        local=options['local'],
        batch_size=options['batch'],
        shuffle=True,
        num_canonical_nodes=2,
    )
    return StreamingDataLoader(
        dataset,
        batch_size=options['batch'],
        num_workers=options['workers'],
        multiprocessing_context=options['method'] if options['workers'] else None,
    )


class LateModel(Model):
    """Makes its loader when it is asked for it, which is in the process that trains."""

    def __init__(self, out: str, options: dict[str, Any]) -> None:
        super().__init__(out)
        self.options = options

    def train_dataloader(self) -> Any:
        return make_loader(self.options)


def main(options: dict[str, Any]) -> None:
    checkpoint = str(Path(options['out'], 'stopped.ckpt'))
    callbacks: list[Callback] = [StopAt(options['stop'], checkpoint)] if options['stop'] else []
    trainer = Trainer(
        accelerator='cpu',
        devices=2,
        strategy=options['strategy'],
        max_epochs=2,
        callbacks=callbacks,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        default_root_dir=options['out'],
    )
    path = checkpoint if options['resume'] else None
    if options['where'] == 'late':
        trainer.fit(LateModel(options['out'], options), ckpt_path=path)
    else:
        trainer.fit(Model(options['out']), make_loader(options), ckpt_path=path)


if __name__ == '__main__':
    main(json.loads(sys.argv[1]))
