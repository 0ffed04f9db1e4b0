"""Trains a small model with a real trainer in one of several processes; stops or resumes in the middle of an epoch.

    torchrun --nproc-per-node N train.py RUNS

RUNS are a JSON list of runs, which follow one another. A run has `trainer` (a function of this file), `data` (folder),
`out` (a folder for checkpoints and for the samples that each process read), `batch` (samples of a step on all ranks),
`epochs`, `stop` (the number of steps after which to write a checkpoint and stop; 0 for never), `resume` (whether there
is a checkpoint) and `workers`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Callable

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from shardmill import StreamingDataLoader, StreamingDataset

#: The numbers of the samples of each batch of this rank.
Found = list[list[int]]


class Run:
    """A run, its dataset and loader, and what was read."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.epochs: int = options['epochs']
        self.stop: int = options['stop']
        self.resume: bool = options['resume']
        self.workers: int = options['workers']
        self.samples: int = options['batch']
        self.batch = self.samples // dist.get_world_size()
        self.data: str = options['data']
        self.out = Path(options['out'])
        self.found: Found = []

    def dataset(self) -> StreamingDataset:
        return StreamingDataset(
            local=self.data, shuffle=True, batch_size=self.batch, num_canonical_nodes=2
        )

    def loader(self) -> StreamingDataLoader:
        return StreamingDataLoader(self.dataset(), self.batch, num_workers=self.workers)

    def take(self, batch: Any) -> bool:
        """Notes a batch. Returns whether this was the last one before the stop."""
        self.found.append([int(number) for number in batch['number']])
        return len(self.found) == self.stop

    def train(self, batches: Any, step: Callable[[Any], None]) -> bool:
        """Trains on batches. Returns whether the run stops."""
        for batch in batches:
            step(batch)
            if self.take(batch):
                return True
        return False


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, input: torch.Tensor, **_: Any) -> dict[str, torch.Tensor]:
        return {'loss': self.layer(input).pow(2).mean()}


def trained() -> tuple[Any, Any, Callable[[Any], None]]:
    """Returns a model in several processes, its optimizer, and a step of training."""
    model = DistributedDataParallel(Model())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)

    def step(batch: Any) -> None:
        optimizer.zero_grad()
        model(batch['input'])['loss'].backward()
        optimizer.step()

    return model, optimizer, step


def save(file: Path, value: Any) -> None:
    """Writes what the first rank has: it serves every rank of any number of ranks."""
    if dist.get_rank() == 0:
        torch.save(value, file)
    dist.barrier()


def lightning(run: Run) -> None:
    """A checkpoint of Lightning contains the state of the loader."""
    from lightning.pytorch import Callback, LightningModule, Trainer

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = Model()

        def training_step(self, batch: Any, _: int) -> Any:
            run.take(batch)
            return self.model(**batch)['loss']

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1e-9)

    class Stop(Callback):
        def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
            if len(run.found) == run.stop:
                trainer.save_checkpoint(run.out / 'next.ckpt')
                trainer.should_stop = True

    trainer = Trainer(
        accelerator='cpu',
        devices=dist.get_world_size(),
        strategy='ddp',
        max_epochs=run.epochs,
        callbacks=[Stop()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=run.out,
    )
    path = run.out / 'next.ckpt' if run.resume else None
    trainer.fit(Module(), run.loader(), ckpt_path=path, weights_only=False)


def accelerate_skip(run: Run) -> None:
    """The epoch is chosen and its first batches are skipped: their number does not depend on the ranks."""
    from accelerate import Accelerator
    from accelerate.utils import DataLoaderConfiguration

    config = DataLoaderConfiguration(dispatch_batches=False)
    accelerator = Accelerator(cpu=True, dataloader_config=config)
    model = Model()
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.SGD(model.parameters(), lr=1e-9), run.loader()
    )
    file = run.out / 'steps.pt'
    begin, skipped = torch.load(file) if run.resume else (0, 0)
    for epoch in range(begin, run.epochs):
        loader.set_epoch(epoch)
        batches = accelerator.skip_first_batches(loader, skipped) if skipped else loader
        for step, batch in enumerate(batches, skipped + 1):
            accelerator.backward(model(**batch)['loss'])
            optimizer.step()
            if run.take(batch):
                save(file, (epoch, step))
                return
        skipped = 0


def accelerate_state(run: Run) -> None:
    """The loader is not prepared, and its state is an object that accelerate stores with the others."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model, loader = Model(), run.loader()
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=1e-9))
    accelerator.register_for_checkpointing(loader)
    if run.resume:
        accelerator.load_state(str(run.out / 'state'))
    while loader.dataset.next_epoch < run.epochs:
        for batch in loader:
            accelerator.backward(model(**batch)['loss'])
            optimizer.step()
            if run.take(batch):
                accelerator.save_state(str(run.out / 'state'))
                return


def transformers(run: Run) -> None:
    """The Trainer chooses the epoch and skips the batches that were trained on."""
    from transformers import Trainer, TrainerCallback, TrainingArguments
    from transformers.trainer_utils import get_last_checkpoint

    class Noted(Model):
        def forward(self, input: torch.Tensor, **columns: Any) -> dict[str, torch.Tensor]:
            run.take(columns)
            return super().forward(input)

    class Stop(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if len(run.found) == run.stop:
                control.should_save = control.should_training_stop = True

    arguments = TrainingArguments(
        output_dir=str(run.out),
        num_train_epochs=run.epochs,
        per_device_train_batch_size=run.batch,
        accelerator_config={'dispatch_batches': False},
        dataloader_num_workers=run.workers,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
        label_names=[],
        save_strategy='no',
        # transformers 4 cannot read back optimizers that it stored on several CPU ranks.
        save_only_model=True,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    if run.resume and dist.get_rank() == 0:
        # Otherwise a resumed run has the batch size of the checkpoint, and not that of its arguments.
        file = Path(str(get_last_checkpoint(str(run.out))), 'trainer_state.json')
        state = {**json.loads(file.read_text()), 'train_batch_size': run.batch}
        file.write_text(json.dumps(state))
    dist.barrier()
    trainer = Trainer(
        model=Noted(), args=arguments, train_dataset=run.dataset(), callbacks=[Stop()]
    )
    trainer.train(resume_from_checkpoint=run.resume)


def composer(run: Run) -> None:
    """A checkpoint of Composer contains the state of the dataset."""
    from composer import ComposerModel, Trainer

    class Module(ComposerModel):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = Model()

        def forward(self, batch: Any) -> Any:
            run.take(batch)
            return self.model(**batch)['loss']

        def loss(self, outputs: Any, batch: Any) -> Any:
            return outputs

    # As its launcher sets it.
    os.environ['NODE_RANK'] = '0'
    last = 0
    if run.resume:
        last = int((run.out / 'last').read_text())
    end = last + run.stop
    model = Module()
    trainer = Trainer(
        model=model,
        optimizers=torch.optim.SGD(model.parameters(), lr=1e-9),
        train_dataloader=run.loader(),
        max_duration=f'{end}ba' if run.stop else f'{run.epochs}ep',
        device='cpu',
        save_folder=str(run.out / 'checkpoints') if run.stop else None,
        save_interval=f'{end}ba' if run.stop else '1ep',
        save_filename='{batch}.pt',
        load_path=str(run.out / 'checkpoints' / f'{last}.pt') if run.resume else None,
        progress_bar=False,
        log_to_console=False,
    )
    trainer.fit()
    trainer.close()
    dist.barrier()
    if run.stop and dist.get_rank() == 0:
        (run.out / 'last').write_text(str(end))


def checkpoint(run: Run) -> None:
    """A distributed checkpoint of torch, which stores every object that has a state."""
    import torch.distributed.checkpoint as dcp

    model, _, step = trained()
    loader = run.loader()
    parts = {'model': model, 'loader': loader}
    if run.resume:
        dcp.load(parts, checkpoint_id=run.out / 'checkpoint')
    while loader.dataset.next_epoch < run.epochs:
        if run.train(loader, step):
            dcp.save(parts, checkpoint_id=run.out / 'checkpoint')
            return


def torchtitan(run: Run) -> None:
    """A loader with the protocol of torchtitan, in its checkpoint manager."""
    from torchtitan.components.checkpoint import CheckpointManager
    from torchtitan.components.dataloader import BaseDataLoader

    class Loader(BaseDataLoader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.loader = run.loader()

        def __iter__(self) -> Any:
            for batch in self.loader:
                yield {'input': batch['input'], 'number': batch['number']}, batch['number']

        def state_dict(self) -> dict[str, Any]:
            # One value, because checkpoints contain only the keys that a new loader has.
            return {'state': json.dumps(self.loader.state_dict())}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.loader.load_state_dict(json.loads(state['state']))

    model, optimizer, step = trained()
    loader = Loader()
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
    checkpoints = CheckpointManager(
        CheckpointManager.Config(enable=True, interval=1, keep_latest_k=0),
        dataloader=loader,
        model_parts=[model],
        optimizers=optimizer,
        lr_schedulers=schedule,
        states={},
        sd_adapter=None,
        base_folder=str(run.out),
    )
    if run.resume:
        checkpoints.load()
    number = 1 + max((int(path.name[5:]) for path in run.out.glob('checkpoint/step-*')), default=0)
    dist.barrier()
    while loader.loader.dataset.next_epoch < run.epochs:
        if run.train((columns for columns, _ in loader), step):
            checkpoints.save(number)
            break
    checkpoints.close()


def torchdata(run: Run) -> None:
    """The loader of torchdata. Its own state needs as many workers, that of the dataset does not."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    _, _, step = trained()
    dataset = run.dataset()
    loader = StatefulDataLoader(dataset, run.batch, num_workers=run.workers)
    file = run.out / 'loader.pt'
    begin = 0
    if run.resume and run.workers:
        state = torch.load(file)
        dataset.load_state_dict(state)
        begin = state['sample_in_epoch']
    elif run.resume:
        loader.load_state_dict(torch.load(file))
    while dataset.next_epoch < run.epochs:
        before = len(run.found)
        if run.train(loader, step):
            samples = begin + (len(run.found) - before) * run.samples
            save(file, dataset.state_dict(samples) if run.workers else loader.state_dict())
            return
        begin = 0


def nodes(run: Run) -> None:
    """A graph of nodes of torchdata around the loader."""
    from torchdata.nodes import IterableWrapper, Loader, Mapper, Prefetcher

    _, _, step = trained()
    streaming = run.loader()
    graph = Prefetcher(Mapper(IterableWrapper(streaming), dict), 3)
    loader = Loader(graph)
    file = run.out / 'nodes.pt'
    if run.resume:
        loader.load_state_dict(torch.load(file))
    while streaming.dataset.next_epoch < run.epochs:
        if run.train(loader, step):
            save(file, loader.state_dict())
            return


def megatron_sampler(run: Run) -> None:
    """Megatron's sampler chooses samples by their numbers, after those that were consumed."""
    import importlib.util

    # Only this file: its package needs Transformer Engine.
    folder = importlib.util.find_spec('megatron').submodule_search_locations[0]  # type: ignore[union-attr,index]
    spec = importlib.util.spec_from_file_location(
        'samplers', Path(folder, 'bridge/data/samplers.py')
    )
    assert spec is not None and spec.loader is not None
    samplers = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(samplers)

    class Numbered(torch.utils.data.Dataset[Any]):
        def __init__(self, dataset: StreamingDataset) -> None:
            self.dataset = dataset

        def __len__(self) -> int:
            return self.dataset.num_samples

        def __getitem__(self, number: int) -> Any:
            return self.dataset[number]

    _, _, step = trained()
    dataset = Numbered(run.dataset())
    file = run.out / 'consumed.pt'
    consumed = torch.load(file) if run.resume else 0
    for _ in range(consumed // len(dataset), run.epochs):
        batches = samplers.build_pretraining_data_loader(
            dataset,
            consumed % len(dataset),
            'single',
            run.batch,
            run.workers,
            False,
            pin_memory=False,
            data_parallel_rank=dist.get_rank(),
            data_parallel_size=dist.get_world_size(),
        )
        before = len(run.found)
        stops = run.train(batches, step)
        consumed += (len(run.found) - before) * run.samples
        if stops:
            save(file, consumed)
            return


def megatron_external(run: Run) -> None:
    """A loader that Megatron takes as `external`: the consumed samples of its checkpoints choose the position."""
    _, _, step = trained()
    loader = run.loader()
    dataset = loader.dataset
    file = run.out / 'consumed.pt'
    consumed = torch.load(file) if run.resume else 0
    epoch, samples = divmod(consumed, dataset.epoch_size)
    state = {**dataset.state_dict(0), 'epoch': epoch, 'sample_in_epoch': samples}
    loader.load_state_dict(state)
    while dataset.next_epoch < run.epochs:
        if run.train(loader, step):
            save(file, consumed + len(run.found) * run.samples)
            return


def main(runs: list[dict[str, Any]]) -> None:
    dist.init_process_group('gloo')
    for options in runs:
        run = Run(options)
        run.out.mkdir(parents=True, exist_ok=True)
        dist.barrier()
        torch.manual_seed(0)
        globals()[options['trainer']](run)
        Path(run.out, f'rank{dist.get_rank()}.json').write_text(json.dumps(run.found))
        dist.barrier()
    dist.destroy_process_group()


if __name__ == '__main__':
    main(json.loads(sys.argv[1]))
