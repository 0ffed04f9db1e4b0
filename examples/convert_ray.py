"""Writes a dataset of Ray Data to MDS shards, in the tasks of Ray, and reads it back.

    pip install "shardmill[ray]"
    python convert_ray.py

It prints:

    wrote 1000 samples in 4 shards
    read back: 1000 rows, 16 pixels each
    sample 7: label 7, sum 112.0
"""

import tempfile

import numpy
import ray
import ray.data

from shardmill import LocalDataset
from shardmill.ray import MDSDatasink, MDSDatasource


def render(batch):
    numbers = batch['id']
    pixels = numpy.repeat(numbers[:, None], 16, axis=1).astype('float32')
    return {'pixels': pixels, 'label': numbers % 10}


def main(folder):
    # Without this, parts are numbered as their tasks start, and the order of the rows is not that of the dataset.
    ray.data.DataContext.get_current().execution_options.preserve_order = True
    frame = ray.data.range(1000, override_num_blocks=4).map_batches(render)
    # All nodes must reach the folder; a store works, too.
    frame.write_datasink(MDSDatasink(folder, compression='zstd:3', hashes=['sha256']))

    dataset = LocalDataset(folder)
    print(f'wrote {len(dataset)} samples in {len(dataset.shards)} shards')
    back = ray.data.read_datasource(MDSDatasource(folder))
    print(f'read back: {back.count()} rows, {back.take(1)[0]["pixels"].size} pixels each')
    sample = dataset[7]
    print(f'sample 7: label {sample["label"]}, sum {sample["pixels"].sum()}')


if __name__ == '__main__':
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory() as scratch:
        main(f'{scratch}/images')
    ray.shutdown()
