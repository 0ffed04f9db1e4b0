"""Reads an epoch, and prints which samples it has and how many descriptors were open at most.

    python epoch_read.py WHAT

`WHAT` is JSON: the `options` of the dataset, its `streams` if it has several, the `limit` of open files (the soft and
the hard one), the number of `workers`, `files` for a dataset of files, and `out` for one that is written first.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any


def _processes(pid: int) -> list[int]:
    """A process and the ones that it has started."""
    found = [pid]
    for task in Path(f'/proc/{pid}/task').iterdir():
        try:
            for child in (task / 'children').read_text().split():
                found += _processes(int(child))
        except OSError:
            continue
    return found


class Descriptors:
    """The most descriptors that a process had open."""

    def __init__(self) -> None:
        self.most = 0
        self.kinds: Counter[str] = Counter()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._ended.wait(0.002):
            for pid in _processes(os.getpid()):
                try:
                    names = os.listdir(f'/proc/{pid}/fd')
                except OSError:
                    continue
                if len(names) > self.most:
                    self.most = len(names)
                    self.kinds = Counter(_kind(f'/proc/{pid}/fd/{name}') for name in names)

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()


def _kind(link: str) -> str:
    try:
        target = os.readlink(link)
    except OSError:
        return 'gone'
    name = target.split(':')[0].rpartition('/')[2]
    return 'number' if name.isdigit() else name


def _opened(what: dict[str, Any]) -> Any:
    from shardmill import FileDataset, Stream, StreamingDataset

    options = {'batch_size': 4, **what.get('options', {})}
    if 'files' in what:
        return FileDataset(**options)
    streams = [Stream(**stream) for stream in what.get('streams', [])]
    return StreamingDataset(streams=streams or None, **options)


def _number(sample: Any) -> Any:
    return int(sample['number']) if 'number' in sample else sample['path']


def main() -> None:
    what = json.loads(sys.argv[1])
    if 'limit' in what:
        resource.setrlimit(resource.RLIMIT_NOFILE, tuple(what['limit']))
    from torch.utils.data import DataLoader

    if 'out' in what:
        from support.samples import write

        write(Path(what['out']), 100, **what.get('writer', {}))
    watched = Descriptors()
    start = time.monotonic()
    dataset = _opened(what)
    if what.get('workers'):
        loader = DataLoader(
            dataset, batch_size=None, num_workers=what['workers'], multiprocessing_context='fork'
        )
        numbers = [_number(sample) for sample in loader]
    else:
        numbers = [_number(sample) for sample in dataset]
    seconds = time.monotonic() - start
    watched.stop()
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = {
        'numbers': sorted(numbers, key=str),
        'most': watched.most,
        'kinds': watched.kinds.most_common(8),
        'limit': limit,
        'seconds': seconds,
    }
    print(json.dumps(found))


if __name__ == '__main__':
    main()
