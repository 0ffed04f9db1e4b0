"""Reads one epoch on a mesh of data and tensor parallel ranks: OUT REMOTE."""

import json
import sys
from pathlib import Path

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from shardmill import StreamingDataLoader, StreamingDataset

out, remote = sys.argv[1:]
dist.init_process_group('gloo')
mesh = init_device_mesh('cpu', (2, 2), mesh_dim_names=('dp', 'tp'))
dataset = StreamingDataset(
    remote=remote, local=f'{out}/cache', shuffle=True, batch_size=12, mesh=mesh, data_dims='dp'
)
batches = [batch['number'].tolist() for batch in StreamingDataLoader(dataset, batch_size=12)]
Path(out, f'rank{dist.get_rank()}.json').write_text(json.dumps(batches))
dist.destroy_process_group()
