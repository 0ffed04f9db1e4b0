"""Reads epochs in one of several processes, through libraries that split samples among ranks themselves.

    torchrun --nproc-per-node N sharded_train.py OPTIONS

OPTIONS are a JSON list of cases, which follow one another. A case has `name`, `data` (a folder), `out` (a folder for
what each process reads and for states), `with` (`accelerate`, `trainer` or `torchdata`), `loader` (`torch` or
`streaming`), `workers`, `method` (how loader processes start), `batch` (of the loader), `shape` (`plain`; `mapped` for
a dataset around the dataset; `subclass` for one with its own `__iter__`), `config` (arguments of
`DataLoaderConfiguration` or `accelerator_config`), `dataset` (arguments of the dataset), `epochs`, `stop` (a step at
which to write a state and stop; 0 for never), `resume` (how to continue: `skip`, `stateful`, `state` or empty).
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset

from shardmill import StreamingDataLoader, StreamingDataset

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Epochs and the numbers of the samples of each batch.
Found = list[tuple[int, list[int]]]


class Mapped(IterableDataset[Any]):
    """A transform around a dataset, as programs write it."""

    def __init__(self, dataset: StreamingDataset) -> None:
        self.dataset = dataset

    def __iter__(self) -> Iterator[Any]:
        for sample in self.dataset:
            yield {**sample, 'input': sample['input'] * 2}

    def __len__(self) -> int:
        return len(self.dataset)


class OwnIteration(StreamingDataset):
    """A subclass that transforms samples where they are iterated."""

    def __iter__(self) -> Iterator[Any]:
        for sample in super().__iter__():
            yield {**sample, 'input': sample['input'] * 2}


class Model(torch.nn.Module):
    """Learns next to nothing, and notes what it is given while it trains or is evaluated."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
        self.found: list[list[int]] = []
        self.evaluated: list[list[int]] = []

    def forward(self, number: torch.Tensor, input: torch.Tensor) -> dict[str, torch.Tensor]:
        (self.found if self.training else self.evaluated).append(number.tolist())
        return {'loss': self.layer(input).mean() * 0, 'logits': number.float()}


def make_dataset(options: dict[str, Any]) -> Any:
    kind = OwnIteration if options['shape'] == 'subclass' else StreamingDataset
    dataset = kind(local=options['data'], shuffle=True, **options['dataset'])
    return Mapped(dataset) if options['shape'] == 'mapped' else dataset


def make_loader(options: dict[str, Any], dataset: Any) -> Any:
    workers = options['workers']
    return (StreamingDataLoader if options['loader'] == 'streaming' else DataLoader)(
        dataset,
        batch_size=options['batch'],
        num_workers=workers,
        multiprocessing_context=options['method'] if workers else None,
    )


def accelerate_run(options: dict[str, Any]) -> dict[str, Any]:
    """A loop over epochs with accelerate."""
    from accelerate import Accelerator
    from accelerate.utils import DataLoaderConfiguration

    accelerator = Accelerator(
        cpu=True, dataloader_config=DataLoaderConfiguration(**options['config'])
    )
    dataset = make_dataset(options)
    model = torch.nn.Linear(2, 1)
    loader = accelerator.prepare(make_loader(options, dataset))
    model = accelerator.prepare(model)
    saved, place = Path(options['out'], 'saved'), Path(options['out'], 'place.json')
    begin, skipped = json.loads(place.read_text()) if options['resume'] else (0, 0)
    if options['resume'] == 'stateful':
        accelerator.load_state(str(saved))
    found: Found = []
    gathered: list[int] = []
    for epoch in range(begin, options['epochs']):
        loader.set_epoch(epoch)
        current = loader
        if options['resume'] == 'skip' and epoch == begin:
            current = accelerator.skip_first_batches(loader, skipped)
        for batch in current:
            found.append((epoch, batch['number'].tolist()))
            gathered += accelerator.gather_for_metrics(batch['number']).tolist()
            model(batch['input'])
            if len(found) == options['stop']:
                steps = len([1 for number, _ in found if number == epoch])
                place.write_text(json.dumps([epoch, steps]))
                accelerator.save_state(str(saved))
                return {'found': found}
    return {'found': found, 'steps': len(loader), 'gathered': gathered}


def trainer_run(options: dict[str, Any]) -> dict[str, Any]:
    """The same with transformers' `Trainer`, evaluated once at the end."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class StopAt(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == options['stop']:
                control.should_save = control.should_training_stop = True

    arguments = TrainingArguments(
        output_dir=options['out'],
        num_train_epochs=options['epochs'],
        per_device_train_batch_size=options['batch'],
        per_device_eval_batch_size=options['batch'],
        accelerator_config=options['config'],
        dataloader_num_workers=options['workers'],
        dataloader_pin_memory=False,
        remove_unused_columns=False,
        label_names=[],
        save_strategy='no',
        save_only_model=True,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    model = Model()
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=make_dataset(options),
        eval_dataset=make_dataset(options),
        callbacks=[StopAt()],
    )
    trainer.train(resume_from_checkpoint=options['resume'] == 'skip')
    found = [(-1, numbers) for numbers in model.found]
    if not options['stop']:
        trainer.evaluate()
    return {'found': found, 'evaluated': model.evaluated, 'steps': trainer.state.global_step}


def torchdata_run(options: dict[str, Any]) -> dict[str, Any]:
    """A loop over epochs with torchdata's `StatefulDataLoader`."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    workers = options['workers']
    loader = StatefulDataLoader(
        make_dataset(options),
        batch_size=options['batch'],
        num_workers=workers,
        multiprocessing_context=options['method'] if workers else None,
    )
    place = Path(options['out'], f'place{dist.get_rank()}.pt')
    begin = 0
    if options['resume']:
        begin, state = torch.load(place, weights_only=False)
        loader.load_state_dict(state)
    found: Found = []
    for epoch in range(begin, options['epochs']):
        for batch in loader:
            found.append((epoch, batch['number'].tolist()))
            if len(found) == options['stop']:
                torch.save((epoch, loader.state_dict()), place)
                return {'found': found}
        if len(found) == -options['stop']:
            # At the end of an epoch.
            torch.save((epoch + 1, loader.state_dict()), place)
            return {'found': found}
    return {'found': found}


def main(cases: list[dict[str, Any]]) -> None:
    runs = {'accelerate': accelerate_run, 'trainer': trainer_run, 'torchdata': torchdata_run}
    dist.init_process_group('gloo')
    for options in cases:
        Path(options['out']).mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter('always')
            try:
                result = runs[options['with']](options)
            except ValueError as error:
                result = {'error': str(error)}
        result['warnings'] = sorted({str(warning.message) for warning in caught})
        Path(options['out'], f'rank{dist.get_rank()}.json').write_text(json.dumps(result))
        dist.barrier()
    dist.destroy_process_group()


if __name__ == '__main__':
    main(json.loads(sys.argv[1]))
