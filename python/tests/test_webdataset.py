"""Streams of WebDataset: what the original reader reads, in the order and with the cache of every other stream."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import webdataset
from support.apart import apart
from support.samples import BATCH, SAMPLES, numbers, same, tar_value, write, write_tars

from shardmill import LocalDataset, Stream, StreamingDataLoader, StreamingDataset
from shardmill.base.compression import compress
from shardmill.errors import DataError, MissingIndexError, ShardmillError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from support.store import Store

FIXTURES = Path(__file__).parents[2] / 'fixtures' / 'webdataset-1.0.2'
EXPECTED = sorted(FIXTURES.glob('*.expected.json'))


def name_of(path: Path) -> str:
    """The shard that a file of expectations is about."""
    return path.name[: -len('.expected.json')]


def write_tar(path: Path, samples: Iterable[tuple[str, dict[str, bytes]]]) -> None:
    """A shard by Python's own `tarfile`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, 'w') as tar:
        for key, fields in samples:
            for field, data in fields.items():
                info = tarfile.TarInfo(f'{key}.{field}')
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))


def original(path: Path, *decoders: Any) -> list[dict[str, Any]]:
    """What `webdataset` reads from a shard, without what it says of the file."""
    pipeline = webdataset.WebDataset(str(path), shardshuffle=False)
    samples = [dict(sample) for sample in (pipeline.decode(*decoders) if decoders else pipeline)]
    for sample in samples:
        for about in ('__url__', '__local_path__'):
            sample.pop(about, None)
    return samples


# Values.


@pytest.mark.parametrize('expected', EXPECTED, ids=name_of)
def test_fixtures_match_webdataset_results(expected: Path, tmp_path: Path) -> None:
    wanted = json.loads(expected.read_text())
    shutil.copy(FIXTURES / f'{name_of(expected)}.tar', tmp_path)
    if 'unreadable' in wanted and 'refused' not in wanted:
        # What the original writes and does not read again.
        if 'duplicate file name' in wanted['unreadable']:
            with pytest.raises(DataError) as twice:
                StreamingDataset(local=str(tmp_path), batch_size=1)
            assert twice.value.id == 'tar-duplicate'
            return
        assert len(StreamingDataset(local=str(tmp_path), batch_size=1)) > 0
        return
    if 'refused' in wanted or not wanted.get('samples'):
        with pytest.raises((ShardmillError, RuntimeError)) as caught:
            StreamingDataset(local=str(tmp_path), batch_size=1)
        if 'refused' in wanted:
            assert isinstance(caught.value, DataError)
            assert caught.value.id == wanted['refused']
        return
    dataset = StreamingDataset(local=str(tmp_path), batch_size=2)
    samples = [
        {'__key__': key, **{field: bytes.fromhex(data) for field, data in fields.items()}}
        for key, fields in wanted['samples']
    ]
    assert list(dataset) == samples
    assert [dataset[place] for place in range(len(samples))] == samples
    local = LocalDataset(str(tmp_path))
    assert [local[place] for place in range(len(local))] == samples


def test_decoders_match_webdataset(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    numbers = io.BytesIO()
    np.savez(numbers, a=np.arange(3), b=np.ones((2, 2), np.float32))
    array = io.BytesIO()
    np.save(array, rng.standard_normal((3, 4)))
    fields = {
        'txt': 'Grüße'.encode(),
        'text': b'',
        'transcript': b'spoken',
        'cls': b' 12\n',
        'index': b'-3',
        'json': b'{"b": [1, 2.5, null, NaN], "a": "\xc3\xa9"}',
        'seg.json': b'[]',
        'npy': array.getvalue(),
        'npz': numbers.getvalue(),
        'class': b'7',
        'html': b'<p>',
        'bin': b'\x00\xff',
        'json.gz': gzip.compress(b'{"zipped": true}'),
        'bin.gz': gzip.compress(b'zipped'),
        'pth.x': b'bytes',
    }
    write_tar(tmp_path / 'a.tar', [('one', fields)])
    (wanted,) = original(tmp_path / 'a.tar', lambda key, data: None)
    (found,) = StreamingDataset(local=str(tmp_path), batch_size=1, decode=True)
    # What the original decompresses, it also calls by another name.
    assert {name.removesuffix('.gz') for name in wanted} == {
        name.removesuffix('.gz') for name in found
    }
    for name, value in wanted.items():
        own = found.get(name, found.get(f'{name}.gz'))
        if isinstance(value, np.ndarray):
            assert own.dtype == value.dtype
            assert np.array_equal(own, value)
            own[0] = 1
        elif name == 'npz':
            assert own.keys() == value.keys()
            assert all(np.array_equal(own[key], value[key]) for key in value)
        elif name == 'json':
            assert str(own) == str(value)
        else:
            assert own == value, name
            assert type(own) is type(value), name


ARRAYS = [
    np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1),
    np.asfortranarray(np.ones((3, 2), np.float32)),
    np.arange(6, dtype='>i2').reshape(2, 3),
    np.array(['one', 'zwölf']),
    np.array([b'a', b'bc']),
    np.array([1 + 2j]),
    np.array(['2026-01-02T03:04:05', 'NaT'], 'datetime64[ns]'),
    np.array([7], 'm8[25s]'),
    np.array([(1, [2, 3], 'x')], [('é', '<i4'), ('b', '>f8', (2,)), ('c', [('d', '<U1')])]),
    np.zeros(2, np.dtype([('a', 'i1'), ('b', '<f8')], align=True)),
    np.array(3, '>f4'),
    np.zeros((0, 3), 'S4'),
]


@pytest.mark.parametrize('array', ARRAYS, ids=lambda array: f'{array.dtype.kind}{array.ndim}')
def test_decoded_arrays_equal_numpy(array: Any, tmp_path: Path) -> None:
    numbers, archive = io.BytesIO(), io.BytesIO()
    np.save(numbers, array)
    np.savez(archive, a=array, plain=np.arange(3))
    fields = {'npy': numbers.getvalue(), 'npz': archive.getvalue()}
    write_tar(tmp_path / 'a.tar', [('one', {**fields, 'npy.gz': gzip.compress(fields['npy'])})])
    found = LocalDataset(str(tmp_path), decode=True)[0]
    wanted = np.load(io.BytesIO(fields['npy']), allow_pickle=False)
    for own in (found['npy'], found['npy.gz'], found['npz']['a']):
        assert own.dtype == wanted.dtype
        assert own.shape == wanted.shape
        assert own.flags.f_contiguous == wanted.flags.f_contiguous
        # Rows may have arrays in them.
        assert str(own.tolist()) == str(wanted.tolist())
    assert found['npz']['plain'].tolist() == [0, 1, 2]


def test_object_arrays_are_rejected(tmp_path: Path) -> None:
    numbers = io.BytesIO()
    np.save(numbers, np.array([None, {}], object), allow_pickle=True)
    write_tar(tmp_path / 'a.tar', [('one', {'npy': numbers.getvalue()})])
    with pytest.raises(DataError, match='pickles') as caught:
        LocalDataset(str(tmp_path), decode=True)[0]
    assert caught.value.id == 'field-array'


SPECS = [
    *('l8', 'rgb8', 'rgba8', 'l', 'rgb', 'rgba', 'pil', 'pill', 'pilrgb', 'pilrgba', 'torch'),
    *('torchl8', 'torchrgb8', 'torchrgba8', 'torchl', 'torchrgb', 'torchrgba'),
]


@pytest.mark.parametrize('spec', SPECS)
def test_decoded_images_match_webdataset(spec: str, tmp_path: Path) -> None:
    from PIL import Image

    rng = np.random.default_rng(2)
    image = Image.fromarray(rng.integers(0, 256, (5, 7, 3), np.uint8))
    fields = {}
    for field, form, mode in (
        ('png', 'PNG', 'RGB'),
        ('jpg', 'JPEG', 'RGB'),
        ('seg.png', 'PNG', 'L'),
        ('a.png', 'PNG', 'RGBA'),
        ('p.png', 'PNG', 'P'),
        ('apng', 'PNG', 'RGB'),
        ('jpe', 'JPEG', 'L'),
        ('jfif', 'JPEG', 'CMYK'),
        ('tga', 'TGA', 'RGB'),
        ('ico', 'ICO', 'RGB'),
    ):
        data = io.BytesIO()
        image.convert(mode).save(data, form)
        fields[field] = data.getvalue()
    # These two names stand for no form.
    others = {'img': fields['png'], 'image': fields['jpg']}
    write_tar(tmp_path / 'a.tar', [('one', {**fields, **others, 'cls': b'3'})])
    (wanted,) = original(tmp_path / 'a.tar', spec)
    (found,) = StreamingDataset(local=str(tmp_path), batch_size=1, decode=spec)
    assert found['cls'] == wanted['cls'] == 3
    for field, kept in others.items():
        assert found[field] == wanted[field] == kept
    for field in fields:
        own, other = found[field], wanted[field]
        if spec.startswith('pil'):
            assert (own.mode, own.size, own.tobytes()) == (other.mode, other.size, other.tobytes())
            continue
        assert type(own) is type(other)
        assert own.dtype == other.dtype
        assert own.shape == other.shape
        assert np.array_equal(np.asarray(own), np.asarray(other))


def test_invalid_decode_is_an_error_and_callable_is_used(tmp_path: Path) -> None:
    write_tar(tmp_path / 'a.tar', [('one', {'cls': b'3', 'x.gz': gzip.compress(b'abc')})])
    for spec in ('', 'pil8', 'rgb9', 'torchpil', 'CMYK', '8'):
        with pytest.raises(ValueError, match='form of images'):
            StreamingDataset(local=str(tmp_path), batch_size=1, decode=spec)
    with pytest.raises(ValueError, match='callable'):
        StreamingDataset(local=str(tmp_path), batch_size=1, decode=7)  # type: ignore[arg-type]

    def mine(field: str, data: bytes) -> Any:
        return (field, data) if field == 'x' else None

    (found,) = StreamingDataset(local=str(tmp_path), batch_size=1, decode=mine)
    assert found == {'__key__': 'one', 'cls': 3, 'x.gz': ('x', b'abc')}
    assert LocalDataset(str(tmp_path), decode=mine)[0] == found


def test_undecodable_field_is_an_error(tmp_path: Path) -> None:
    for field, data in (('cls', b'three'), ('json', b'{'), ('txt', b'\xff'), ('npy', b'\x93NUMPY')):
        folder = tmp_path / field
        write_tar(folder / 'a.tar', [('one', {field: data})])
        assert StreamingDataset(local=str(folder), batch_size=1)[0][field] == data
        with pytest.raises(DataError, match=field):
            list(StreamingDataset(local=str(folder), batch_size=1, decode=True))


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    marker = tmp_path / 'marker'
    evil = b"cos\nsystem\n(S'touch %s'\ntR." % str(marker).encode()
    write_tar(tmp_path / 'tars' / 'a.tar', [('one', {'pkl': evil, 'pyd': evil, 'pth': evil})])
    (found,) = StreamingDataset(local=str(tmp_path / 'tars'), batch_size=1, decode=True)
    assert found == {'__key__': 'one', 'pkl': evil, 'pyd': evil, 'pth': evil}
    assert not marker.exists()


# Order, cache, stores.


def test_tar_sample_order_equals_mds_order(tmp_path: Path) -> None:
    """Shards of the same numbers of samples give the same samples at the same places."""
    tars = write_tars(tmp_path / 'tars', SAMPLES, shard_samples=24)
    firsts = range(0, SAMPLES, 24)
    for first in firsts:
        write(tmp_path / str(first), min(24, SAMPLES - first), first=first, shard_bytes=1 << 20)
    options: dict[str, Any] = {'batch_size': BATCH, 'shuffle': True, 'shuffle_seed': 5}
    for world in (1, 3):
        for rank in range(world):
            place: dict[str, Any] = {'rank': rank, 'world_size': world}
            ours = StreamingDataset(local=str(tars), decode=tar_value, **options, **place)
            mds = [Stream(local=str(tmp_path / str(first))) for first in firsts]
            theirs = StreamingDataset(streams=mds, **options, **place)
            for _ in range(2):
                found = [int(sample['number']) for sample in ours]
                if world == 1:
                    assert sorted(found) == list(range(SAMPLES))
                # Several streams are partitioned as one.
                assert found == [int(sample['number']) for sample in theirs]


@pytest.mark.parametrize('workers', [0, 2])
def test_loader_yields_every_tar_sample(workers: int, tmp_path: Path) -> None:
    folder = write_tars(tmp_path / 'tars')
    dataset = StreamingDataset(local=str(folder), batch_size=BATCH, shuffle=True, decode=tar_value)
    loader = StreamingDataLoader(dataset, batch_size=BATCH, num_workers=workers)
    for _ in range(2):
        found = [number for batch in loader for number in numbers(batch)]
        assert sorted(found) == list(range(SAMPLES))


def from_a_store(remote: str, folder: Path) -> None:
    """Reads two epochs with a cache that is smaller than the dataset."""
    options: dict[str, Any] = {
        'remote': remote,
        'local': str(folder / 'local'),
        'batch_size': BATCH,
        'shuffle': True,
        'cache_limit': 600_000,
        'decode': tar_value,
    }
    dataset = StreamingDataset(**options)
    assert dataset.num_shards == -(-SAMPLES // 10)
    for _ in range(2):
        samples = list(dataset)
        assert all(same(sample, int(sample['number'])) for sample in samples)
        assert sorted(int(sample['number']) for sample in samples) == list(range(SAMPLES))
    used = sum(path.stat().st_size for path in folder.rglob('*') if path.is_file())
    assert used <= 600_000
    assert same(dataset[7], 7)
    # The second start needs no scan: it lists the objects and looks for an index, its provenance and its late columns.
    requests = dataset.stats()['requests']
    again = StreamingDataset(**options)
    assert again.num_samples == SAMPLES
    assert again.stats()['requests'] == 4 < requests


@pytest.mark.parametrize('ending', ['', '.gz', '.zst'])
def test_remote_tars_stream_through_small_cache(
    ending: str, served: Path, store: Store, tmp_path: Path
) -> None:
    folder = write_tars(served / f'tars{ending}', shard_samples=10)
    for tar in sorted(folder.glob('*.tar')):
        data = tar.read_bytes()
        if ending:
            data = compress({'.gz': 'gz', '.zst': 'zstd'}[ending], data)
        tar.unlink()
        Path(f'{tar}{ending}').write_bytes(data)
    apart(from_a_store, f's3://bucket/{folder.name}', tmp_path, environment=store.environment)


def test_samples_can_have_different_fields(tmp_path: Path) -> None:
    samples = [
        (f'{place:04}', {'txt': b'%d' % place, **({'cls': b'1'} if place % 3 else {})})
        for place in range(50)
    ]
    write_tar(tmp_path / 'a.tar', samples[:30])
    write_tar(tmp_path / 'b.tar', samples[30:])
    wanted = {key: {'__key__': key, **fields} for key, fields in samples}
    dataset = StreamingDataset(local=str(tmp_path), batch_size=7, shuffle=True)
    found = list(dataset)
    assert len(found) == 50
    assert all(sample == wanted[sample['__key__']] for sample in found)
    assert all(dataset[place] == wanted[f'{place:04}'] for place in range(50))


def read_with(kind: str, dataset: Any) -> list[dict[str, Any]]:
    """Returns the batches of two samples, read in one of several ways."""
    from torch.utils.data import DataLoader

    workers = 2 if 'workers' in kind else 0
    if kind == 'batches':
        return [
            {name: list(values) for name, values in batch.items()} for batch in dataset.batches()
        ]
    if kind.startswith('torch'):
        return list(DataLoader(dataset, batch_size=2, num_workers=workers))
    threads: dict[str, Any] = {'worker_type': 'threads'} if kind == 'threads' else {}
    workers = workers or 2 * bool(threads)
    return list(StreamingDataLoader(dataset, batch_size=2, num_workers=workers, **threads))


class Unchanged(StreamingDataset):
    """Has a `get_item` of its own, so that samples are merged in Python."""

    def get_item(self, idx: int, retry: int = 7) -> Any:
        return super().get_item(idx, retry)


WAYS = ['batches', 'loader', 'loader with workers', 'threads', 'torch', 'torch with workers']
#: Samples with and without an image, in pairs.
ORDERS = ['-+', '+-', '--', '++', '-+-', '+--+']


@pytest.mark.parametrize('way', WAYS)
@pytest.mark.parametrize('cls', [StreamingDataset, Unchanged])
def test_batches_keep_fields_that_some_samples_lack(
    way: str, cls: type[StreamingDataset], tmp_path: Path
) -> None:
    # Starting worker processes takes long.
    for order in ORDERS[: 2 if 'workers' in way else None]:
        samples = [
            (f'{place}', {'cls': b'%d' % place, **({'jpg': b'J%d' % place} if sign == '+' else {})})
            for place, sign in enumerate(order)
        ]
        folder = tmp_path / str(ORDERS.index(order))
        folder.mkdir()
        write_tar(
            folder / 'a.tar', [*samples, *[('z', {'cls': b'9', 'jpg': b'z'})] * (len(order) % 2)]
        )
        write_tar(folder / 'b.tar', [('y', {'cls': b'9'}), ('x', {'cls': b'9', 'jpg': b'x'})])
        options: dict[str, Any] = {'batch_size': 2, 'num_canonical_nodes': 1}
        for decode in (None, True):
            dataset = cls(local=str(folder), decode=decode, **options)
            (first, *others) = read_with(way, dataset)
            pair = samples[:2]
            wanted: dict[str, Any] = {'__key__': [key for key, _ in pair]}
            wanted['cls'] = [int(each['cls']) if decode else each['cls'] for _, each in pair]
            if '+' in order[:2]:
                wanted['jpg'] = [each.get('jpg') for _, each in pair]
            found = {
                name: values.tolist() if hasattr(values, 'tolist') else values
                for name, values in first.items()
            }
            assert found == wanted, order
            assert others[-1]['jpg'] == [None, b'x']


@pytest.mark.parametrize('way', WAYS[1:])
def test_numbers_that_some_samples_lack_become_lists(way: str, tmp_path: Path) -> None:
    samples = [('a', {'cls': b'1'}), ('b', {'cls': b'2', 'id': b'5'})]
    write_tar(tmp_path / 'a.tar', samples)
    dataset = StreamingDataset(local=str(tmp_path), batch_size=2, decode=True)
    (batch,) = read_with(way, dataset)
    assert batch['cls'].tolist() == [1, 2]
    assert batch['id'] == [None, 5]


@pytest.mark.parametrize('way', ['batches', 'loader', 'loader with workers', 'threads'])
def test_fields_inside_of_json_are_kept(way: str, tmp_path: Path) -> None:
    first, second = (
        {'a': 1, 'in': {'x': 1}},
        {'a': 2, 'in': {'x': 2, 'y': 'text'}, 'list': [{'z': 1}]},
    )
    for order in ([first, second], [second, first]):
        folder = tmp_path / str(order[0] is first)
        folder.mkdir()
        texts = [json.dumps(value).encode() for value in order]
        write_tar(folder / 'a.tar', [(str(n), {'json': text}) for n, text in enumerate(texts)])
        dataset = StreamingDataset(local=str(folder), batch_size=2, decode=True)
        (batch,) = read_with(way, dataset)
        if way == 'batches':
            assert batch['json'] == order
            continue
        merged = batch['json']
        assert merged['a'].tolist() == [each['a'] for each in order]
        assert merged['in']['x'].tolist() == [each['a'] for each in order]
        assert merged['in']['y'] == [each['in'].get('y') for each in order]  # type: ignore[attr-defined]
        assert merged['list'] == [each.get('list') for each in order]


def test_requested_columns_are_in_every_batch(tmp_path: Path) -> None:
    samples: list[tuple[str, dict[str, bytes]]] = [(str(n), {'cls': b'1'}) for n in range(4)]
    write_tar(tmp_path / 'a.tar', [*samples, ('z', {'cls': b'2', 'jpg': b'J'})])
    for cls in (StreamingDataset, Unchanged):
        dataset = cls(local=str(tmp_path), batch_size=2, num_canonical_nodes=1)
        assert ['jpg' in batch for batch in dataset.batches()] == [False, False, True]
        found = [batch['jpg'].tolist() for batch in dataset.batches(columns=['cls', 'jpg'])]
        assert found == [[None, None], [None, None], [b'J']]
        with pytest.raises(UsageError, match='no column'):
            list(dataset.batches(columns=['cls', 'png']))


def test_map_style_samples_keep_fields_in_torch_loaders(tmp_path: Path) -> None:
    from torch.utils.data import DataLoader

    write_tar(tmp_path / 'a.tar', [('a', {'cls': b'1'}), ('b', {'cls': b'2', 'jpg': b'J'})])
    dataset: Any = LocalDataset(tmp_path)
    assert isinstance(dataset[0], dict)
    assert repr(dataset[0]) == "{'__key__': 'a', 'cls': b'1'}"
    for loader in (DataLoader(dataset, batch_size=2), StreamingDataLoader(dataset, batch_size=2)):
        (batch,) = loader
        assert batch == {'__key__': ['a', 'b'], 'cls': [b'1', b'2'], 'jpg': [None, b'J']}


def test_folder_without_tar_files_is_an_error(tmp_path: Path) -> None:
    (tmp_path / 'notes.txt').write_text('no shard')
    with pytest.raises(MissingIndexError):
        StreamingDataset(local=str(tmp_path), batch_size=1)
    write_tar(tmp_path / 'a.tar', [('one', {'txt': b'1'})])
    dataset = StreamingDataset(local=str(tmp_path), batch_size=1)
    with pytest.raises((DataError, MissingIndexError, RuntimeError)):
        _ = dataset.shards


# Patterns.


def test_brace_patterns_select_tar_files(tmp_path: Path) -> None:
    folder = write_tars(tmp_path / 'tars', shard_samples=40)
    shards = len(list(folder.glob('*.tar')))
    pattern = f'{folder}/shard-{{000000..{(shards - 1) * 40:06}..40}}.tar'
    streams: list[dict[str, Any]] = [
        {'local': pattern},
        {'remote': pattern, 'local': str(tmp_path / 'cache')},
        {'remote': pattern, 'local': str(tmp_path / 'cache')},
        {'remote': pattern.replace('..40}', '..-40}'), 'local': str(tmp_path / 'other')},
    ]
    for stream in streams:
        dataset = StreamingDataset(**stream, batch_size=BATCH, shuffle=True, decode=tar_value)
        assert dataset.num_shards == shards
        found = sorted(int(sample['number']) for sample in dataset)
        assert found == list(range(SAMPLES))
        assert all(same(dataset[number], number) for number in (0, 57, SAMPLES - 1))
    local = LocalDataset(pattern, decode=tar_value)
    assert len(local) == SAMPLES
    assert same(local[41], 41)
    # In the order of the pattern.
    turned = LocalDataset(f'{folder}/shard-{{000040,000000}}.tar', decode=tar_value)
    assert same(turned[0], 40)
    assert same(turned[40], 0)
    loader = StreamingDataLoader(
        StreamingDataset(streams=[Stream(local=pattern)], batch_size=BATCH, decode=tar_value),
        batch_size=BATCH,
        num_workers=2,
    )
    assert sorted(n for batch in loader for n in numbers(batch)) == list(range(SAMPLES))


def test_invalid_brace_patterns_are_errors(tmp_path: Path) -> None:
    folder = write_tars(tmp_path / 'tars', shard_samples=40)
    missing = f'{folder}/shard-{{000000..000080..40}}-x.tar'
    with pytest.raises(FileNotFoundError, match=r'shard-000000-x\.tar'):
        StreamingDataset(local=missing, batch_size=1)
    with pytest.raises(FileNotFoundError, match=r'shard-000001\.tar'):
        StreamingDataset(
            remote=f'{folder}/shard-{{000000..000001}}.tar',
            local=str(tmp_path / 'cache'),
            batch_size=1,
        )
    with pytest.raises(ValueError, match='more than 1000000 names'):
        StreamingDataset(local=f'{folder}/shard-{{0..1000000}}.tar', batch_size=1)
    with pytest.raises(ValueError, match='not balanced'):
        LocalDataset(f'{folder}/shard-{{0..1.tar')
    with pytest.raises(ValueError, match='split'):
        LocalDataset(f'{folder}/shard-{{000000..000040..40}}.tar', 'train')
    # A cache is of one pattern.
    pattern = f'{folder}/shard-{{000000,000040}}.tar'
    cache = str(tmp_path / 'one')
    StreamingDataset(remote=pattern, local=cache, batch_size=1)
    with pytest.raises(ShardmillError, match='Reused local directory'):
        StreamingDataset(remote=f'{folder}/shard-{{000080,000120}}.tar', local=cache, batch_size=1)


def from_a_pattern(remote: str, folder: Path) -> None:
    """Reads the tar files of a pattern from a store."""
    dataset = StreamingDataset(
        remote=remote, local=str(folder / 'local'), batch_size=BATCH, decode=tar_value
    )
    check_keys(dataset)
    assert sorted(int(sample['number']) for sample in dataset) == list(range(SAMPLES))
    with pytest.raises(FileNotFoundError, match=r'shard-000001\.tar'):
        StreamingDataset(
            remote=remote.replace('..40}', '..1}').replace('{000000', '{000001'),
            local=str(folder / 'gone'),
            batch_size=1,
        )


def test_brace_patterns_select_remote_tar_files(served: Path, store: Store, tmp_path: Path) -> None:
    folder = write_tars(served / 'pattern', shard_samples=40)
    last = (len(list(folder.glob('*.tar'))) - 1) * 40
    remote = f's3://bucket/pattern/shard-{{000000..{last:06}..40}}.tar'
    apart(from_a_pattern, remote, tmp_path, environment=store.environment)


def test_single_tar_file_is_a_dataset(tmp_path: Path) -> None:
    folder = write_tars(tmp_path / 'tars', shard_samples=40)
    tar = str(folder / 'shard-000040.tar')
    local = LocalDataset(tar, decode=tar_value)
    assert len(local) == 40
    assert all(same(local[at], 40 + at) for at in range(40))
    cache = str(tmp_path / 'cache')
    for remote, kept in [(None, tar), (tar, cache), (tar, cache)]:
        dataset = StreamingDataset(remote=remote, local=kept, batch_size=1, decode=tar_value)
        assert len(dataset) == 40
        assert sorted(int(sample['number']) for sample in dataset) == list(range(40, 80))
    with pytest.raises(FileNotFoundError, match=r'gone\.tar'):
        LocalDataset(str(folder / 'gone.tar'))
    with pytest.raises(ValueError, match='split'):
        LocalDataset(tar, 'train')


def test_tar_files_in_subfolders_are_found(tmp_path: Path) -> None:
    folder = write_tars(tmp_path / 'tars', shard_samples=40)
    for name in ('index.json', *(path.name for path in folder.glob('*.idx'))):
        (folder / name).unlink(missing_ok=True)
    for number, path in enumerate(sorted(folder.glob('*.tar'))):
        below = folder / f'{number:02}' / 'below'
        below.mkdir(parents=True)
        path.rename(below / path.name)
    hidden = folder / '.cache'
    hidden.mkdir()
    (hidden / 'x.tar').write_bytes(b'no shard')
    local = LocalDataset(str(folder), decode=tar_value)
    assert len(local) == SAMPLES
    assert all(same(local[number], number) for number in (0, 57, SAMPLES - 1))
    cache = str(tmp_path / 'cache')
    for remote, kept in [(None, str(folder)), (str(folder), cache), (str(folder), cache)]:
        dataset = StreamingDataset(
            remote=remote, local=kept, batch_size=BATCH, shuffle=True, decode=tar_value
        )
        found = sorted(int(sample['number']) for sample in dataset)
        assert found == list(range(SAMPLES))


# Keys.


def check_keys(dataset: Any) -> None:
    """Every sample is found by its key, and nothing else is."""
    for number in (0, 39, 40, SAMPLES - 1):
        key = f'{number:08}'
        assert dataset.number_of(key) == number
        assert dataset.key_of(number) == key
        assert same(dataset.get_by_key(key), number)
    for wrong in ('', '0', f'{SAMPLES:08}', '00000000.number'):
        with pytest.raises(KeyError):
            dataset.get_by_key(wrong)
    with pytest.raises(IndexError):
        dataset.key_of(SAMPLES)


@pytest.mark.parametrize('ending', ['', '.gz', '.zst'])
def test_samples_are_found_by_key(ending: str, tmp_path: Path) -> None:
    folder = write_tars(tmp_path / 'tars', shard_samples=40)
    for tar in sorted(folder.glob('*.tar')) if ending else []:
        data = compress({'.gz': 'gz', '.zst': 'zstd'}[ending], tar.read_bytes())
        tar.unlink()
        Path(f'{tar}{ending}').write_bytes(data)
    options: dict[str, Any] = {'batch_size': BATCH, 'decode': tar_value}
    # What is unpacked beside compressed shards is no second dataset.
    check_keys(StreamingDataset(local=str(folder), **options))
    check_keys(StreamingDataset(local=str(folder), **options))
    check_keys(StreamingDataset(remote=str(folder), local=str(tmp_path / 'cache'), **options))
    check_keys(LocalDataset(str(folder), decode=tar_value))


def test_ambiguous_and_unsupported_keys_are_errors(tmp_path: Path) -> None:
    write_tar(tmp_path / 'tars/a.tar', [('one', {'txt': b'1'}), ('d/two', {'txt': b'2'})])
    write_tar(tmp_path / 'tars/b.tar', [('three', {'txt': b'3'}), ('one', {'txt': b'4'})])
    dataset = LocalDataset(str(tmp_path / 'tars'))
    assert dataset.get_by_key('d/two')['txt'] == b'2'
    with pytest.raises(ValueError, match='`one` is that of sample 0 and of sample 3'):
        dataset.number_of('one')
    write(tmp_path / 'mds')
    other = LocalDataset(str(tmp_path / 'mds'))
    with pytest.raises(ValueError, match='in tar files only'):
        other.number_of('one')
    with pytest.raises(KeyError):
        other.key_of(0)
    # Beside others, numbers go through all streams.
    mixed = StreamingDataset(
        streams=[Stream(local=str(tmp_path / 'mds')), Stream(local=str(tmp_path / 'tars'))],
        batch_size=1,
    )
    assert mixed.number_of('three') == SAMPLES + 2
    assert mixed.get_by_key('three')['txt'] == b'3'
