"""Local folders belong to one dataset."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from shardmill import MDSWriter, Stream, StreamingDataLoader, StreamingDataset
from shardmill.errors import ConflictError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from support.store import Store

SAMPLES = 100


def write(folder: Path, first: int) -> str:
    """A dataset whose index is the same for any `first`: numbers of one width, without hashes."""
    with MDSWriter(out=str(folder), columns={'id': 'int'}, size_limit=512) as out:
        for number in range(first, first + SAMPLES):
            out.write({'id': number})
    return str(folder)


def both(root: Path) -> tuple[str, str]:
    one, two = write(root / 'one', 0), write(root / 'two', 500)
    indexes = [(root / name / 'index.json').read_bytes() for name in ('one', 'two')]
    assert indexes[0] == indexes[1]
    return one, two


def ids(**options: Any) -> list[int]:
    return [sample['id'] for sample in StreamingDataset(batch_size=4, **options)]


def test_local_folder_cannot_be_reused_for_other_remote(tmp_path: Path) -> None:
    one, two = both(tmp_path)
    local = str(tmp_path / 'local')
    first = StreamingDataset(remote=one, local=local, batch_size=4)
    assert [sample['id'] for sample in first] == list(range(SAMPLES))
    for again in (local, f'{local}/', os.path.relpath(local)):
        with pytest.raises(
            ValueError, match=r'Reused local directory.*Provide a different'
        ) as seen:
            StreamingDataset(remote=two, local=again, batch_size=4)
        assert isinstance(seen.value, UsageError)
        assert (seen.value.id, seen.value.object) == ('config-stream-folder', local)
    with pytest.raises(ValueError, match='Reused local directory'):
        StreamingDataset(streams=[Stream(remote=two, local=local)], batch_size=4)
    # It continues as before.
    assert [sample['id'] for sample in first] == list(range(SAMPLES))
    assert ids(remote=two, local=str(tmp_path / 'other')) == list(range(500, 500 + SAMPLES))


def test_equivalent_remote_paths_share_local_folder(tmp_path: Path) -> None:
    one, _ = both(tmp_path)
    local = str(tmp_path / 'local')
    (tmp_path / 'link').symlink_to(one)
    for remote in (one, f'{one}/', f'file://{one}', os.path.relpath(one), str(tmp_path / 'link')):
        assert ids(remote=remote, local=local) == list(range(SAMPLES))
    assert ids(local=local) == list(range(SAMPLES))
    # A split is a folder like any other.
    root = str(tmp_path)
    assert ids(remote=root, local=root + '/cache', split='one') == list(range(SAMPLES))
    assert ids(remote=root, local=root + '/cache', split='two')[0] == 500
    assert ids(remote=one, local=root + '/cache/one') == list(range(SAMPLES))


def test_dataset_read_in_place_is_not_removed(tmp_path: Path) -> None:
    one, two = both(tmp_path)
    for _ in range(2):
        assert ids(remote=one, local=one)[0] == ids(local=one)[0] == 0
        assert ids(local=two)[0] == 500


def test_deleted_local_folder_can_be_reused(tmp_path: Path) -> None:
    one, two = both(tmp_path)
    local = tmp_path / 'local'
    assert ids(remote=one, local=str(local))[0] == 0
    shutil.rmtree(local)
    shutil.rmtree(tmp_path / '.local.shardmill', ignore_errors=True)
    assert ids(remote=two, local=str(local))[0] == 500
    with pytest.raises(ValueError, match='Reused local directory'):
        ids(remote=one, local=str(local))


def test_failed_open_does_not_claim_local_folder(tmp_path: Path) -> None:
    one, _ = both(tmp_path)
    local = str(tmp_path / 'local')
    with pytest.raises(FileNotFoundError):
        ids(remote=str(tmp_path / 'none'), local=local)
    assert ids(remote=one, local=local)[0] == 0


@pytest.mark.parametrize('context', ['fork', 'spawn'])
def test_pickled_copies_and_workers_share_local_folder(tmp_path: Path, context: str) -> None:
    one, _ = both(tmp_path)
    dataset = StreamingDataset(remote=one, local=str(tmp_path / 'local'), batch_size=4)
    copy: StreamingDataset = pickle.loads(pickle.dumps(dataset))
    assert [sample['id'] for sample in copy] == list(range(SAMPLES))
    options: Any = {'num_workers': 2, 'multiprocessing_context': context}
    loader: Any = StreamingDataLoader(dataset, batch_size=4, **options)
    found = [int(number) for batch in loader for number in batch['id']]
    assert sorted(found) == list(range(SAMPLES))


def test_remote_prefixes_own_their_local_folder(
    served: Path, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    both(served / 'twins')
    local = str(tmp_path / 'local')
    for remote in ('s3://bucket/twins/one', 's3://bucket/twins/one/'):
        assert ids(remote=remote, local=local)[0] == 0
    with pytest.raises(ValueError, match='Reused local directory'):
        ids(remote='s3://bucket/twins/two', local=local)


def grow(folder: Path, shards: int, sign: int = 1) -> int:
    """Writes a dataset of full shards, which begins like one of fewer shards. Returns its number of samples."""

    def written(samples: int) -> int:
        shutil.rmtree(folder, ignore_errors=True)
        with MDSWriter(
            out=str(folder), columns={'id': 'int'}, size_limit=512, hashes=['sha256']
        ) as out:
            for number in range(samples):
                out.write({'id': sign * number})
        index = json.loads((folder / 'index.json').read_text())
        return int(index['shards'][0]['samples'])

    samples = shards * written(SAMPLES)
    written(samples)
    return samples


def test_cache_is_extended_when_dataset_grows(tmp_path: Path) -> None:
    remote, local = tmp_path / 'remote', tmp_path / 'local'
    samples = grow(remote, 2)
    assert ids(remote=str(remote), local=str(local)) == list(range(samples))
    shard = local / 'shard.00001.mds'
    inode = shard.stat().st_ino
    samples = grow(remote, 3)
    assert ids(remote=str(remote), local=str(local)) == list(range(samples))
    assert shard.stat().st_ino == inode
    assert (local / 'index.json').read_bytes() == (remote / 'index.json').read_bytes()
    # Other samples: not a dataset that has grown.
    grow(remote, 4, sign=-1)
    with pytest.raises(ConflictError, match='neither the index') as seen:
        StreamingDataset(remote=str(remote), local=str(local), batch_size=4)
    assert seen.value.id == 'cache-foreign'


@pytest.mark.parametrize('cached', [True, False])
@pytest.mark.parametrize('context', ['fork', 'spawn'])
def test_worker_rejects_index_changed_during_run(
    tmp_path: Path, context: str, cached: bool
) -> None:
    remote = tmp_path / 'remote'
    samples = grow(remote, 2)
    local = str(tmp_path / 'local') if cached else None
    dataset = StreamingDataset(remote=str(remote), local=local, batch_size=4)
    loader = StreamingDataLoader(
        dataset, batch_size=4, num_workers=1, multiprocessing_context=context
    )
    assert sum(len(batch['id']) for batch in loader) == samples
    grow(remote, 3)
    with pytest.raises(ConflictError, match=r'\[dataset-changed\] .*the index has changed'):
        list(loader)
