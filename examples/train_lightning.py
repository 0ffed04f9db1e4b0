"""Trains with PyTorch Lightning, stops in the middle of an epoch, and resumes from its checkpoint.

    pip install "shardmill[torch]" lightning scikit-learn
    python train_lightning.py

It prints:

    first run: 70 batches, the last one in epoch 1
    second run: 98 batches, the first one in epoch 1
    every sample once in each epoch: True
"""

import logging
from collections import Counter
from pathlib import Path

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from sklearn.datasets import load_digits

from shardmill import MDSWriter, StreamingDataLoader, StreamingDataset

SHARDS, CHECKPOINT = Path('digits'), Path('checkpoints/last.ckpt')


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 10)
        self.read = []

    def training_step(self, batch, _):
        self.read.append((self.current_epoch, batch['number'].tolist()))
        return torch.nn.functional.cross_entropy(self.layer(batch['pixels']), batch['label'])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.5)


def write_shards():
    columns = {'number': 'int', 'pixels': 'ndarray:float32:64', 'label': 'int'}
    digits = load_digits()
    with MDSWriter(out=str(SHARDS), columns=columns, size_limit='128kb') as out:
        # 56 batches of 32, so that the last batch of an epoch needs no padding.
        for number in range(1792):
            pixels = digits.data[number].astype('float32') / 16
            label = int(digits.target[number])
            out.write({'number': number, 'pixels': pixels, 'label': label})


def fit(**limits):
    lightning.seed_everything(0, verbose=False)
    dataset = StreamingDataset(local=str(SHARDS), shuffle=True, batch_size=32)
    loader = StreamingDataLoader(dataset, batch_size=32)
    model = Classifier()
    # Lightning stores the state of the loader in its checkpoints, and loads it again.
    checkpoints = ModelCheckpoint('checkpoints', 'last', every_n_train_steps=10)
    trainer = lightning.Trainer(
        accelerator='cpu',
        callbacks=[checkpoints],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **limits,
    )
    trainer.fit(model, loader, ckpt_path=CHECKPOINT if CHECKPOINT.exists() else None)
    return model.read


if __name__ == '__main__':
    logging.getLogger('lightning.pytorch').setLevel(logging.ERROR)
    if not SHARDS.exists():
        write_shards()
    CHECKPOINT.unlink(missing_ok=True)
    first = fit(max_steps=70)
    print(f'first run: {len(first)} batches, the last one in epoch {first[-1][0]}')
    second = fit(max_epochs=3)
    print(f'second run: {len(second)} batches, the first one in epoch {second[0][0]}')
    counts = Counter((epoch, number) for epoch, batch in first + second for number in batch)
    print(
        'every sample once in each epoch:', len(counts) == 3 * 1792 and set(counts.values()) == {1}
    )
