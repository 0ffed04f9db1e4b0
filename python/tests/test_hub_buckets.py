"""Datasets and sources in buckets of the Hugging Face Hub."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.hub import BUCKET, SAMPLES, Hub, write_texts, xet_hash

from shardmill import LocalDataset, StreamingDataset
from shardmill._program import find_program
from shardmill.errors import ShardmillError

URL = f'hf://{BUCKET}'


def _run(*args: str) -> str:
    done = subprocess.run([find_program(), *args], check=False, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def _fail(*args: str) -> dict[str, Any]:
    """Returns the error of a command that fails."""
    done = subprocess.run([find_program(), *args, '--json'], check=False, capture_output=True)
    assert done.returncode != 0
    error: dict[str, Any] = json.loads(done.stderr.decode().splitlines()[-1])['error']
    return error


def _rows(first: int, count: int) -> bytes:
    lines = (json.dumps({'id': n, 'text': f'row {n:06}'}) for n in range(first, first + count))
    return '\n'.join(lines).encode()


def test_bucket_dataset_is_streamed_and_inspected(hub: Hub, tmp_path: Path) -> None:
    data = write_texts(tmp_path / 'bucket' / 'train')
    hub.fill(tmp_path / 'bucket')
    # The Hub lists these with the folder `train`.
    hub.put('train-old/index.json', b'{}')
    hub.put('train.txt', b'x')
    options: dict[str, Any] = {'shuffle': True, 'shuffle_seed': 5, 'batch_size': 8}
    expected = [dict(sample) for sample in StreamingDataset(local=str(data), **options)]
    remote = StreamingDataset(remote=f'{URL}/train', local=str(tmp_path / 'cache'), **options)
    assert [dict(sample) for sample in remote] == expected
    assert remote[77]['id'] == 77
    assert not [line for line in hub.requests if '/revision/' in line]
    _run('verify', f'{URL}/train', '--deep')
    assert _run('cat', f'{URL}/train', '0..300') == _run('cat', str(data), '0..300')
    assert json.loads(_run('inspect', f'{URL}/train', '--json'))['samples'] == SAMPLES


def test_bucket_table_folder_is_converted(hub: Hub, tmp_path: Path) -> None:
    folder = tmp_path / 'bucket'
    names = ['a/part 1.jsonl', 'a/b/größe#2.jsonl', 'a/part-3.jsonl', 'a/z+&.jsonl']
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(_rows(number * 100, 3 if number == 0 else 100))
    hub.fill(folder)
    hub.put('ab/x.jsonl', _rows(0, 9))
    hub.put('a.jsonl', _rows(0, 9))
    hub.page = 1
    local, remote = tmp_path / 'local', tmp_path / 'remote'
    _run('convert', str(folder / 'a'), str(local), '--quiet')
    _run('convert', f'{URL}/a', str(remote), '--quiet')
    assert (local / 'index.json').read_bytes() == (remote / 'index.json').read_bytes()
    assert len(LocalDataset(str(remote))) == 303
    # The same command finds nothing to do, and a pattern at the root of the bucket finds one file.
    assert 'nothing' in _run('convert', f'{URL}/a', str(remote))
    _run('convert', f'{URL}/*.jsonl', str(tmp_path / 'root'), '--quiet')
    assert len(LocalDataset(str(tmp_path / 'root'))) == 9


def test_bucket_table_is_streamed_in_place(hub: Hub, tmp_path: Path) -> None:
    pa, pq = pytest.importorskip('pyarrow'), pytest.importorskip('pyarrow.parquet')
    table = pa.table({'id': range(1000), 'text': [f'text {n}' for n in range(1000)]})
    (tmp_path / 'bucket' / 'table').mkdir(parents=True)
    pq.write_table(table, tmp_path / 'bucket' / 'table' / 'a.parquet', row_group_size=100)
    hub.fill(tmp_path / 'bucket')
    dataset = StreamingDataset(
        remote=f'{URL}/table', local=str(tmp_path / 'cache'), format='parquet', batch_size=8
    )
    assert [sample['id'] for sample in dataset] == list(range(1000))


@pytest.mark.parametrize('header', ['X_Linked_Size', 'X_Linked_Etag'])
def test_repository_headers_are_optional_for_buckets(header: str, hub: Hub, tmp_path: Path) -> None:
    hub.lacks = {header}
    hub.put('rows.jsonl', _rows(0, 100))
    hub.put('empty/rows.jsonl', b'')
    _run('convert', f'{URL}/rows.jsonl', str(tmp_path / 'out'), '--quiet')
    assert len(LocalDataset(str(tmp_path / 'out'))) == 100


def test_listing_and_file_response_have_equal_source_tag(hub: Hub, tmp_path: Path) -> None:
    # The source is identified by the listing of a folder, and by a request for the file.
    hub.put('a/rows.jsonl', _rows(0, 100))
    sources = []
    for name, place in (('folder', f'{URL}/a'), ('file', f'{URL}/a/rows.jsonl')):
        _run('convert', place, str(tmp_path / name), '--quiet')
        provenance = json.loads((tmp_path / name / 'index.provenance').read_text())
        sources.append(provenance['source'])
    assert sources[0] == sources[1]


@pytest.mark.parametrize('source', ['a', 'a/rows.jsonl'])
def test_file_changed_before_read_is_an_error(source: str, hub: Hub, tmp_path: Path) -> None:
    hub.put('a/rows.jsonl', _rows(0, 100))
    new = _rows(500, 100)
    assert len(new) != len(hub.bucket['a/rows.jsonl'])
    new = new[: len(hub.bucket['a/rows.jsonl'])]
    hub.before = (f'GET /{BUCKET}/resolve/a/rows', lambda: hub.put('a/rows.jsonl', new))
    assert _fail('convert', f'{URL}/{source}', str(tmp_path / 'out'))['id'] == 'source-changed'
    assert hub.before is None and not (tmp_path / 'out' / 'index.json').exists()


def test_file_changed_between_reads_is_an_error(hub: Hub, tmp_path: Path) -> None:
    write_texts(tmp_path / 'old')
    write_texts(tmp_path / 'new', first=1000)
    hub.fill(tmp_path / 'old')
    dataset = StreamingDataset(
        remote=URL, local=str(tmp_path / 'cache'), batch_size=1, predownload=1, cache_limit='16kb'
    )
    assert dataset[0]['id'] == 0
    hub.fill(tmp_path / 'new')
    with pytest.raises(ShardmillError) as failed:
        list(dataset)
    assert failed.value.id in {'remote-changed', 'body-length'}, failed.value.id


def test_response_without_xet_hash_is_an_error(hub: Hub, tmp_path: Path) -> None:
    hub.put('rows.jsonl', _rows(0, 100))
    hub.lacks = {'X_Xet_Hash'}
    error = _fail('convert', f'{URL}/rows.jsonl', str(tmp_path / 'out'))
    assert error['id'] == 'storage-answer' and 'X-Xet-Hash' in error['message']


def test_revision_in_bucket_url_is_an_error(hub: Hub, tmp_path: Path) -> None:
    error = _fail('inspect', f'{URL}@main/train')
    assert error['id'] == 'url-revision' and 'org/bucket' in error['message']
    with pytest.raises(ShardmillError) as refused:
        StreamingDataset(remote=f'{URL}@v1/train', local=str(tmp_path / 'cache'), batch_size=1)
    assert refused.value.id == 'url-revision' and 'org/bucket' in str(refused.value)
    assert hub.requests == []


def test_missing_and_private_buckets_have_different_errors(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.put('rows.jsonl', _rows(0, 100))
    out = str(tmp_path / 'out')
    other = 'hf://buckets/org/other'
    # Without a token, the Hub says neither.
    for place in (f'{other}/rows.jsonl', f'{other}/train'):
        error = _fail('convert', place, out)
        assert error['id'] == 'credentials' and 'a dataset is not a bucket' in error['hint']
    assert _fail('convert', f'{URL}/none.jsonl', out)['id'] == 'source-not-found'
    assert _fail('convert', f'{URL}/none', out)['id'] == 'source-not-found'
    assert _fail('inspect', f'{URL}/none')['id'] == 'source-not-found'
    hub.token = 'hf_secret'
    error = _fail('convert', f'{URL}/rows.jsonl', out)
    assert error['id'] == 'credentials' and 'HF_TOKEN' in error['hint']
    monkeypatch.setenv('HF_TOKEN', 'hf_secret')
    _run('convert', f'{URL}/rows.jsonl', out, '--quiet')
    for place in (f'{other}/rows.jsonl', f'{other}/train'):
        error = _fail('convert', place, str(tmp_path / 'other'))
        assert error['id'] == 'not-found' and 'no such bucket' in error['message']


def test_writing_to_bucket_is_an_error(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / 'rows.jsonl').write_bytes(_rows(0, 3))
    error = _fail('convert', str(tmp_path / 'rows.jsonl'), f'{URL}/out')
    assert error['id'] == 'store-unsupported' and hub.bucket == {}


def test_fake_bucket_server_is_compatible_with_client(hub: Hub) -> None:
    """The client of the Hub reads the same names, lengths and hashes from the server of these tests."""
    api = pytest.importorskip('huggingface_hub')
    if not hasattr(api.HfApi, 'list_bucket_tree'):
        pytest.skip('this huggingface_hub has no buckets')
    hub.put('a/b c/rows.jsonl', _rows(0, 100))
    hub.put('a/x.txt', b'x')
    hub.put('ab.txt', b'x')
    hub.page = 1
    client = api.HfApi(endpoint=hub.address, token=False)
    for recursive in (None, True):
        tree = list(client.list_bucket_tree('org/bucket', recursive=recursive))
        found = {entry.path: (entry.size, entry.xet_hash) for entry in tree}
        expected = {name: (len(data), xet_hash(data)) for name, data in hub.bucket.items()}
        assert found == expected
    fs = api.HfFileSystem(endpoint=hub.address, token=False)
    assert sorted(fs.ls(f'{BUCKET}/a', detail=False)) == [f'{BUCKET}/a/b c', f'{BUCKET}/a/x.txt']
    assert fs.cat_file(f'{BUCKET}/a/b c/rows.jsonl') == hub.bucket['a/b c/rows.jsonl']
