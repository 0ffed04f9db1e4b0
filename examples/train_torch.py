"""Trains a classifier of handwritten digits, stops in the middle of an epoch, and resumes.

    pip install "shardmill[torch]" scikit-learn
    python train_torch.py --stop-after 40
    python train_torch.py

It prints:

    wrote 1797 samples in 4 shards
    stopped in epoch 0 after 1280 samples
    resumed in epoch 0 after 1280 samples
    epoch 0: loss 0.7...
    epoch 1: loss 0.2...
    epoch 2: loss 0.1...
"""

import argparse
from pathlib import Path

import torch
from sklearn.datasets import load_digits

from shardmill import LocalDataset, MDSWriter, StreamingDataLoader, StreamingDataset

SHARDS, CHECKPOINT = Path('digits'), Path('checkpoint.pt')


def write_shards():
    columns = {'pixels': 'ndarray:float32:64', 'label': 'int'}
    digits = load_digits()
    with MDSWriter(out=str(SHARDS), columns=columns, hashes=['sha256'], size_limit='128kb') as out:
        for pixels, label in zip(digits.data.astype('float32') / 16, digits.target):
            out.write({'pixels': pixels, 'label': int(label)})
    dataset = LocalDataset(str(SHARDS))
    print(f'wrote {len(dataset)} samples in {len(dataset.shards)} shards')


def train(epochs, stop_after):
    dataset = StreamingDataset(local=str(SHARDS), shuffle=True, batch_size=32)
    loader = StreamingDataLoader(dataset, batch_size=32)
    torch.manual_seed(0)
    model = torch.nn.Linear(64, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    if CHECKPOINT.exists():
        saved = torch.load(CHECKPOINT)
        model.load_state_dict(saved['model'])
        optimizer.load_state_dict(saved['optimizer'])
        loader.load_state_dict(saved['loader'])
        print('resumed in', position(saved['loader']))

    batches = 0
    while (epoch := dataset.next_epoch) < epochs:
        for batch in loader:
            loss = torch.nn.functional.cross_entropy(model(batch['pixels']), batch['label'])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            batches += 1
            if batches == stop_after:
                saved = {'model': model, 'optimizer': optimizer, 'loader': loader}
                saved = {name: part.state_dict() for name, part in saved.items()}
                torch.save(saved, CHECKPOINT)
                print('stopped in', position(saved['loader']))
                return
        print(f'epoch {epoch}: loss {loss.item():.2f}')


def position(state):
    return f'epoch {state["epoch"]} after {state["sample_in_epoch"]} samples'


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('--stop-after', type=int, metavar='BATCHES')
    arguments = parser.parse_args()
    if not SHARDS.exists():
        write_shards()
    train(epochs=3, stop_after=arguments.stop_after)
