"""Columns that were added to a dataset after it was written."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import shardmill
from shardmill import LocalDataset, MDSWriter, StreamingDataset, Window
from shardmill._program import find_program
from shardmill.errors import ConflictError

if TYPE_CHECKING:
    from support.store import Store

SAMPLES = 500


def _dataset(out: Path, compression: str | None = None) -> Path:
    columns = {'id': 'int', 'text': 'str', 'numbers': 'ndarray:int32'}
    hashes = ['sha1']
    with MDSWriter(
        out=str(out), columns=columns, compression=compression, hashes=hashes, size_limit=8000
    ) as writer:
        for n in range(SAMPLES):
            numbers = np.arange(n % 9 + 1, dtype=np.int32)
            writer.write({'id': n, 'text': f'text {n}' * (n % 4), 'numbers': numbers})
    return out


def _add(dataset: Path | str, folder: Path, **values: Any) -> None:
    folder.mkdir(exist_ok=True)
    rows = folder / 'rows.jsonl'
    order = np.random.default_rng(7).permutation(SAMPLES)
    lines = (
        {'id': int(n), **{name: value(int(n)) for name, value in values.items()}} for n in order
    )
    rows.write_text('\n'.join(map(json.dumps, lines)))
    subprocess.run(
        [find_program(), 'add-column', dataset, rows, '--on', 'id'], check=True, cwd=folder
    )


def _score(n: int) -> float:
    return n / 8


def _caption(n: int) -> str:
    return 'caption ' * (n % 5) + str(n)


def _read(**options: Any) -> tuple[list[dict[str, Any]], list[Any]]:
    """The samples of two epochs in their order, and the states along the way."""
    dataset = StreamingDataset(
        shuffle=True, shuffle_seed=3, batch_size=4, num_canonical_nodes=2, **options
    )
    samples, states = [], []
    for _ in range(2):
        for number, sample in enumerate(dataset):
            samples.append(dict(sample))
            if number % 100 == 50:
                states.append(dataset.state_dict(number, from_beginning=False))
    return samples, states


@pytest.mark.parametrize('compression', [None, 'zstd:3'])
@pytest.mark.parametrize('cached', [False, True])
def test_added_columns_keep_sample_order_and_states(
    tmp_path: Path, compression: str | None, cached: bool
) -> None:
    plain = _dataset(tmp_path / 'plain', compression)
    shutil.copytree(plain, tmp_path / 'more')
    _add(tmp_path / 'more', tmp_path / 'rows', score=_score, caption=_caption)
    found = []
    for name in ('plain', 'more'):
        where = {'local': str(tmp_path / name)}
        if cached:
            where = {'remote': str(tmp_path / name), 'local': str(tmp_path / f'{name}-cache')}
        found.append(_read(**where))
    (before, states), (after, states_after) = found
    assert [sample['id'] for sample in before] == [sample['id'] for sample in after]
    assert json.dumps(states) == json.dumps(states_after)
    for old, new in zip(before, after):
        assert new.pop('score') == _score(new['id'])
        assert new.pop('caption') == _caption(new['id'])
        assert new.keys() == old.keys()
        np.testing.assert_array_equal(new.pop('numbers'), old['numbers'])


def test_added_columns_work_in_lookups_windows_and_views(tmp_path: Path) -> None:
    data = _dataset(tmp_path / 'data')
    _add(data, tmp_path / 'rows', score=_score)
    local = LocalDataset(str(data))
    assert [local[n]['score'] for n in (0, 77, SAMPLES - 1)] == [_score(n) for n in (0, 77, 499)]
    dataset = StreamingDataset(local=str(data), batch_size=8, window=Window([-1, 0], pad='repeat'))
    np.testing.assert_array_equal(dataset[33]['score'], [_score(32), _score(33)])
    view = shardmill.select(data, where='score < 3')
    dataset = StreamingDataset(local=str(data), batch_size=8, view=view)
    assert [sample['id'] for sample in dataset] == list(range(24))


def test_existing_cache_follows_column_changes(tmp_path: Path) -> None:
    remote = _dataset(tmp_path / 'data', 'zstd:3')
    local = tmp_path / 'cache'

    def read() -> list[dict[str, Any]]:
        dataset = StreamingDataset(remote=str(remote), local=str(local), batch_size=8)
        return [dict(sample) for sample in dataset]

    assert 'score' not in read()[0]
    _add(remote, tmp_path / 'rows', score=_score)
    assert [sample['score'] for sample in read()] == [_score(n) for n in range(SAMPLES)]
    # Other values of the same column.
    (remote / 'index.columns').unlink()
    _add(remote, tmp_path / 'rows', score=lambda n: -_score(n))
    assert [sample['score'] for sample in read()] == [-_score(n) for n in range(SAMPLES)]
    # The folder of the cache is a dataset.
    assert LocalDataset(str(local))[5]['score'] == -_score(5)
    (remote / 'index.columns').unlink()
    assert 'score' not in read()[0]


def test_added_columns_are_read_from_remote(
    tmp_path: Path, served: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    data = _dataset(served / 'late', 'zstd:3')
    _add(data, tmp_path / 'rows', score=_score)
    dataset = StreamingDataset(
        remote='s3://bucket/late', local=str(tmp_path / 'cache'), batch_size=8, shuffle=True
    )
    assert dataset[123]['score'] == _score(123)
    for sample in dataset:
        assert sample['score'] == _score(sample['id'])


def test_columns_file_of_different_index_is_rejected(tmp_path: Path) -> None:
    data = _dataset(tmp_path / 'data')
    _add(data, tmp_path / 'rows', score=_score)
    index = json.loads((data / 'index.json').read_text())
    (data / 'index.json').write_text(json.dumps(index, indent=1))
    with pytest.raises(ConflictError) as refused:
        StreamingDataset(local=str(data), batch_size=8)
    assert refused.value.id == 'columns-dataset'
    (data / 'index.columns').unlink()
    assert len(StreamingDataset(local=str(data), batch_size=8)) == SAMPLES
