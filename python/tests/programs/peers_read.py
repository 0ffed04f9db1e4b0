"""Reads as one node of a run: `epoch` in the input reads an epoch, `stats` prints what was fetched so far.

Arguments: REMOTE LOCAL ALGO.
"""

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
for line in sys.stdin:
    if line == 'stats\n':
        print(json.dumps(dict(dataset.stats().items())), flush=True)
        continue
    numbers = []
    for sample in dataset:
        number = int(sample['number'])
        assert sample['data'] == random.Random(number).randbytes(8192), number
        numbers.append(number)
    print(json.dumps(numbers), flush=True)
