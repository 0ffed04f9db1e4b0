"""Samples for writers, and what they leave."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

import numpy as np

from shardmill import CSVWriter, JSONWriter, MDSWriter, TSVWriter, XSVWriter
from shardmill.base.format import get_index_basename, reader_from_json

if TYPE_CHECKING:
    from collections.abc import Mapping

Sample = dict[str, Any]

TEXT = {'text': 'str', 'number': 'int', 'score': 'float'}
WRITERS: Mapping[str, Callable[..., Any]] = {
    'mds': lambda **options: MDSWriter(**options),
    'json': lambda **options: JSONWriter(**options),
    'csv': lambda **options: CSVWriter(**options),
    'tsv': lambda **options: TSVWriter(**options),
    'xsv': lambda **options: XSVWriter(separator='<>', **options),
}
MDS = {'text': 'str', 'number': 'int64', 'score': 'float32', 'blob': 'bytes', 'row': 'ndarray'}


def samples(format_: str, count: int, seed: int = 0) -> list[Sample]:
    rng = random.Random(seed)
    made: list[Sample] = []
    for number in range(count):
        sample: Sample = {
            'number': number - 3,
            'text': 'w\u00f6rd ' * rng.randint(0, 9),
            'score': rng.random(),
            'unused': object(),
        }
        if format_ == 'mds':
            sample['blob'] = rng.randbytes(rng.randint(0, 99))
            sample['row'] = np.arange(rng.randint(1, 9), dtype=np.int16)
        made.append(sample)
    return made


def columns(format_: str) -> dict[str, str]:
    return MDS if format_ == 'mds' else TEXT


def write(format_: str, out: Path, rows: list[Sample], **options: Any) -> dict[str, Any]:
    """Writes samples; gives the index."""
    options.setdefault('columns', columns(format_))
    with WRITERS[format_](out=str(out), **options) as writer:
        for row in rows:
            writer.write(row)
    return index_of(out)


def index_of(folder: Path) -> dict[str, Any]:
    index: dict[str, Any] = json.loads((folder / get_index_basename()).read_text())
    return index


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def read(folder: Path) -> list[Sample]:
    """The samples of raw shards, by the readers in Python."""
    found: list[Sample] = []
    for entry in index_of(folder)['shards']:
        found += reader_from_json(str(folder), None, entry)
    return found


def plain(sample: Mapping[str, Any], names: Mapping[str, str]) -> Sample:
    """A sample as a reader gives it, in a form that can be compared."""
    found = {}
    for name, encoding in names.items():
        value = sample[name]
        if encoding == 'float32':
            value = float(np.float32(value))
        found[name] = value.tolist() if isinstance(value, np.ndarray) else value
    return found
