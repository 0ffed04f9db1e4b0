"""Tries an installed wheel, without torch: import, convert, read, resume. Prints how long each step takes.

    python scripts/try_install.py PROGRAM

Runs in an environment that check_install.py has made. PROGRAM is the `shardmill` of its PATH.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

started = time.monotonic()


def step(name):
    """Prints the seconds since the last step."""
    global started
    print(f"  {name:<32} {time.monotonic() - started:6.2f} s", flush=True)
    started = time.monotonic()


import numpy as np  # noqa: E402

step("import numpy")
import shardmill  # noqa: E402

step("import shardmill")

loaded = sorted({'numpy', 'torch', 'pyarrow', 'PIL'} & set(sys.modules) - {'numpy'})
assert not loaded, loaded
try:
    import torch
except ImportError:
    torch = None
assert torch is None, 'this is about an environment without torch'

PROGRAM = sys.argv[1]


def run(*words):
    return subprocess.run([PROGRAM, *words], check=True, capture_output=True, text=True).stdout


with tempfile.TemporaryDirectory() as scratch:
    rows, shards = Path(scratch, "rows.csv"), Path(scratch, "shards")
    rows.write_text("id,text\n" + "".join(f"{number},sample {number} é\n" for number in range(10_000)), encoding="utf-8")
    assert "10,000 samples" in run("convert", str(rows), str(shards), "--compression", "zstd:3")
    step("shardmill convert, 10,000 rows")
    dataset = shardmill.StreamingDataset(local=str(shards), shuffle=True, batch_size=16)
    seen = []
    for sample in dataset:
        assert sample["text"] == f"sample {sample['id']} é"
        seen.append(sample["id"])
    assert sorted(seen) == list(range(10_000))
    assert seen != sorted(seen)
    step("read 10,000 samples, shuffled")
    assert "10,000" in run("verify", str(shards))
    step("shardmill verify")

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
    step("write, read and resume")

assert run("--version").split()[-1] == shardmill.__version__
