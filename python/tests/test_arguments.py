"""Arguments that are checked when an object is made: the error names the argument, the value and what is allowed."""

from __future__ import annotations

import pathlib
import tarfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.samples import BATCH, SAMPLES

from shardmill import (
    CacheClient,
    CSVWriter,
    FileDataset,
    FileStream,
    JSONWriter,
    LocalDataset,
    MDSWriter,
    Stream,
    StreamingDataLoader,
    StreamingDataset,
    XSVWriter,
    parts,
)
from shardmill.base._arguments import public_location
from shardmill.base.shuffle import get_shuffle
from shardmill.base.storage.download import CloudDownloader
from shardmill.base.storage.upload import CloudUploader
from shardmill.base.util import (
    bytes_to_int,
    merge_index,
    number_abbrev_to_int,
    retry,
    wait_for_file_to_exist,
)
from shardmill.base.world import World
from shardmill.errors import ArgumentTypeError, ShardmillError, UsageError

if TYPE_CHECKING:
    from pathlib import Path


def dataset(data: Path, **options: Any) -> StreamingDataset:
    return StreamingDataset(
        **{'local': str(data), 'batch_size': BATCH, 'num_canonical_nodes': 1, **options}
    )


@pytest.mark.parametrize(
    ('name', 'value', 'error'),
    [
        ('batch_size', 2.0, TypeError),
        ('batch_size', '2', TypeError),
        ('batch_size', True, TypeError),
        ('batch_size', 0, ValueError),
        ('num_canonical_nodes', '2', TypeError),
        ('num_canonical_nodes', 1.5, TypeError),
        ('shuffle_seed', 1.0, TypeError),
        ('shuffle_seed', None, TypeError),
        ('shuffle_block_size', '1000', TypeError),
        ('predownload', '8', TypeError),
        ('predownload', 8.5, ValueError),
        ('sampling_granularity', 0, ValueError),
        ('sampling_granularity', 'x', TypeError),
        ('replication', '2', TypeError),
        ('replication', 0, ValueError),
        ('threads', 1.5, TypeError),
        ('rank', '0', TypeError),
        ('epoch_size', 1.5, ValueError),
        ('epoch_size', float('nan'), ValueError),
        ('epoch_size', -1, ValueError),
        ('epoch_size', '-1', ValueError),
        ('epoch_size', '-1k', ValueError),
        ('epoch_size', '0.0001k', ValueError),
        ('epoch_size', 'many', ValueError),
        ('epoch_size', [1], TypeError),
        ('cache_limit', '-5mb', ValueError),
        ('cache_limit', 0.5, ValueError),
        ('cache_limit', float('inf'), ValueError),
        ('cache_limit', True, TypeError),
        ('cache_limit', 'plenty', ValueError),
        ('cache_limit', [1], TypeError),
        ('download_retry', '2', TypeError),
        ('download_retry', 1.5, ValueError),
        ('download_timeout', '60', TypeError),
        ('download_timeout', 0, ValueError),
        ('download_timeout', float('inf'), ValueError),
        ('shuffle', 'no', TypeError),
        ('shuffle', 2, ValueError),
        ('keep_zip', 'yes', TypeError),
        ('allow_unsafe_types', 'false', TypeError),
        ('shuffle_algo', 'py9', ValueError),
        ('shuffle_algo', 'py9', KeyError),
        ('shuffle_algo', 5, TypeError),
        ('partition_algo', 'loose', KeyError),
        ('batching_method', 'batched', ValueError),
        ('sampling_method', None, TypeError),
        ('validate_hash', 'crc12', ValueError),
        ('validate_hash', 5, TypeError),
        ('split', 0, TypeError),
        ('local', 5, TypeError),
        ('local', b'data', TypeError),
        ('remote', 5, TypeError),
        ('stream_name', None, TypeError),
        ('stream_config', [1], TypeError),
        ('streams', ['path'], TypeError),
        ('streams', 'path', TypeError),
    ],
)
def test_invalid_dataset_arguments_are_errors(
    data: Path, name: str, value: Any, error: type[Exception]
) -> None:
    options: dict[str, Any] = {'local': None} if name == 'streams' else {}
    if name == 'rank':
        options['world_size'] = 2
    with pytest.raises(error) as raised:
        dataset(data, **{**options, name: value})
    assert isinstance(raised.value, UsageError)
    assert name in str(raised.value)
    assert (raised.value.object or '').startswith(name)
    shown = value[0] if name == 'streams' and isinstance(value, list) else value
    assert str(shown) in str(raised.value)
    assert str(raised.value).count('must be') == 1 or name == 'epoch_size'


@pytest.mark.parametrize(
    ('options', 'samples'),
    [
        ({'batch_size': np.int64(BATCH)}, SAMPLES),
        ({'predownload': 64.0}, SAMPLES),
        ({'sampling_granularity': np.float64(1.0)}, SAMPLES),
        ({'shuffle_seed': np.uint32(3), 'shuffle': np.bool_(True)}, SAMPLES),
        ({'shuffle': 1, 'keep_zip': None, 'allow_unsafe_types': None}, SAMPLES),
        ({'shuffle': None, 'download_retry': None, 'download_timeout': None}, SAMPLES),
        ({'replication': np.int64(1), 'shuffle_block_size': np.int64(1 << 18)}, SAMPLES),
        ({'epoch_size': '1_0'}, 10),
        ({'epoch_size': '0.01k'}, 10),
        ({'epoch_size': 10.0}, 10),
        ({'epoch_size': np.int64(10)}, 10),
        ({'epoch_size': 0}, SAMPLES),
        ({'epoch_size': '0'}, SAMPLES),
        ({'cache_limit': 1e9 / 3}, SAMPLES),
        ({'cache_limit': np.int64(10**9)}, SAMPLES),
        ({'cache_limit': 0}, SAMPLES),
        ({'cache_limit': '1_000mb'}, SAMPLES),
        ({'validate_hash': ''}, SAMPLES),
        ({'remote': ''}, SAMPLES),
        ({'split': ''}, SAMPLES),
    ],
    ids=str,
)
def test_dataset_accepts_values_that_streaming_accepts(
    data: Path, options: dict[str, Any], samples: int
) -> None:
    assert len(list(dataset(data, **options))) == samples


def test_pathlib_paths_are_accepted(data: Path, tmp_path: Path) -> None:
    local = pathlib.Path(data)
    assert len(list(dataset(data, local=local))) == SAMPLES
    assert len(LocalDataset(local)) == SAMPLES
    stream = Stream(remote=local, local=tmp_path / 'local')
    assert len(list(StreamingDataset(streams=[stream], batch_size=BATCH))) == SAMPLES
    with MDSWriter(columns={'a': 'int'}, out=tmp_path / 'out') as writer:
        writer.write({'a': 1})
    assert LocalDataset(tmp_path / 'out')[0] == {'a': 1}


def test_cache_limit_error_states_sufficient_minimum(tmp_path: Path) -> None:
    """And with that figure the dataset opens."""
    with MDSWriter(
        columns={'a': 'bytes'}, out=str(tmp_path / 'data'), size_limit=20_000, compression='zstd'
    ) as writer:
        for number in range(100):
            writer.write({'a': bytes([number]) * 1000})
    for limit in (1, 10_000, 30_000, 70_000):
        options: dict[str, Any] = {'remote': str(tmp_path / 'data'), 'batch_size': 1}
        options['local'] = str(tmp_path / f'local-{limit}')
        with pytest.raises(ValueError, match=r'(?i)cache.*Increase the `cache_limit`') as raised:
            StreamingDataset(cache_limit=limit, **options)
        assert isinstance(raised.value, UsageError)
        assert raised.value.id == 'config-cache-limit'
        assert str(raised.value).count('at least') == 1
        least = int(str(raised.value).split('at least ')[1].split()[0])
        assert least > limit
        assert len(list(StreamingDataset(cache_limit=least, **options))) == 100
        with pytest.raises(ValueError, match='cache_limit'):
            StreamingDataset(cache_limit=least - 1, **options)


@pytest.mark.parametrize(
    ('name', 'value', 'error'),
    [
        ('proportion', -1, ValueError),
        ('proportion', '0.5', TypeError),
        ('repeat', float('nan'), ValueError),
        ('choose', 1.5, ValueError),
        ('choose', '10', TypeError),
        ('download_retry', -1, ValueError),
        ('download_timeout', 0, ValueError),
        ('keep_zip', 'no', TypeError),
        ('validate_hash', 'crc12', ValueError),
        ('remote', 5, TypeError),
        ('local', 5, TypeError),
        ('split', 5, TypeError),
    ],
)
def test_invalid_stream_arguments_are_errors(
    name: str, value: Any, error: type[Exception], tmp_path: Path
) -> None:
    with pytest.raises(error, match=f'`{name}` must be .* but got: ') as raised:
        Stream(**{'local': str(tmp_path), name: value})
    assert isinstance(raised.value, UsageError)
    assert raised.value.object == name


def test_cache_limit_is_accepted_for_unindexed_tar_files(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / 'a-000000.tar', 'w') as tar:
        for number in range(4):
            tar.addfile(tarfile.TarInfo(f'{number}.txt'))
    limited = StreamingDataset(local=str(tmp_path), batch_size=1, cache_limit='1gb')
    assert len(list(limited)) == 4


def test_zero_total_proportion_is_an_error(data: Path) -> None:
    streams = [Stream(local=str(data), proportion=0)]
    with pytest.raises(ValueError, match='`proportion` is 0'):
        StreamingDataset(streams=streams, batch_size=BATCH)


@pytest.mark.parametrize(
    ('name', 'value', 'error'),
    [
        ('batch_size', 2.0, TypeError),
        ('batch_size', '2', TypeError),
        ('batch_size', 0, ValueError),
        ('num_workers', 1.5, TypeError),
        ('num_workers', -1, ValueError),
        ('drop_last', 'no', TypeError),
        ('pin_memory', 'no', TypeError),
        ('timeout', -1, ValueError),
        ('collate_fn', 5, TypeError),
        ('prefetch_factor', 0, ValueError),
        ('dataset', 5, TypeError),
    ],
)
def test_invalid_loader_arguments_are_errors(
    data: Path, name: str, value: Any, error: type[Exception]
) -> None:
    with pytest.raises(error, match=f'`{name}` must be .* but got: '):
        StreamingDataLoader(**{'dataset': dataset(data), name: value})


def test_loader_accepts_numpy_integers(data: Path) -> None:
    loader = StreamingDataLoader(dataset(data), batch_size=np.int64(BATCH))  # type: ignore[arg-type]
    assert sum(len(batch['number']) for batch in loader) == SAMPLES


@pytest.mark.parametrize('state', [None, 5, 'state', []])
def test_load_state_dict_rejects_non_dict_values(data: Path, state: Any) -> None:
    for loading in (dataset(data), StreamingDataLoader(dataset(data), batch_size=BATCH)):
        with pytest.raises(TypeError, match='`obj` must be a StreamingDataset state dict'):
            loading.load_state_dict(state)


MDS: dict[str, Any] = {'columns': {'a': 'int'}}


@pytest.mark.parametrize(
    ('name', 'value', 'error'),
    [
        ('columns', None, TypeError),
        ('columns', {}, ValueError),
        ('columns', [('a', 'int')], TypeError),
        ('columns', {1: 'int'}, TypeError),
        ('out', None, TypeError),
        ('out', '', ValueError),
        ('out', ('a', 'b', 'c'), ValueError),
        ('out', ('a', None), TypeError),
        ('keep_local', 'no', TypeError),
        ('compression', 1, TypeError),
        ('compression', 'zst', ValueError),
        ('hashes', 'md5', TypeError),
        ('hashes', ['md5', 'md5'], ValueError),
        ('hashes', [5], TypeError),
        ('size_limit', -1, ValueError),
        ('size_limit', 0.5, ValueError),
        ('size_limit', '0.0001kb', ValueError),
        ('size_limit', 'much', ValueError),
        ('jobs', 0, ValueError),
        ('jobs', '2', TypeError),
        ('max_workers', '2', TypeError),
        ('max_workers', 0, ValueError),
        ('retry', 0, ValueError),
        ('retry', '2', TypeError),
        ('exist_ok', 'no', TypeError),
        ('progress_bar', 'no', TypeError),
    ],
)
def test_invalid_writer_arguments_are_errors(
    name: str, value: Any, error: type[Exception], tmp_path: Path
) -> None:
    out = tmp_path / 'out'
    out.mkdir()
    (out / 'precious').write_text('x')
    for make, extra in ((MDSWriter, {}), (JSONWriter, {}), (XSVWriter, {'separator': '|'})):
        options = {**MDS, 'out': str(out), 'exist_ok': True, **extra, name: value}
        with pytest.raises(error, match=f'`{name}') as raised:
            make(**options)
        assert isinstance(raised.value, UsageError)
        assert (out / 'precious').exists()


@pytest.mark.parametrize('encoding', ['bool', 'int:8', 'foo:8', 'ndarray:x', 'ndarray:int8:x', 5])
@pytest.mark.parametrize('error', [TypeError, ValueError, KeyError, AttributeError, AssertionError])
def test_unknown_encoding_is_an_error(
    encoding: Any, error: type[Exception], tmp_path: Path
) -> None:
    out = tmp_path / 'out'
    out.mkdir()
    (out / 'precious').write_text('x')
    for make in (MDSWriter, JSONWriter, CSVWriter):
        with pytest.raises(error, match=r"column 'a'.*none of the encodings.*int"):
            make(columns={'a': encoding}, out=str(out), exist_ok=True)
    assert (out / 'precious').exists()


def test_invalid_newline_or_separator_is_an_error(tmp_path: Path) -> None:
    for make, options in (
        (JSONWriter, {'newline': 'x'}),
        (JSONWriter, {'newline': ''}),
        (JSONWriter, {'newline': 1}),
        (CSVWriter, {'newline': ''}),
        (CSVWriter, {'newline': ','}),
        (XSVWriter, {'separator': ''}),
        (XSVWriter, {'separator': 1}),
        (XSVWriter, {'separator': '\n'}),
    ):
        with pytest.raises(ValueError, match=r'`(newline|separator)` must be'):
            make(**{**MDS, 'out': str(tmp_path), **options})


def test_writer_accepts_values_that_streaming_accepts(tmp_path: Path) -> None:
    accepted: list[dict[str, Any]] = [
        {'size_limit': 100.5},
        {'size_limit': np.int64(100)},
        {'size_limit': '0'},
        {'size_limit': None},
        {'size_limit': '1_0kb'},
        {'hashes': ('md5', 'sha1')},
        {'hashes': ''},
        {'hashes': None, 'compression': ''},
        {'keep_local': None, 'max_workers': 2.0, 'retry': 2.0, 'progress_bar': None},
    ]
    for place, options in enumerate(accepted):
        out = str(tmp_path / str(place))
        with MDSWriter(**{**MDS, **options, 'out': out}) as writer:
            writer.write({'a': place})
        assert LocalDataset(out)[0] == {'a': place}


def test_invalid_arguments_of_other_apis_are_errors(tmp_path: Path, data: Path) -> None:
    (tmp_path / 'file').write_text('x')
    tree = str(tmp_path)
    staging = parts.begin(str(tmp_path / 'parts'))
    calls: list[tuple[str, Any]] = [
        ('local', lambda: LocalDataset(5)),  # type: ignore[arg-type]
        ('split', lambda: LocalDataset(str(data), 5)),  # type: ignore[arg-type]
        ('include', lambda: FileStream(local=tree, include='*.jpg')),
        ('exclude', lambda: FileStream(local=tree, exclude=5)),  # type: ignore[arg-type]
        ('exclude', lambda: FileStream(local=tree, exclude=[5])),  # type: ignore[list-item]
        ('yields', lambda: FileStream(local=tree, yields='x')),
        ('relist', lambda: FileStream(local=tree, relist='no')),  # type: ignore[arg-type]
        ('hold_batches', lambda: FileDataset(local=tree, hold_batches=1.5)),  # type: ignore[arg-type]
        ('transform', lambda: FileDataset(local=tree, transform=5)),  # type: ignore[arg-type]
        ('batch_size', lambda: FileDataset(local=tree, batch_size='1')),  # type: ignore[arg-type]
        ('remote', lambda: CacheClient(None)),  # type: ignore[arg-type]
        ('quota', lambda: CacheClient(tree, quota=-1)),
        ('quota', lambda: CacheClient(tree, quota='0.0001kb')),
        ('timeout', lambda: CacheClient(tree, timeout='5')),  # type: ignore[arg-type]
        ('out', lambda: merge_index(5)),  # type: ignore[call-overload]
        ('index_file_urls', lambda: merge_index([5], tree)),
        ('index_file_urls', lambda: merge_index([('a',)], tree)),
        ('keep_local', lambda: merge_index(tree, keep_local='no')),  # type: ignore[call-overload]
        ('download_timeout', lambda: merge_index(tree, download_timeout=0)),
        ('num_attempts', lambda: retry(num_attempts=1.5)),  # type: ignore[call-overload]
        ('sample_id', lambda: dataset(data).get_item(1.5)),  # type: ignore[arg-type]
        ('sample_id', lambda: LocalDataset(str(data)).get_item('1')),  # type: ignore[arg-type]
        ('shard_id', lambda: dataset(data).prepare_shard('x')),  # type: ignore[arg-type]
        ('shard_id', lambda: dataset(data).evict_shard(1.5)),  # type: ignore[arg-type]
        ('stream_id', lambda: dataset(data).resample_streams(0, 'x')),  # type: ignore[arg-type]
        ('next_epoch', lambda: setattr(dataset(data), 'next_epoch', 'x')),
        ('num_samples', lambda: dataset(data).state_dict(-5, True)),
        ('num_samples', lambda: dataset(data).state_dict('5', True)),  # type: ignore[arg-type]
        ('decode', lambda: dataset(data, decode=5)),
        ('num_nodes', lambda: World('1', 1, 1, 0)),  # type: ignore[arg-type]
        ('ranks_per_node', lambda: World(1, 0, 1, 0)),
        ('replication', lambda: World(1, 1, 1, 0).replicate('2')),  # type: ignore[arg-type]
        ('algo', lambda: get_shuffle('x', np.array([1]), 1, 1, 1)),
        ('filename', lambda: wait_for_file_to_exist(5, 1, 1, 'x')),  # type: ignore[arg-type]
        ('out', lambda: CloudUploader.get(5)),  # type: ignore[arg-type]
        ('remote_dir', lambda: CloudDownloader.get(5)),  # type: ignore[arg-type]
        ('out', lambda: parts.begin(5)),  # type: ignore[arg-type]
        ('to', lambda: parts.begin(tree, to=5)),  # type: ignore[arg-type]
        ('staging', lambda: parts.PartWriter('x', 0)),  # type: ignore[arg-type]
        ('compression', lambda: parts.PartWriter(staging, 0, compression=5)),  # type: ignore[arg-type]
        ('hashes', lambda: parts.PartWriter(staging, 0, hashes=[5])),  # type: ignore[list-item]
        ('columns', lambda: parts.PartWriter(staging, 0, columns=5)),  # type: ignore[arg-type]
        ('manifests', lambda: parts.commit('text', staging)),
        ('older_than', lambda: parts.gc(tree, older_than='x')),  # type: ignore[arg-type]
        ('delete', lambda: parts.gc(tree, delete='no')),  # type: ignore[arg-type]
    ]
    for name, call in calls:
        with pytest.raises(ValueError, match=f'`{name}') as raised:
            call()
        assert isinstance(raised.value, ShardmillError), name
    with pytest.raises(ValueError, match='indexed by'):
        dataset(data)[[True, False]]


def test_sizes_accept_digit_underscores() -> None:
    assert bytes_to_int('1_000') == bytes_to_int('1_000b') == 1000
    assert number_abbrev_to_int('1_000') == number_abbrev_to_int('0_001k') == 1000
    for given in ('_1', '1_', '1__0', '_'):
        for parse in (bytes_to_int, number_abbrev_to_int):
            with pytest.raises(ValueError, match='Unsupported value/suffix'):
                parse(given)


# What objects and errors show.


def test_repr_shows_key_settings(data: Path, tmp_path: Path) -> None:
    local = str(tmp_path / 'local')
    options: dict[str, Any] = {'remote': str(data), 'local': local, 'shuffle': True}
    shown = repr(StreamingDataset(batch_size=BATCH, **options))
    for part in (
        "StreamingDataset(remote='",
        f'local={local!r}',
        f'samples={SAMPLES}',
        'shards=',
        f'batch_size={BATCH}',
        'shuffle=True',
        "shuffle_algo='py1e'",
        "columns=['data', 'number', 'short', 'text', 'vector']",
        'next_epoch=0',
    ):
        assert part in shown
    both = [Stream(local=str(data)), Stream(remote=str(data), local=str(tmp_path / 'other'))]
    mixed = repr(StreamingDataset(streams=both, batch_size=BATCH))
    assert mixed.startswith(f'StreamingDataset(streams=2, samples={2 * SAMPLES}, ')
    assert repr(LocalDataset(data)) == (
        f'LocalDataset(local={str(data)!r}, samples={SAMPLES}, '
        f"columns=['data', 'number', 'short', 'text', 'vector'])"
    )
    ranks = StreamingDataset(local=str(data), batch_size=BATCH, rank=1, world_size=4)
    assert ', rank=1, world_size=4, ' in repr(ranks)
    assert repr(Stream(local='/x', split='train', repeat=2)) == (
        "Stream(local='/x', split='train', repeat=2)"
    )
    # Of an object that is not whole yet, as a debugger may show it.
    assert repr(StreamingDataset.__new__(StreamingDataset)) == 'StreamingDataset(streams=0)'
    assert repr(LocalDataset.__new__(LocalDataset)) == 'LocalDataset()'


@pytest.mark.parametrize(
    ('location', 'shown'),
    [
        ('s3://bucket/train', 's3://bucket/train'),
        ('s3://key:secret@bucket/a@b', 's3://bucket/a@b'),
        ('s3://bucket/a@b', 's3://bucket/a@b'),
        ('s3://key:sec/ret@bucket/train', 's3://bucket/train'),
        ('https://u:secret@host:8080/a?sig=secret#secret', 'https://host:8080/a'),
        ('https://host?sig=secret', 'https://host'),
        ('/data/a?b#c', '/data/a?b#c'),
        ('dbfs:/Volumes/a', 'dbfs:/Volumes/a'),
    ],
)
def test_locations_are_shown_without_secrets(location: str, shown: str) -> None:
    assert public_location(location) == shown
    assert repr(Stream(remote=location, local='/x')) == f"Stream(remote={shown!r}, local='/x')"
    with pytest.raises(ArgumentTypeError) as raised:
        Stream(remote='/x', local='/x', keep_zip=location)  # type: ignore[arg-type]
    assert 'secret' not in str(raised.value)
    assert 'ret@' not in str(raised.value)
