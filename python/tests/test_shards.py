"""Shards as the readers in Python see them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.writing import (
    files,
    samples,
    write,
)

from shardmill.base.format import reader_from_json


def test_shard_reports_its_size_on_disk(tmp_path: Path) -> None:
    rows = samples('json', 30)
    index = write('json', tmp_path, rows, compression='zstd', size_limit=500)
    shard = reader_from_json(str(tmp_path), None, index['shards'][0])
    entry = index['shards'][0]
    raw = entry['raw_data']['bytes'] + entry['raw_meta']['bytes']
    zipped = entry['zip_data']['bytes'] + entry['zip_meta']['bytes']
    assert (shard.get_raw_size(), shard.get_zip_size()) == (raw, zipped)
    assert shard.get_max_size() == raw + zipped
    assert (shard.get_persistent_size(True), shard.get_persistent_size(False)) == (
        raw + zipped,
        raw,
    )

    def listing() -> set[str]:
        return {str(path) for path in tmp_path.iterdir()}

    assert shard.set_up_local(listing(), True) == zipped
    (tmp_path / entry['raw_data']['basename']).write_bytes(bytes(entry['raw_data']['bytes']))
    # One of two raw files is none.
    assert shard.set_up_local(listing(), False) == zipped
    for part in ('raw_data', 'raw_meta'):
        (tmp_path / entry[part]['basename']).write_bytes(bytes(entry[part]['bytes']))
    assert shard.set_up_local(listing(), True) == raw + zipped
    assert shard.set_up_local(listing(), False) == raw
    assert entry['zip_data']['basename'] not in files(tmp_path)
    assert shard.evict() == raw
    assert shard.set_up_local(listing(), False) == 0
    with pytest.raises(FileNotFoundError):
        shard[0]


def test_invalid_shard_entries_are_errors(tmp_path: Path) -> None:
    entry = write('mds', tmp_path, samples('mds', 3))['shards'][0]
    shard = reader_from_json(str(tmp_path), None, entry)
    shard.validate(False)
    assert len(shard) == shard.size == 3
    with pytest.raises(IndexError):
        shard[3]
    changes: list[tuple[dict[str, Any], type[Exception]]] = [
        ({'version': 1}, AssertionError),
        ({'format': 'lance'}, KeyError),
        ({'more': 1}, TypeError),
    ]
    for change, error in changes:
        with pytest.raises(error):
            reader_from_json(str(tmp_path), None, {**entry, **change})
    unsafe = reader_from_json(str(tmp_path), None, {**entry, 'column_encodings': ['pkl'] * 5})
    unsafe.validate(True)
    with pytest.raises(ValueError, match='unsafe'):
        unsafe.validate(False)
    data = tmp_path / entry['raw_data']['basename']
    data.write_bytes(data.read_bytes()[:-1])
    with pytest.raises(IndexError):
        shard[2]
