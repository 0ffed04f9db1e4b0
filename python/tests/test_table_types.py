"""Tables in place against their conversions: every Arrow type that Parquet stores, with nulls and nested at random."""

from __future__ import annotations

import decimal
import json
import random
import uuid
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.tables import same

import shardmill
from shardmill import StreamingDataset
from shardmill.errors import ShardmillError

ZONES = [None, 'UTC', '+02:00', 'Europe/Berlin']
MEDIA = pa.struct({'bytes': pa.binary(), 'path': pa.string()})


def extension(storage: pa.DataType, name: str, metadata: str = '') -> dict[str, Any]:
    """A field of an extension type that pyarrow does not know."""
    return {
        'type': storage,
        'metadata': {'ARROW:extension:name': name, 'ARROW:extension:metadata': metadata},
    }


RAGGED = extension(
    pa.struct({'data': pa.list_(pa.float32()), 'shape': pa.list_(pa.int32(), 2)}),
    'arrow.variable_shape_tensor',
    json.dumps({'permutation': [1, 0]}),
)
LEAVES: list[pa.DataType] = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64(), pa.bool_()),
    *(pa.decimal32(7, 2), pa.decimal64(15, 3), pa.decimal128(30, 4), pa.decimal256(60, 5)),
    *(pa.date32(), pa.date64(), pa.time32('s'), pa.time32('ms'), pa.time64('us'), pa.time64('ns')),
    *(pa.timestamp(unit, zone) for unit in ('s', 'ms', 'us', 'ns') for zone in ZONES),
    *(pa.duration(unit) for unit in ('s', 'ms', 'us', 'ns')),
    *(pa.string(), pa.large_string(), pa.string_view()),
    *(pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(5)),
    pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.int32(), pa.int64()),
    *(pa.uuid(), pa.json_(), pa.bool8(), pa.opaque(pa.int32(), 'x', 'y')),
]
NESTED: list[pa.DataType] = [
    *(pa.list_(pa.int32()), pa.large_list(pa.float64()), pa.list_view(pa.int16())),
    *(
        pa.list_(pa.float32(), 3),
        pa.list_(pa.list_(pa.int8(), 2), 3),
        pa.list_(pa.list_(pa.int64())),
    ),
    *(pa.list_(pa.string()), pa.list_(pa.bool_()), pa.list_(pa.decimal128(5, 2))),
    *(MEDIA, pa.list_(MEDIA), pa.struct({'image': MEDIA})),
    pa.struct({'bytes': pa.large_binary(), 'path': pa.large_string()}),
    pa.struct({'bytes': pa.binary(), 'path': pa.string(), 'rate': pa.int32()}),
    *(pa.map_(pa.string(), pa.int32()), pa.map_(pa.int32(), pa.json_())),
    pa.fixed_shape_tensor(pa.float32(), (2, 3)),
    pa.fixed_shape_tensor(pa.int16(), (2, 3, 2), permutation=[2, 0, 1]),
    pa.list_(pa.fixed_shape_tensor(pa.int32(), (2, 2), permutation=[1, 0])),
    pa.struct({'id': pa.uuid(), 'meta': pa.json_(), 'ok': pa.bool8(), 't': pa.date64()}),
]


def number(chance: random.Random, of: pa.DataType) -> int:
    """A time in a unit, between the years 1700 and 2200."""
    per_day = {'s': 1, 'ms': 10**3, 'us': 10**6, 'ns': 10**9}[of.unit] * 86_400
    if pa.types.is_time(of):
        return chance.randrange(per_day)
    return chance.randrange(-98_000 * per_day, 84_000 * per_day)


def value(chance: random.Random, of: pa.DataType) -> Any:
    types = pa.types
    if types.is_integer(of):
        low, high = (
            (0, 1 << of.bit_width)
            if 'u' in str(of)
            else (-1 << of.bit_width - 1, 1 << of.bit_width - 1)
        )
        return chance.choice([low, high - 1, chance.randrange(low, high), 0])
    if types.is_floating(of):
        special = [float('nan'), float('inf'), -0.0, 0.1, 65504.0]
        return (
            np.float16(chance.choice(special)) if types.is_float16(of) else chance.choice(special)
        )
    if types.is_boolean(of):
        return chance.random() < 0.5
    if types.is_decimal(of):
        most = 10 ** min(7, of.precision)
        return decimal.Decimal(chance.randrange(1 - most, most)).scaleb(-of.scale)
    if types.is_date32(of):
        return chance.randrange(-700_000, 2_900_000)
    if types.is_date64(of):
        return chance.randrange(-700_000, 2_900_000) * 86_400_000
    if types.is_temporal(of):
        return number(chance, of)
    text = chance.choice(['', 'x', 'ä"\\\n', '{"a": 1}', 'long ' * 9])
    if types.is_fixed_size_binary(of):
        return bytes(chance.randrange(256) for _ in range(of.byte_width))
    return text if 'string' in str(of) else text.encode()


def array(chance: random.Random, of: pa.DataType, count: int, nulls: float) -> pa.Array:
    """Random values of a type; each is null with this probability."""
    types = pa.types
    if isinstance(of, pa.BaseExtensionType):
        if of == pa.json_():
            choices = ['{"a": [1, null]}', '[ 1.50, true ]', '"text"', '7', 'null', ' {"é": {}} ']
            storage = pa.array([chance.choice(choices) for _ in range(count)], of.storage_type)
        elif 'tensor' in str(of):
            # There are no nulls inside of tensors.
            size = of.storage_type.list_size
            values = array(chance, of.storage_type.value_type, count * size, 0)
            storage = pa.FixedSizeListArray.from_arrays(values, size)
        else:
            storage = array(chance, of.storage_type, count, 0)
        missing = pa.array([chance.random() < nulls for _ in range(count)])
        storage = pa.compute.if_else(missing, None, storage) if nulls else storage
        return pa.ExtensionArray.from_storage(of, storage)
    missing = pa.array([chance.random() < nulls for _ in range(count)])
    if types.is_dictionary(of):
        return array(chance, of.value_type, count, nulls).dictionary_encode().cast(of)
    if types.is_fixed_size_list(of):
        values = array(chance, of.value_type, count * of.list_size, 0)
        return pa.FixedSizeListArray.from_arrays(values, type=of, mask=missing)
    if types.is_list(of) or types.is_large_list(of) or types.is_list_view(of):
        # A null inside of a list of numbers is an error in place.
        is_number = types.is_primitive(of.value_type) and not types.is_temporal(of.value_type)
        lengths = [chance.randrange(1, 4) for _ in range(count)]
        offsets = np.cumsum([0, *lengths])
        values = array(chance, of.value_type, int(offsets[-1]), 0 if is_number else nulls)
        if types.is_list_view(of):
            return pa.ListViewArray.from_arrays(
                offsets[:-1].astype('int32'),
                pa.array(lengths, pa.int32()),
                values,
                type=of,
                mask=missing,
            )
        made = pa.LargeListArray if types.is_large_list(of) else pa.ListArray
        kind = 'int64' if types.is_large_list(of) else 'int32'
        return made.from_arrays(pa.array(offsets.astype(kind)), values, type=of, mask=missing)
    if types.is_map(of):
        offsets = pa.array(range(count + 1), pa.int32())
        keys = pa.array(
            [str(n) if types.is_string(of.key_type) else n for n in range(count)], of.key_type
        )
        return pa.MapArray.from_arrays(
            offsets, keys, array(chance, of.item_type, count, nulls), of, mask=missing
        )
    if types.is_struct(of):
        children = [array(chance, field.type, count, nulls) for field in of]
        return pa.StructArray.from_arrays(children, fields=list(of), mask=missing)
    values = [None if gone.as_py() else value(chance, of) for gone in missing]
    if types.is_temporal(of):
        width = pa.int32() if of.bit_width == 32 else pa.int64()
        return pa.array(values, width).view(of)
    return pa.array(values, of)


def ragged(chance: random.Random, count: int) -> pa.Array:
    shapes = [(chance.randrange(1, 4), chance.randrange(1, 4)) for _ in range(count)]
    numbers = [[chance.random() for _ in range(a * b)] for a, b in shapes]
    return pa.array(
        [{'data': row, 'shape': shape} for row, shape in zip(numbers, shapes)], RAGGED['type']
    )


def any_type(chance: random.Random, depth: int) -> pa.DataType:
    if depth == 0 or chance.random() < 0.3:
        return chance.choice(LEAVES)
    inner = any_type(chance, depth - 1)
    plain = inner if not pa.types.is_dictionary(inner) else pa.string()
    return chance.choice(
        [
            pa.list_(plain),
            pa.large_list(plain),
            pa.list_(plain, 2),
            pa.struct({'a': inner, 'b': chance.choice(LEAVES)}),
            pa.map_(pa.string(), plain),
        ]
    )


def opened(folder: Path, **options: Any) -> StreamingDataset[Any]:
    return StreamingDataset(
        remote=str(folder / 'table'),
        local=str(folder / 'cache'),
        format='parquet',
        batch_size=1,
        **options,
    )


def check(folder: Path, table: pa.Table, **options: Any) -> list[dict[str, Any]]:
    """Compares a table in place with its conversion, and returns the samples."""
    (folder / 'table').mkdir(parents=True)
    pq.write_table(table, folder / 'table' / 'a.parquet', row_group_size=7, **options)
    for nulls in ('error', 'mask'):
        for condition in (None, 'id >= 0'):
            if nulls == 'error' and any(column.null_count for column in table.columns):
                continue
            shards = folder / f'{nulls}-{condition is None}'
            shardmill.convert(folder / 'table', shards, nulls=nulls, where=condition)
            here = [*opened(folder, nulls='mask' if nulls == 'mask' else None, where=condition)]
            there = [*StreamingDataset(local=str(shards), batch_size=1)]
            assert len(here) == len(there) == len(table)
            for one, other in zip(here, there):
                assert one.keys() == other.keys()
                for name, expected in other.items():
                    assert type(one[name]) is type(expected), name
                    # Two values that are not numbers inside of JSON differ.
                    assert same(one[name], expected) or repr(one[name]) == repr(expected), name
    return [*opened(folder)]


def columns(chance: random.Random, types: list[pa.DataType], nulls: float) -> pa.Table:
    made: dict[str, Any] = {'id': pa.array(range(20))}
    made.update({f'{n:03} {of}'[:60]: array(chance, of, 20, nulls) for n, of in enumerate(types)})
    return pa.table(made)


@pytest.mark.parametrize('nulls', [0, 0.3])
def test_every_type_has_the_values_of_a_conversion(tmp_path: Path, nulls: float) -> None:
    chance = random.Random(f'types {nulls}')
    table = columns(chance, [*LEAVES, *NESTED], nulls).append_column('none', pa.nulls(20))
    table = table.append_column(pa.field('ragged', **RAGGED), ragged(chance, 20))
    check(tmp_path, table)


@pytest.mark.parametrize('seed', range(4))
def test_random_types_have_the_values_of_a_conversion(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    types = [any_type(chance, 3) for _ in range(12)]
    table = columns(chance, types, chance.choice([0, 0.2]))
    check(tmp_path, table, data_page_version=chance.choice(['1.0', '2.0']))


def written(folder: Path, name: str, table: pa.Table) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / name)


def converted(folder: Path, name: str = 'shards', **options: Any) -> list[dict[str, Any]]:
    shardmill.convert(folder / 'table', folder / name, **options)
    return [*StreamingDataset(local=str(folder / name), batch_size=1)]


def encodings(shards: Path) -> dict[str, str]:
    shard = json.loads((shards / 'index.json').read_text())['shards'][0]
    return dict(zip(shard['column_names'], shard['column_encodings']))


def test_hugging_face_images_in_place_are_their_bytes(tmp_path: Path) -> None:
    images = [
        {'bytes': b'one', 'path': '1.jpg'},
        {'bytes': None, 'path': '2.jpg'},
        None,
        {'bytes': b'', 'path': None},
    ]
    table = pa.table(
        {'image': pa.array(images, MEDIA), 'images': pa.array([images] * 4, pa.list_(MEDIA))}
    )
    written(tmp_path / 'table', 'a.parquet', table)
    found = [*opened(tmp_path)]
    assert [sample['image'] for sample in found] == [b'one', None, None, b'']
    # Inside of a list they are JSON, as in a conversion.
    assert found[0]['images'][0] == {'bytes': 'b25l', 'path': '1.jpg'}
    masked = [*opened(tmp_path, nulls='mask')]
    assert masked == converted(tmp_path, nulls='mask')
    assert [sample['image__is_null'] for sample in masked] == [0, 1, 1, 0]
    chosen = [*opened(tmp_path, columns=['image'], where="image.path = '1.jpg'")]
    assert chosen == [{'image': b'one'}]


def tensor(shape: tuple[int, ...], permutation: list[int], rows: int) -> tuple[pa.Array, list[Any]]:
    """A column of tensors, and the tensors."""
    size = int(np.prod(shape))
    of = pa.fixed_shape_tensor(pa.float32(), shape, permutation=permutation)
    stored = np.arange(rows * size, dtype=np.float32)
    storage = pa.FixedSizeListArray.from_arrays(pa.array(stored), size)
    expected = [row.reshape(shape).transpose(permutation) for row in stored.reshape(rows, size)]
    return pa.ExtensionArray.from_storage(of, storage), expected


def test_extension_types_have_their_meaning(tmp_path: Path) -> None:
    plain, expected = tensor((2, 3), [0, 1], 3)
    turned, expected_turned = tensor((2, 3, 4), [2, 0, 1], 3)
    ids = [uuid.UUID(int=7 + n << 90) for n in range(3)]
    documents = ['{"a": [1, null]}', '"text"', 'null']
    id_array = pa.array([one.bytes for one in ids], pa.uuid())
    json_array = pa.array(documents, pa.json_())
    flags = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([0, 1, -3], pa.int8()))
    struct = pa.StructArray.from_arrays(
        [id_array, json_array, flags, turned], ['id', 'meta', 'ok', 'turned']
    )
    list_of_ids = pa.ListArray.from_arrays(pa.array([0, 1, 3, 3], pa.int32()), id_array)
    table = pa.table(
        {
            'plain': plain,
            'turned': turned,
            'id': id_array,
            'meta': json_array,
            'ok': flags,
            'struct': struct,
            'ids': list_of_ids,
        }
    )
    shapes = [
        {'data': list(range(6)), 'shape': [2, 3]},
        {'data': [1], 'shape': [1, 1]},
        {'data': [1, 2], 'shape': [2, 1]},
    ]
    table = table.append_column(pa.field('ragged', **RAGGED), pa.array(shapes, RAGGED['type']))
    written(tmp_path / 'table', 'a.parquet', table)
    found = [*opened(tmp_path)]
    for row, sample in enumerate(found):
        np.testing.assert_array_equal(sample['plain'], expected[row])
        np.testing.assert_array_equal(sample['turned'], expected_turned[row])
        assert sample['plain'].dtype == np.float32
        assert sample['id'] == str(ids[row])
        assert sample['meta'] == json.loads(documents[row])
        assert sample['ok'] == (row > 0)
        assert sample['struct'] == {
            'id': str(ids[row]),
            'meta': json.loads(documents[row]),
            'ok': row > 0,
            'turned': expected_turned[row].tolist(),
        }
        shape = shapes[row]['shape']
        numbers = np.array(shapes[row]['data'], np.float32).reshape(shape).T
        np.testing.assert_array_equal(sample['ragged'], numbers)
    assert [sample['ids'] for sample in found] == [[str(ids[0])], [str(ids[1]), str(ids[2])], []]
    # The types survive every way to select columns, and come from Arrow files as well.
    expected_encodings = {
        'id': 'str',
        'ids': 'json',
        'meta': 'json',
        'ok': 'uint8',
        'plain': 'ndarray:float32:2,3',
        'ragged': 'ndarray:float32',
        'struct': 'json',
        'turned': 'ndarray:float32:4,2,3',
    }
    (tmp_path / 'arrow').mkdir()
    with pa.ipc.new_file(tmp_path / 'arrow' / 'a.arrow', table.schema) as file:
        file.write_table(table)
    ways: list[tuple[str, dict[str, Any]]] = [
        ('table', {}),
        ('arrow', {}),
        ('table', {'columns': [*expected_encodings]}),
        ('table', {'select': '*'}),
        ('table', {'where': f"id <> '{uuid.UUID(int=0)}' AND ok IS NOT NULL"}),
        ('table', {'sql': 'SELECT * FROM source'}),
        ('table', {'sql': 'SELECT * FROM source ORDER BY id'}),
    ]
    for number, (source, options) in enumerate(ways):
        shards = tmp_path / str(number)
        shardmill.convert(tmp_path / source, shards, **options)
        assert encodings(shards) == expected_encodings, options
        for one, other in zip(StreamingDataset(local=str(shards), batch_size=1), found):
            assert one.keys() == other.keys()
            for name, value in other.items():
                assert same(one[name], value), (options, name)
    # Parquet keeps them.
    shardmill.convert(tmp_path / 'table', tmp_path / 'again', to='parquet')
    assert (
        pq.read_table(tmp_path / 'again')
        .schema.remove_metadata()
        .equals(pq.read_table(tmp_path / 'table').schema.remove_metadata())
    )


def test_tensors_of_other_shapes_in_another_file_keep_their_shapes(tmp_path: Path) -> None:
    for number, shape in enumerate([(2, 3), (3, 2)]):
        written(
            tmp_path / 'table', f'{number}.parquet', pa.table({'x': tensor(shape, [0, 1], 2)[0]})
        )
    with pytest.raises(ShardmillError, match='FixedSizeList') as raised:
        [*opened(tmp_path)]
    assert raised.value.id == 'table-drift'
    # A conversion reads both as lists of any length.
    expected = [row.tolist() for shape in [(2, 3), (3, 2)] for row in tensor(shape, [0, 1], 2)[1]]
    assert [sample['x'] for sample in converted(tmp_path)] == expected


def test_text_that_is_no_json_is_an_error_inside_of_a_struct(tmp_path: Path) -> None:
    meta = pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{}', '{"a": 1, "a": 2}']))
    written(
        tmp_path / 'table',
        'a.parquet',
        pa.table({'s': pa.StructArray.from_arrays([meta], ['meta'])}),
    )
    for read in (lambda: [*opened(tmp_path)], lambda: converted(tmp_path)):
        with pytest.raises(ShardmillError, match='row 1') as raised:
            read()
        assert raised.value.id == 'json-syntax'


def test_identifiers_in_folder_names_stay_text(tmp_path: Path) -> None:
    for zip_code, year in (('01730', '2024'), ('1730', '-7')):
        folder = tmp_path / 'table' / f'zip={zip_code}' / f'year={year}'
        written(folder, 'a.parquet', pa.table({'x': [1]}))
    found = [*opened(tmp_path)]
    assert [(sample['zip'], int(sample['year'])) for sample in found] == [
        ('01730', 2024),
        ('1730', -7),
    ]
    assert found == converted(tmp_path)
    chosen = {'where': "zip = '01730'"}
    assert [*opened(tmp_path, **chosen)] == converted(tmp_path, 'chosen', **chosen) == found[:1]


@pytest.mark.parametrize('dictionary', [False, True])
@pytest.mark.parametrize('version', ['1.0', '2.0'])
def test_wide_timestamps_outside_the_calendar_are_errors(
    tmp_path: Path, dictionary: bool, version: str
) -> None:
    times = pa.array([None, 0, 86_400 * 10**9, None, 5], pa.timestamp('ns'))
    (tmp_path / 'table').mkdir()
    path = tmp_path / 'table' / 'a.parquet'
    pq.write_table(
        pa.table({'id': range(5), 't': times, 'l': [[time] for time in times]}),
        path,
        use_deprecated_int96_timestamps=True,
        use_dictionary=dictionary,
        data_page_version=version,
        compression='none',
        write_statistics=False,
    )
    assert opened(tmp_path)[1]['t'] == '1970-01-01T00:00:00'
    day = (2_440_589).to_bytes(4, 'little')
    whole = path.read_bytes()
    for column, at in (('t', whole.index(day)), ('l', whole.rindex(day))):
        far = (2**31 - 1).to_bytes(4, 'little')
        path.write_bytes(whole[:at] + far + whole[at + 4 :])
        for number, options in enumerate(
            [{}, {'where': 'id >= 0'}, {'where': f'{column} IS NOT NULL'}]
        ):
            reads: list[Any] = [
                partial(opened, tmp_path, columns=[column], **options),
                partial(converted, tmp_path, f'{column}{number}', nulls='mask', **options),
            ]
            for read in reads:
                with pytest.raises(
                    ShardmillError, match='Julian day 2147483647, outside the calendar'
                ) as raised:
                    [*read()]
                assert raised.value.id == 'parquet-corrupt'
                assert f'column `{column}' in str(raised.value)
