"""Files a second of a tree on a local disk: `FileDataset` and a plain dataset of torch, in this process and with workers.

    python benches/files.py FOLDER [--files 20000] [--bytes 20000]

Makes the tree where it is missing. Each is read twice in a shuffled order, and the second time counts.
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader, Dataset

from shardmill import FileDataset, StreamingDataLoader

BATCH = 64


class Plain(Dataset[Any]):
    """What people write: a list of paths, and a file read for each."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.paths = sorted(str(path.relative_to(root)) for path in root.rglob('*.bin'))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, at: int) -> dict[str, Any]:
        path = self.paths[at]
        return {'path': path, 'data': (self.root / path).read_bytes()}


def speed(name: str, loader: Any) -> None:
    for _ in range(2):
        begun = time.perf_counter()
        files = sum(len(batch['path']) for batch in loader)
        took = time.perf_counter() - begun
    print(f'{name:40} {files / took:9.0f} files/s')


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('folder', type=Path)
    parser.add_argument('--files', type=int, default=20_000)
    parser.add_argument('--bytes', type=int, default=20_000)
    options = parser.parse_args()
    root = options.folder
    if not root.exists():
        data = random.Random(1).randbytes(options.bytes)
        for number in range(options.files):
            path = root / f'{number % 100:02}' / f'{number:07}.bin'
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    plain = Plain(root)
    speed('torch, no worker', DataLoader(plain, BATCH, shuffle=True))
    speed('torch, 2 workers', DataLoader(plain, BATCH, shuffle=True, num_workers=2))
    for yields in ('data', 'file'):
        dataset = FileDataset(remote=str(root), batch_size=BATCH, shuffle=True, yields=yields)
        speed(f'shardmill {yields}, no worker', StreamingDataLoader(dataset, batch_size=BATCH))
        speed(
            f'shardmill {yields}, 2 workers, DataLoader',
            DataLoader(dataset, batch_size=BATCH, num_workers=2),
        )
        speed(
            f'shardmill {yields}, 2 workers',
            StreamingDataLoader(dataset, batch_size=BATCH, num_workers=2),
        )


if __name__ == '__main__':
    main()
