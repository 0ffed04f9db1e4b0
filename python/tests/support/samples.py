"""A dataset whose samples follow from their numbers, so that what was read can be checked."""

from __future__ import annotations

import hashlib
import io
import tarfile
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.data import get_worker_info

from shardmill import MDSWriter

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = {
    'number': 'int',
    'text': 'str',
    'data': 'bytes',
    'short': 'uint8',
    'vector': 'ndarray:float32:3',
}
#: Not divisible by the batch size, nor by the samples of a shard.
SAMPLES = 403
BATCH = 8


def sample_of(number: int) -> dict[str, Any]:
    """The sample with this number."""
    digest = hashlib.sha256(str(number).encode()).digest()
    return {
        'number': number,
        'text': f'ä{digest.hex()[: number % 60]}',
        'data': digest * (number % 7),
        'short': np.uint8(number % 251),
        'vector': np.array([number, -number, number / 4], np.float32),
    }


def write(
    folder: Path,
    samples: int = SAMPLES,
    *,
    first: int = 0,
    shard_bytes: int = 6000,
    **options: Any,
) -> Path:
    """Writes samples numbered from `first`."""
    with MDSWriter(out=str(folder), columns=COLUMNS, size_limit=shard_bytes, **options) as out:
        for number in range(first, first + samples):
            out.write(sample_of(number))
    return folder


def write_tars(
    folder: Path, samples: int = SAMPLES, *, first: int = 0, shard_samples: int = 24
) -> Path:
    """Writes the same samples into tar files, without an index; `tar_value` decodes their fields."""
    folder.mkdir(parents=True)
    for begin in range(first, first + samples, shard_samples):
        name = folder / f'shard-{begin:06}.tar'
        with tarfile.open(name, 'w', format=tarfile.USTAR_FORMAT) as tar:
            for number in range(begin, min(begin + shard_samples, first + samples)):
                for field, value in sample_of(number).items():
                    data = value if isinstance(value, bytes) else str(value).encode()
                    if field == 'vector':
                        data = value.tobytes()
                    info = tarfile.TarInfo(f'{number:08}.{field}')
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
    return folder


def tar_value(field: str, data: bytes) -> Any:
    """For `decode`: the value of a field that `write_tars` wrote."""
    if field == 'number':
        return int(data)
    if field == 'text':
        return data.decode()
    if field == 'short':
        return np.uint8(int(data))
    if field == 'vector':
        return np.frombuffer(data, np.float32).copy()
    return data


def same(sample: dict[str, Any], number: int) -> bool:
    """Whether a sample, as it is or as one of a batch, is the one with this number."""
    wanted = sample_of(number)
    key = sample.get('__key__', f'{number:08}')
    return (
        [name for name in sample if name != '__key__'] in ([*wanted], sorted(wanted))
        and key == f'{number:08}'
        and int(sample['number']) == number
        and sample['text'] == wanted['text']
        and sample['data'] == wanted['data']
        and int(sample['short']) == wanted['short']
        and bool(np.array_equal(np.asarray(sample['vector']), wanted['vector']))
    )


def numbers(batch: dict[str, Any]) -> list[int]:
    """The numbers of the samples of a batch; every sample is checked."""
    found = [int(number) for number in batch['number']]
    assert all(len(values) == len(found) for values in batch.values()), {
        name: len(values) for name, values in batch.items()
    }
    for place, number in enumerate(found):
        sample = {name: values[place] for name, values in batch.items()}
        assert same(sample, number), f'{sample} is not sample {number}'
    return found


def collate(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """A batch of samples, some of which may have a key: without their keys."""
    return {name: [sample[name] for sample in samples] for name in COLUMNS}


def in_worker(worker: int) -> None:
    """For `worker_init_fn`: where there is one, `StreamingDataLoader` does not do with threads."""
    info = get_worker_info()
    assert info is not None
    assert info.id == worker


def flat(batches: list[list[int]]) -> list[int]:
    """The numbers of all batches, one after the other."""
    return [number for batch in batches for number in batch]
