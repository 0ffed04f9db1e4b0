"""What has to work where shardmill was just installed: write, read, resume, without torch; and the command line.

python scripts/check_wheels.py PROGRAM
"""

import subprocess
import sys
import tempfile

import numpy as np
import shardmill

loaded = sorted({'numpy', 'torch', 'pyarrow', 'PIL'} & set(sys.modules) - {'numpy'})
assert not loaded, loaded
try:
    import torch
except ImportError:
    torch = None
assert torch is None, 'this is about an environment without torch'

with tempfile.TemporaryDirectory() as folder:
    columns = {'id': 'int', 'text': 'str', 'tokens': 'ndarray:int32:8', 'score': 'float32'}
    with shardmill.MDSWriter(out=folder, columns=columns, compression='zstd:3', hashes=['sha256'], size_limit=4096) as out:
        for number in range(500):
            tokens = np.arange(number, number + 8, dtype=np.int32)
            out.write({'id': number, 'text': f'sample {number} é', 'tokens': tokens, 'score': np.float32(number / 3)})
    dataset = shardmill.StreamingDataset(local=folder, shuffle=True, batch_size=16)
    seen = []
    for sample in dataset:
        number = sample['id']
        seen.append(number)
        assert sample['text'] == f'sample {number} é'
        assert sample['tokens'].tolist() == list(range(number, number + 8))
        assert sample['score'] == np.float32(number / 3) and type(sample['score']) is np.float32
    assert sorted(seen) == list(range(500))
    assert seen != sorted(seen)
    state = dataset.state_dict(160, from_beginning=True)
    again = shardmill.StreamingDataset(local=folder, shuffle=True, batch_size=16)
    again.load_state_dict(state)
    assert [sample['id'] for sample in again] == seen[160:]
    assert dataset[-1]['id'] == 499
    shown = subprocess.run([sys.argv[1], 'verify', folder], check=True, capture_output=True, text=True).stdout
    assert '500' in shown, shown

version = subprocess.run([sys.argv[1], '--version'], check=True, capture_output=True, text=True).stdout.split()[-1]
assert version == shardmill.__version__, version
print(f'Python {sys.version.split()[0]}: shardmill {version} writes, reads and resumes without torch')
