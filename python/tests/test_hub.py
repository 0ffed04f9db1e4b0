"""Datasets and sources in repositories of the Hugging Face Hub."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.hub import REPOSITORY, SAMPLES, Hub, write_texts

from shardmill import LocalDataset, StreamingDataset
from shardmill._program import find_program
from shardmill.errors import NotFoundError, ShardmillError

URL = f'hf://{REPOSITORY}'


def _run(*args: str, code: int = 0) -> str:
    done = subprocess.run([find_program(), *args], check=False, capture_output=True)
    assert done.returncode == code, done.stderr.decode()
    return (done.stderr if code else done.stdout).decode()


def test_hub_dataset_is_streamed_and_inspected(hub: Hub, tmp_path: Path) -> None:
    data = write_texts(tmp_path / 'repository' / 'train')
    hub.commit(tmp_path / 'repository')
    options: dict[str, Any] = {'shuffle': True, 'shuffle_seed': 5, 'batch_size': 8}
    expected = [dict(sample) for sample in StreamingDataset(local=str(data), **options)]
    remote = StreamingDataset(remote=f'{URL}/train', local=str(tmp_path / 'cache'), **options)
    assert [dict(sample) for sample in remote] == expected
    assert remote[77]['id'] == 77
    # Shards are on the other host, and the revision is resolved once.
    assert 'GET files' in hub.requests
    resolved = [line for line in hub.requests if '/revision/' in line]
    assert resolved == [f'GET /api/{REPOSITORY}/revision/main']
    _run('verify', f'{URL}/train', '--deep')
    cat = _run('cat', f'{URL}/train', '0..300')
    assert cat == _run('cat', str(data), '0..300')
    shown = json.loads(_run('inspect', f'{URL}/train', '--json'))
    assert shown['samples'] == SAMPLES


def test_hub_table_folder_is_converted(hub: Hub, tmp_path: Path) -> None:
    repository = tmp_path / 'repository'
    names = ['a/part 1.jsonl', 'a/b/größe#2.jsonl', 'a/part-3.jsonl', 'a/z+&.jsonl', 'other.txt']
    for number, name in enumerate(names):
        path = repository / name
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = range(number * 100, number * 100 + (3 if number == 0 else 100))
        path.write_text('\n'.join(json.dumps({'id': n, 'text': f'row {n}'}) for n in rows))
    hub.commit(repository)
    hub.page = 1
    local, remote = tmp_path / 'local', tmp_path / 'remote'
    _run('convert', str(repository / 'a'), str(local), '--quiet')
    _run('convert', f'{URL}/a', str(remote), '--quiet')
    assert (local / 'index.json').read_bytes() == (remote / 'index.json').read_bytes()
    assert len(LocalDataset(str(remote))) == 303
    assert 'small' in hub.requests and 'GET files' in hub.requests
    one = tmp_path / 'one'
    _run('convert', f'{URL}@main/a/part 1.jsonl', str(one), '--quiet')
    assert len(LocalDataset(str(one))) == 3


def test_hub_revision_is_pinned_during_run(hub: Hub, tmp_path: Path) -> None:
    old = tmp_path / 'old'
    write_texts(old / 'train')
    first = hub.commit(old)
    hub.commit(old, 'refs/pr/7')
    new = tmp_path / 'new'
    write_texts(new / 'train', first=1000)
    dataset = StreamingDataset(
        remote=f'{URL}/train', local=str(tmp_path / 'cache'), batch_size=8, predownload=1
    )
    assert dataset[0]['id'] == 0
    second = hub.commit(new)
    assert [sample['id'] for sample in dataset] == list(range(SAMPLES))
    for revision, start in (('', 1000), (f'@{first}', 0), (f'@{second}', 1000)):
        hub.requests.clear()
        line = _run('cat', f'{URL}{revision}/train', '0', '--column', 'id')
        assert json.loads(line)['id'] == start
        assert any('/revision/' in line for line in hub.requests) == (revision == '')
    line = _run('cat', f'{URL}@refs/pr/7/train', '0', '--column', 'id')
    assert json.loads(line)['id'] == 0


@pytest.mark.parametrize('place', ['HF_TOKEN', 'HF_TOKEN_PATH', 'HF_HOME', 'HOME', 'option'])
def test_hub_token_is_found_in_standard_locations(
    place: str, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / 'repository'
    write_texts(repository / 'train')
    hub.commit(repository)
    hub.token = 'hf_secret'
    folder = tmp_path / 'home' / '.cache' / 'huggingface' if place == 'HOME' else tmp_path / 'hf'
    folder.mkdir(parents=True)
    options = []
    if place == 'HF_TOKEN':
        monkeypatch.setenv(place, 'hf_secret')
    elif place == 'option':
        monkeypatch.setenv('HF_TOKEN', 'hf_other')
        options = ['--storage-option', 'HF_TOKEN=hf_secret']
    else:
        (folder / 'token').write_text('hf_secret\n')
    if place == 'HF_TOKEN_PATH':
        monkeypatch.setenv(place, str(folder / 'token'))
    elif place == 'HF_HOME':
        monkeypatch.setenv(place, str(folder))
    _run('verify', f'{URL}/train', *options)
    if place == 'HF_TOKEN':
        monkeypatch.setenv('HF_HUB_DISABLE_IMPLICIT_TOKEN', '1')
        _run('verify', f'{URL}/train', code=8)


def _refused(remote: str, **options: str) -> ShardmillError:
    with pytest.raises(ShardmillError) as refused:
        StreamingDataset(remote=remote, batch_size=1, storage_options=options)
    return refused.value


def test_access_errors_mention_hf_token_without_showing_it(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / 'repository'
    write_texts(repository / 'train')
    hub.commit(repository)
    monkeypatch.chdir(tmp_path)
    hub.token = 'hf_secret'
    for options, code in (({}, '401, RepoNotFound'), ({'HF_TOKEN': 'hf_hush'}, '401)')):
        error = _refused(f'{URL}/train', **options)
        assert error.id == 'credentials' and code in str(error), error
        assert 'HF_TOKEN' in str(error.hint) and 'hush' not in f'{error} {error.hint}'
    hub.token, hub.gated = None, True
    error = _refused(f'{URL}/train')
    assert error.id == 'credentials' and '403, GatedRepo' in str(error)
    hub.gated = False
    for remote, code in (
        ('hf://datasets/org/other/train', 'RepoNotFound'),
        (f'{URL}@none/train', 'RevisionNotFound'),
    ):
        error = _refused(remote)
        assert isinstance(error, NotFoundError) and code in str(error), error
        assert 'HF_TOKEN' in str(error.hint)
    error = _refused(f'{URL}/none')
    assert isinstance(error, NotFoundError) and 'HF_TOKEN' not in str(error.hint), error


def test_busy_hub_responses_are_retried(hub: Hub, tmp_path: Path) -> None:
    repository = tmp_path / 'repository'
    write_texts(repository / 'train')
    hub.commit(repository)
    hub.faults = [429, 503, 500, 429]
    _run('verify', f'{URL}/train', '--deep')
    assert hub.faults == []


def test_writing_to_hub_is_an_error(hub: Hub, tmp_path: Path) -> None:
    repository = tmp_path / 'repository'
    repository.mkdir()
    (repository / 'rows.jsonl').write_text('{"id": 1}\n')
    hub.commit(repository)
    shown = _run('convert', str(repository / 'rows.jsonl'), f'{URL}/out', code=2)
    assert 'Hugging Face Hub' in shown, shown


def test_fake_hub_server_is_compatible_with_client(hub: Hub, tmp_path: Path) -> None:
    """The client of the Hub reads the same names and bytes from the server of these tests."""
    api = pytest.importorskip('huggingface_hub')
    repository = tmp_path / 'repository'
    write_texts(repository / 'train')
    (repository / 'small file.txt').write_text('small')
    commit = hub.commit(repository)
    hub.page = 2
    client = api.HfApi(endpoint=hub.address, token=False)
    tree = client.list_repo_tree('org/name', repo_type='dataset', recursive=False)
    assert {entry.path for entry in tree} == {'train', 'small file.txt'}
    for name in ('small file.txt', 'train/index.json', 'train/shard.00000.mds'):
        path = client.hf_hub_download(
            'org/name', name, repo_type='dataset', cache_dir=tmp_path / 'cache'
        )
        assert commit in path
        assert Path(path).read_bytes() == (repository / name).read_bytes()
