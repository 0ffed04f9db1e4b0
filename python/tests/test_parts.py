"""Parts and commit without any engine."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from support.bucket import Bucket

from shardmill import LocalDataset, MDSWriter, parts
from shardmill.errors import (
    ConflictError,
    DataError,
    RemoteError,
    ShardmillError,
    UnsupportedError,
    UsageError,
)

pa = pytest.importorskip('pyarrow')


def table(start: int, end: int) -> Any:
    numbers = list(range(start, end))
    return pa.table({'id': numbers, 'text': [str(number) for number in numbers]})


def ids(place: Path) -> list[int]:
    dataset = LocalDataset(str(place))
    return [int(dataset[number]['id']) for number in range(len(dataset))]


def tree(place: Path) -> dict[str, bytes]:
    paths = sorted(path for path in place.rglob('*') if path.is_file())
    return {str(path.relative_to(place)): path.read_bytes() for path in paths}


def test_commit_makes_parts_a_dataset(tmp_path: Path) -> None:
    place = tmp_path / 'out'
    staging = parts.begin(str(place))
    assert not place.exists(), 'looking makes nothing'
    told = pickle.loads(pickle.dumps(staging))
    manifests = [
        parts.write_part([table(20, 30)], told, 2, size_limit=150),
        parts.write_part(iter([table(0, 5), table(5, 10)]), told, 0, size_limit='150b'),
        parts.write_part([table(10, 20)], told, 1, size_limit=150),
    ]
    assert not (place / 'index.json').exists()
    assert all(len(manifest) < 20_000 and json.loads(manifest) for manifest in manifests)
    done = parts.commit(manifests, staging, parts=3, verify='hash')
    assert (done.samples, done.total_samples, done.was_done) == (30, 30, False)
    assert ids(place) == list(range(30))
    assert len(tree(place)) == done.shards + 1
    assert parts.commit(manifests, staging).was_done


#: Without types, because type checkers know only the new names.
ANY: Any = parts


@pytest.mark.parametrize(
    ('call', 'old', 'new'),
    [
        (lambda: ANY.begin(dest='x'), 'dest', 'out'),
        (lambda: ANY.begin('x', pattern='a-%d.tar'), 'pattern', 'shard_pattern'),
        (lambda: ANY.gc('x', pattern='a-%d.tar'), 'pattern', 'shard_pattern'),
        (lambda: ANY.PartWriter(None, 0, scratch='x'), 'scratch', 'temp_dir'),
        (lambda: ANY.write_part([], None, 0, scratch='x'), 'scratch', 'temp_dir'),
    ],
)
def test_old_argument_name_error_states_new_name(call: Any, old: str, new: str) -> None:
    with pytest.raises(TypeError, match=f'`{old}` has another name now: `{new}`') as caught:
        call()
    assert isinstance(caught.value, UsageError)
    assert (caught.value.id, caught.value.object) == ('config-argument', old)
    assert caught.value.hint == f'write `{new}=...`'


def test_exception_in_begin_block_removes_parts(tmp_path: Path) -> None:
    place = tmp_path / 'out'
    with pytest.raises(KeyError, match='mine'), parts.begin(str(place)) as staging:
        parts.write_part([table(0, 30)], staging, 0, size_limit=150)
        assert len(tree(place)) > 1
        raise KeyError('mine')
    assert tree(place) == {}
    with parts.begin(str(place)) as staging:
        parts.commit([parts.write_part([table(0, 5)], staging, 0)], staging)
    assert ids(place) == [0, 1, 2, 3, 4]
    # What was committed stays.
    with pytest.raises(KeyError), parts.begin(str(place), mode='append') as staging:
        parts.commit([parts.write_part([table(5, 9)], staging, 0)], staging)
        raise KeyError('late')
    assert ids(place) == list(range(9))
    # A block that ends well may be committed later.
    with parts.begin(str(place), mode='append') as staging:
        manifest = parts.write_part([table(9, 10)], staging, 0)
    parts.commit([manifest], staging)
    assert ids(place) == list(range(10))


def test_failed_abort_does_not_hide_original_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(staging: parts.Staging) -> int:
        raise RemoteError('no store', 'store-down', staging.out)

    monkeypatch.setattr(parts, 'abort', failing)
    with pytest.warns(UserWarning, match=r'`parts\.gc` finds them: \[store-down\] no store'):
        with pytest.raises(KeyError, match='mine'), parts.begin(str(tmp_path / 'out')):
            raise KeyError('mine')


def test_part_written_in_batches_equals_whole_part(tmp_path: Path) -> None:
    whole = parts.begin(str(tmp_path / 'a'))
    parts.commit([parts.write_part([table(0, 100)], whole, 0, size_limit=300)], whole)
    pieces = parts.begin(str(tmp_path / 'b'))
    with parts.PartWriter(pieces, 0, size_limit=300) as writer:
        for start in range(0, 100, 7):
            rows = table(start, min(start + 7, 100))
            # The same columns as another engine has them.
            other = rows.cast(pa.schema([('id', pa.int64()), ('text', pa.large_string())]))
            assert writer.write(other if start % 2 else rows) == len(rows)
        parts.commit([writer.finish()], pieces)
    assert tree(tmp_path / 'a') == tree(tmp_path / 'b')


def test_unfinished_parts_are_removed(tmp_path: Path) -> None:
    place = tmp_path / 'out'
    staging = parts.begin(str(place))
    with parts.PartWriter(staging, 0, size_limit=100) as writer:
        writer.write(table(0, 50))
        assert tree(place)
    assert tree(place) == {}
    with pytest.raises(UsageError, match='finished'):
        writer.write(table(0, 1))

    class BrokenError(RuntimeError):
        pass

    def batches() -> Any:
        yield table(0, 50)
        raise BrokenError

    with pytest.raises(BrokenError):
        parts.write_part(batches(), staging, 0, size_limit=100)
    assert tree(place) == {}
    with pytest.raises(DataError, match='row 51 is null'):
        parts.write_part([table(0, 50), pa.table({'id': [1, None], 'text': ['', '']})], staging, 0)
    assert tree(place) == {}
    # Finished and never committed.
    parts.write_part([table(0, 50)], staging, 0)
    assert parts.gc(str(place)) == [], 'it is young'
    assert [entry.reason for entry in parts.gc(str(place), older_than=None)] == ['attempt']
    assert parts.abort(staging) == 1
    assert tree(place) == {} and parts.gc(str(place), older_than=None) == []


def test_mode_selects_error_append_or_overwrite(tmp_path: Path) -> None:
    place = tmp_path / 'out'

    def write(mode: str, start: int, end: int) -> None:
        staging = parts.begin(str(place), mode=mode)
        parts.commit([parts.write_part([table(start, end)], staging, 0)], staging)

    write('error', 0, 10)
    with pytest.raises(ConflictError, match='dest-exists'):
        parts.begin(str(place))
    write('append', 10, 15)
    assert ids(place) == list(range(15))
    one, two = (parts.begin(str(place), mode='append') for _ in range(2))
    first = parts.write_part([table(15, 20)], one, 0)
    second = parts.write_part([table(0, 5)], two, 0)
    parts.commit([first], one)
    with pytest.raises(ConflictError, match='dest-changed'):
        parts.commit([second], two)
    assert ids(place) == list(range(20))
    write('overwrite', 3, 6)
    assert ids(place) == [3, 4, 5]
    left = parts.gc(str(place), older_than=None, delete=True)
    assert {entry.reason for entry in left} == {'unlisted', 'attempt'}
    assert ids(place) == [3, 4, 5]
    with pytest.raises(UsageError, match='mode'):
        parts.begin(str(place), mode='ignore')


def test_invalid_part_options_are_errors(tmp_path: Path) -> None:
    staging = parts.begin(str(tmp_path / 'out'))
    cases: list[tuple[dict[str, Any], str]] = [
        ({'columns': ['nowhere']}, 'there is no column `nowhere`'),
        ({'columns': {'id': 'integer'}}, 'integer'),
        ({'columns': []}, 'no column to write'),
        ({'compression': 'lzma'}, 'lzma'),
        ({'hashes': ['sha255']}, 'sha255'),
        ({'key': 'id'}, 'have none'),
        ({'attempt': '../x'}, 'letters and digits'),
    ]
    for options, words in cases:
        with pytest.raises(ValueError, match=words):
            parts.write_part([table(0, 5)], staging, 0, **options)
        if 'attempt' not in options:
            with pytest.raises(ValueError, match=words):
                parts.PartWriter(staging, 0, **options).check(table(0, 5).slice(0, 0))
    parts.PartWriter(staging, 0, columns=['id']).check(table(0, 5).slice(0, 0))
    assert not (tmp_path / 'out').exists()
    with pytest.raises(ValueError, match='neither size nor hash'):
        parts.commit([], staging, verify='yes')
    with pytest.raises(ValueError, match='part-missing'):
        parts.commit([parts.write_part([table(0, 5)], staging, 1)], staging)
    with pytest.raises(ValueError, match='manifest-syntax'):
        parts.commit(['{}'], staging)
    with pytest.raises(ValueError, match='parquet'):
        parts.begin(str(tmp_path / 'out'), to='parquet')
    with pytest.raises(ValueError, match='pattern'):
        parts.begin(str(tmp_path / 'out'), shard_pattern='x-%d.tar')
    with pytest.raises(ValueError, match='pattern'):
        parts.begin(str(tmp_path / 'out'), to='webdataset', shard_pattern='x.tar')


def test_parts_can_be_committed_as_webdataset(tmp_path: Path) -> None:
    place = tmp_path / 'out'
    staging = parts.begin(str(place), to='webdataset')
    manifests = [
        parts.write_part([table(part * 5, part * 5 + 5)], staging, part, samples_per_shard=3)
        for part in range(2)
    ]
    parts.commit(manifests, staging)
    dataset = LocalDataset(str(place))
    samples = [dataset[number] for number in range(len(dataset))]
    assert [sample['__key__'] for sample in samples] == [
        f'{part:05}-{number:09}' for part in range(2) for number in range(5)
    ]
    assert [sample['id'] for sample in samples] == [str(number).encode() for number in range(10)]
    names = [f'shard-0000{part}-00000{shard}.tar' for part in range(2) for shard in range(2)]
    assert {*names, *(f'{name}.idx' for name in names), 'index.json'} == set(tree(place))
    with pytest.raises(DataError, match='sample-key-twice'):
        again = parts.begin(str(place), to='webdataset', mode='append')
        parts.write_part([table(0, 5), table(4, 6)], again, 0, key='id', columns=['text'])


def test_parts_can_be_committed_to_s3(tmp_path: Path) -> None:
    bucket = Bucket()
    try:
        settings = bucket.environment
        place = 's3://bucket/sets/tokens'

        def begin(mode: str = 'error') -> parts.Staging:
            return parts.begin(place, mode=mode, storage_options=settings)

        staging = begin()
        assert 'hush' not in repr(staging)
        options: dict[str, Any] = {'size_limit': 200, 'temp_dir': str(tmp_path)}
        manifests = [
            parts.write_part([table(part * 10, part * 10 + 10)], staging, part, **options)
            for part in range(2)
        ]
        # An attempt too many, and one that fails.
        parts.write_part([table(0, 10)], staging, 0, **options)
        with pytest.raises(DataError):
            null = pa.array([None], pa.int64())
            rows = [table(0, 100), pa.table({'id': null, 'text': ['']})]
            parts.write_part(rows, staging, 1, **options)
        done = parts.commit(manifests, staging, parts=2, verify='hash')
        assert len(bucket.objects) == done.shards + 1, sorted(bucket.objects)
        with pytest.raises(ConflictError):
            begin()
        staging = begin('append')
        more = parts.write_part([table(20, 25)], staging, 0, **options)
        assert parts.commit([more], staging).total_samples == 25
        for key, data in bucket.objects.items():
            (tmp_path / 'copy').mkdir(exist_ok=True)
            (tmp_path / 'copy' / key.rpartition('/')[2]).write_bytes(data)
        assert ids(tmp_path / 'copy') == list(range(25))
        # What a dead driver has left: its age is unknown.
        parts.write_part([table(0, 10)], begin('append'), 0, **options)
        with pytest.raises(UnsupportedError):
            parts.gc(place, storage_options=settings)
        left = parts.gc(place, older_than=None, delete=True, storage_options=settings)
        assert left and {entry.reason for entry in left} == {'unlisted'}
        assert (
            len(bucket.objects)
            == len(json.loads(bucket.objects['sets/tokens/index.json'])['shards']) + 1
        )
        # An object that was changed is noticed by its tag.
        staging = begin('append')
        last = parts.write_part([table(25, 30)], staging, 0, **options)
        name = json.loads(last)['shards'][0]['files'][0]['name']
        whole = bucket.objects[f'sets/tokens/{name}']
        bucket.objects[f'sets/tokens/{name}'] = whole[:-1] + b'x'
        with pytest.raises(DataError, match='part-file-hash'):
            parts.commit([last], staging)
        assert not list(tmp_path.glob('tmp-*'))
    finally:
        bucket.close()


def test_write_part_leaks_no_threads_or_files(tmp_path: Path) -> None:
    def opened() -> set[str]:
        paths = set()
        for each in os.listdir('/proc/self/fd'):
            # The listing itself is closed again.
            with contextlib.suppress(FileNotFoundError):
                paths.add(os.readlink(f'/proc/self/fd/{each}'))
        return paths

    staging = parts.begin(str(tmp_path / 'out'))
    parts.write_part([table(0, 10)], staging, 0)
    threads = set(os.listdir('/proc/self/task'))
    python_threads = threading.active_count()
    for part in range(1, 4):
        parts.write_part([table(0, 1000)], staging, part, size_limit=1000, compression='zstd:3')
    assert set(os.listdir('/proc/self/task')) <= threads, 'no thread'
    assert threading.active_count() == python_threads
    assert not [path for path in opened() if str(tmp_path) in path], 'no file'


@pytest.mark.parametrize('to', ['mds', 'webdataset'])
def test_committed_table_is_read_shard_by_shard(tmp_path: Path, to: str) -> None:
    from shardmill import _tables

    place = tmp_path / 'out'
    staging = parts.begin(str(place), to=to)
    part = parts.write_part([table(0, 30)], staging, 0, samples_per_shard=10)
    parts.commit([part], staging)
    found, shards = _tables.open_table(str(place))
    batches = [batch for shard in shards for batch in _tables.read_shard(found, shard)]
    column = next(name for name in found.columns if name.startswith('id'))
    values = [value for batch in batches for value in batch.column(column).to_pylist()]
    assert [int(value) for value in values] == list(range(30))


def test_multidimensional_arrays_in_tables_are_an_error(tmp_path: Path) -> None:
    import numpy as np

    from shardmill import _tables

    with MDSWriter(out=str(tmp_path), columns={'a': 'ndarray:float32'}) as out:
        out.write({'a': np.zeros((2, 3), np.float32)})
    found, shards = _tables.open_table(str(tmp_path))
    with pytest.raises(UnsupportedError, match='the array of sample 0 has 2 dimensions') as caught:
        list(_tables.read_shard(found, shards[0]))
    assert caught.value.object == 'a'


@pytest.mark.parametrize('to', ['mds', 'webdataset'])
def test_unsafe_paths_in_index_are_errors(tmp_path: Path, to: str) -> None:
    from shardmill import _tables

    place = tmp_path / 'deep' / 'out'
    staging = parts.begin(str(place), to=to)
    parts.commit([parts.write_part([table(0, 10)], staging, 0)], staging)
    index = json.loads((place / 'index.json').read_text())
    (tmp_path / 'evil').write_bytes(b'not yours')
    for name in ['../../evil', '/etc/passwd', 'a/../../b']:
        index['shards'][0]['raw_data']['basename'] = name
        (place / 'index.json').write_text(json.dumps(index, sort_keys=True))
        with pytest.raises(DataError, match=r'\[path-'):
            _tables.open_table(str(place))
    del index['shards'][0]['raw_data']
    (place / 'index.json').write_text(json.dumps(index, sort_keys=True))
    with pytest.raises(DataError, match=r'index-(missing-field|syntax)'):
        _tables.open_table(str(place))
    assert (tmp_path / 'evil').read_bytes() == b'not yours'


def test_importing_parts_loads_no_engine() -> None:
    program = (
        'import sys, shardmill, shardmill.parts\n'
        "assert not {'pyspark', 'ray', 'pyarrow', 'numpy', 'torch'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, '-c', program], check=True)


def test_out_of_range_options_are_errors(tmp_path: Path) -> None:
    staging = parts.begin(str(tmp_path / 'out'))
    table = pa.table({'id': [1]})
    cases: list[tuple[dict[str, Any], str]] = [
        ({'part_id': -1}, '`part_id` must be .*, but got: -1'),
        ({'size_limit': -1}, '`size_limit` must be .*, but got: -1'),
        ({'size_limit': '1k'}, "`size_limit` must be .*, but got: .*'1k'"),
        ({'samples_per_shard': 0}, '`samples_per_shard` must be .*, but got: 0'),
        ({'samples_per_shard': 'x'}, "`samples_per_shard` must be .*, but got: .*'x'"),
        ({'samples_per_shard': '-1'}, "`samples_per_shard` must be .*, but got: .*'-1'"),
    ]
    for told, words in cases:
        with pytest.raises(UsageError, match=words):
            parts.write_part([table], staging, **{'part_id': 0, **told})
    manifests = [parts.write_part([table], staging, part) for part in range(3)]
    with pytest.raises(UsageError, match='there are 3 parts, and there have to be 2'):
        parts.commit(manifests, staging, parts=2)
    with pytest.raises(UsageError, match=r'`parts` must be .*, but got: -1'):
        parts.commit(manifests, staging, parts=-1)


def test_options_accept_command_line_values(tmp_path: Path) -> None:
    staging = parts.begin(str(tmp_path / 'out'))
    table = pa.table({'id': list(range(3000))})
    told: dict[str, Any] = {
        'compression': 'none',
        'hashes': 'sha256',
        'size_limit': '1MiB',
        'samples_per_shard': '1k',
    }
    parts.commit([parts.write_part([table], staging, 0, **told)], staging)
    shards = json.loads((tmp_path / 'out' / 'index.json').read_text())['shards']
    assert [shard['samples'] for shard in shards] == [1000, 1000, 1000]
    assert {shard['size_limit'] for shard in shards} == {1 << 20}
    assert {shard['compression'] for shard in shards} == {None}
    assert list(shards[0]['raw_data']['hashes']) == ['sha256']


def test_hints_do_not_mention_command_line_options(tmp_path: Path) -> None:
    staging = parts.begin(str(tmp_path / 'out'))
    with pytest.raises(ShardmillError, match='row 1 is null') as caught:
        parts.write_part([pa.table({'id': [1, None]})], staging, 0)
    assert '--' not in str(caught.value)
    assert caught.value.hint is None


@pytest.mark.parametrize('to', ['mds', 'webdataset'])
def test_star_keeps_all_other_columns_of_a_part(tmp_path: Path, to: str) -> None:
    table = pa.table({'id': [1], 'text': ['a'], '*': ['b']})
    staging = parts.begin(str(tmp_path / 'out'), to=to)
    columns = {'id': 'int', '*': None, '"*"': 'str'}
    manifest = parts.write_part([table], staging, 0, columns=columns)
    assert all(f'"{name}' in manifest for name in ('*', 'id', 'text'))
    with pytest.raises(ShardmillError, match='all other columns'):
        parts.write_part([table], staging, 1, columns={'*': 'json'})
