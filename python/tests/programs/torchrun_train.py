"""A process that `torch.distributed.run` starts: reads, and writes what it read and a state.

    torchrun --nproc-per-node N torchrun_train.py OUT REMOTE LOCAL BATCH STEPS WORKERS

STEPS of 0 is the rest of the epoch. Resumes from the state in OUT, if there is one.
"""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from support.samples import numbers

from shardmill import StreamingDataLoader, StreamingDataset


def main(out: str, remote: str, local: str, batch: int, steps: int, workers: int) -> None:
    dataset = StreamingDataset(
        remote=remote, local=local, batch_size=batch, shuffle=True, num_canonical_nodes=2
    )
    # What the world is, is known now at the latest.
    dist.init_process_group('gloo')
    loader = StreamingDataLoader(dataset, batch_size=batch, num_workers=workers)
    state = Path(out, 'state.json')
    if state.exists():
        loader.load_state_dict(json.loads(state.read_text()))
    dist.barrier()
    found = []
    for read in itertools.islice(iter(loader), steps or None):
        found.append(numbers(read))
        # All ranks take as many steps, or this would wait for ever.
        dist.all_reduce(torch.ones(1))
    rank = dist.get_rank()
    Path(out, f'rank{rank}.json').write_text(json.dumps(found))
    if rank == 0:
        state.write_text(json.dumps(loader.state_dict()))
    dist.destroy_process_group()


if __name__ == '__main__':
    given = sys.argv[1:]
    main(given[0], given[1], given[2], *map(int, given[3:]))
