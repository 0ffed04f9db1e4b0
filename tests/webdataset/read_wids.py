"""Samples by number through wids, with its own index of tar shards. Run by the Python of requirements-wids.txt.

python read_wids.py INDEX.json
"""

import hashlib
import io
import json
import sys

import wids

dataset = wids.ShardListDataset(sys.argv[1], transformations=lambda sample: sample, keep=True)
numbers = [*range(0, len(dataset), 3), len(dataset) - 1, 0]
for number in numbers:
    sample = dataset[number]
    fields = {name: value for name, value in sample.items() if name.startswith(".")}
    digests = {
        name: hashlib.sha256(value.read() if isinstance(value, io.IOBase) else value).hexdigest()
        for name, value in fields.items()
    }
    print(json.dumps({"number": number, "key": sample["__key__"], "fields": digests}))
