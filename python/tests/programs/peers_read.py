"""Reads an epoch for each line of the input, as one node of a run: REMOTE LOCAL ALGO."""

import json
import random
import sys

from shardmill import StreamingDataset

remote, local, algo = sys.argv[1:]
dataset = StreamingDataset(
    remote=remote,
    local=local,
    shuffle=True,
    shuffle_algo=algo,
    batch_size=16,
    num_canonical_nodes=8,
)
print('open', flush=True)
for _ in iter(sys.stdin.readline, 'end\n'):
    numbers = []
    for sample in dataset:
        number = int(sample['number'])
        assert sample['data'] == random.Random(number).randbytes(8192), number
        numbers.append(number)
    stats = dict(dataset.stats().items())
    print(json.dumps({'numbers': numbers, 'stats': stats}), flush=True)
