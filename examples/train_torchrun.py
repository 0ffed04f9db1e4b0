"""Trains in two processes with DistributedDataParallel, stops in mid-epoch, and resumes in one process.

    pip install "shardmill[torch]" scikit-learn
    torchrun --standalone --nproc-per-node 2 train_torchrun.py --stop-after 20
    torchrun --standalone --nproc-per-node 1 train_torchrun.py

It prints:

    2 ranks: stopped after 20 batches of 32 samples each
    1 rank: resumed after 1280 samples
    1 rank: read the other 512 samples of the epoch
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed
from sklearn.datasets import load_digits
from torch.nn.parallel import DistributedDataParallel

from shardmill import MDSWriter, StreamingDataLoader, StreamingDataset

SHARDS, CHECKPOINT = Path('digits'), Path('checkpoint.pt')
#: Samples of all ranks in a step. It stays the same when the number of ranks changes.
GLOBAL_BATCH = 64


def write_shards():
    columns = {'pixels': 'ndarray:float32:64', 'label': 'int'}
    digits = load_digits()
    with MDSWriter(out=str(SHARDS), columns=columns, size_limit='128kb') as out:
        for pixels, label in zip(digits.data[:1792].astype('float32') / 16, digits.target):
            out.write({'pixels': pixels, 'label': int(label)})


def main(stop_after):
    torch.distributed.init_process_group('gloo')
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    is_first = rank == 0
    name = '1 rank' if ranks == 1 else f'{ranks} ranks'
    if is_first and not SHARDS.exists():
        write_shards()
    torch.distributed.barrier()

    # The dataset finds its rank and the number of ranks in torch.distributed.
    batch_size = GLOBAL_BATCH // ranks
    dataset = StreamingDataset(local=str(SHARDS), shuffle=True, batch_size=batch_size)
    loader = StreamingDataLoader(dataset, batch_size=batch_size)
    model = DistributedDataParallel(torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    if CHECKPOINT.exists():
        saved = torch.load(CHECKPOINT)
        model.load_state_dict(saved['model'])
        optimizer.load_state_dict(saved['optimizer'])
        loader.load_state_dict(saved['loader'])
        if is_first:
            print(f'{name}: resumed after {saved["loader"]["sample_in_epoch"]} samples')

    read = 0
    for number, batch in enumerate(loader, 1):
        loss = torch.nn.functional.cross_entropy(model(batch['pixels']), batch['label'])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        read += len(batch['label']) * ranks
        if number == stop_after:
            if is_first:
                # One state fits every rank, and any number of ranks.
                parts = {'model': model, 'optimizer': optimizer, 'loader': loader}
                torch.save({name: part.state_dict() for name, part in parts.items()}, CHECKPOINT)
                print(f'{name}: stopped after {number} batches of {batch_size} samples each')
            break
    else:
        if is_first:
            print(f'{name}: read the other {read} samples of the epoch')
    torch.distributed.destroy_process_group()


if __name__ == '__main__':
    # Two processes on one machine need no network.
    os.environ.setdefault('GLOO_SOCKET_IFNAME', 'lo')
    parser = argparse.ArgumentParser()
    parser.add_argument('--stop-after', type=int, metavar='BATCHES')
    main(parser.parse_args().stop_after)
