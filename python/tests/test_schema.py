"""The columns of datasets, and their types in NumPy and Arrow."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from support import samples as made

from shardmill import JSONWriter, LocalDataset, MDSWriter, Stream, StreamingDataset, schema
from shardmill.errors import UnsupportedError, UsageError

pa = pytest.importorskip('pyarrow')


def test_schema_lists_encodings_types_and_shapes(data: Path) -> None:
    dataset = LocalDataset(str(data))
    assert dataset.columns == ('data', 'number', 'short', 'text', 'vector')
    found = {name: (each.encoding, each.dtype, each.shape) for name, each in dataset.schema.items()}
    assert found == {
        'data': ('bytes', None, None),
        'number': ('int', 'int64', ()),
        'short': ('uint8', 'uint8', ()),
        'text': ('str', None, None),
        'vector': ('ndarray:float32:3', 'float32', (3,)),
    }
    assert not any(each.nullable for each in dataset.schema.values())
    assert str(dataset.schema['number']) == 'number: int'
    assert repr(dataset.schema).startswith('Schema(data: bytes, number: int, ')
    assert 'ndarray:float32:3' in dataset.schema._repr_html_()
    streaming = StreamingDataset(local=str(data), batch_size=2)
    assert streaming.schema == dataset.schema
    assert pickle.loads(pickle.dumps(dataset.schema)) == dataset.schema
    assert dict(pickle.loads(pickle.dumps(streaming)).schema) == dict(dataset.schema)


def test_schema_converts_to_arrow(data: Path) -> None:
    assert LocalDataset(str(data)).schema.to_arrow(['vector', 'text', 'short']) == pa.schema(
        [
            pa.field('vector', pa.list_(pa.float32(), 3), nullable=False),
            pa.field('text', pa.string(), nullable=False),
            pa.field('short', pa.uint8(), nullable=False),
        ]
    )


@pytest.mark.parametrize(
    ('columns', 'error', 'words'),
    [
        (['text', 'other'], UsageError, 'no column `other`, only data, number, '),
        (['text', 'text'], UsageError, '`text` is given twice'),
        ('text', UsageError, 'not a text'),
    ],
)
def test_invalid_schema_columns_are_errors(
    data: Path, columns: list[str], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        LocalDataset(str(data)).schema.to_arrow(columns)


def test_arrow_type_of_dynamic_ndarray_needs_example(tmp_path: Path) -> None:
    with MDSWriter(out=str(tmp_path), columns={'a': 'ndarray', 'b': 'ndarray:int8'}):
        pass
    found = schema.Schema.of_shards(
        [('mds', [('a', 'ndarray', True, None), ('b', 'ndarray:int8', True, None)])]
    )
    assert found.to_arrow(['b']).field('b').type == pa.list_(pa.int8())
    with pytest.raises(UnsupportedError, match=r'column a: .* does not say') as caught:
        found.to_arrow()
    assert (caught.value.object, caught.value.id) == ('a', 'type-unsupported')
    import numpy as np

    like = {'a': np.zeros((2, 3), np.float16)}
    assert found.to_arrow(['a'], like=like).field('a').type == pa.list_(pa.list_(pa.float16()))


def test_schema_merges_shards_with_different_columns(data: Path, tmp_path: Path) -> None:
    with MDSWriter(
        out=str(tmp_path), columns={'number': 'str', 'text': 'str', 'new': 'int8'}
    ) as out:
        out.write({'number': '1', 'text': 'b', 'new': 1})
    mixed = StreamingDataset(
        streams=[Stream(local=str(data)), Stream(local=str(tmp_path))], batch_size=1
    )
    assert mixed.columns == ('data', 'number', 'short', 'text', 'vector', 'new')
    column = mixed.schema['number']
    assert (column.encoding, column.other_encodings, column.dtype) == ('int', ('str',), None)
    assert [name for name, each in mixed.schema.items() if each.nullable] == [
        'data',
        'short',
        'vector',
        'new',
    ]
    with pytest.raises(UnsupportedError, match='column number: it is int in some shards and str'):
        mixed.to_arrow()


def test_schema_is_known_for_tar_and_json_shards(tmp_path: Path) -> None:
    made.write_tars(tmp_path / 'tars', 5)
    (tmp_path / 'tars' / 'x').mkdir()
    found = StreamingDataset(local=str(tmp_path / 'tars'), batch_size=1).schema
    assert next(iter(found)) == '__key__'
    assert found['__key__'].encoding == 'str'
    assert found['number'].encoding == 'bytes'
    columns = {'a': 'int', 'b': 'float', 'c': 'str'}
    with JSONWriter(out=str(tmp_path / 'json'), columns=columns) as out:
        out.write({'a': 1, 'b': 0.5, 'c': 'x'})
    lines = LocalDataset(str(tmp_path / 'json'))
    assert {name: each.encoding for name, each in lines.schema.items()} == columns


def test_null_mask_columns_make_columns_nullable() -> None:
    columns = [(name, 'uint8', True, None) for name in ('a', 'a__is_null', 'b__is_null')]
    found = schema.Schema.of_shards([('mds', columns)])
    assert found.null_mask('a') == 'a__is_null'
    assert found.null_mask('b') is None
    assert [each.name for each in found.select()] == ['a', 'b__is_null']
    assert len(found.select(apply_null_masks=False)) == 3
    arrow = found.to_arrow()
    assert (arrow.field('a').nullable, arrow.field('b__is_null').nullable) == (True, False)

    # A mask that samples do not have, and the same column as one that they have.
    hidden = [('a', 'uint8', True, 'a__is_null'), ('a__is_null', 'uint8', True, None)]
    shown = schema.Schema.of_shards([('mds', hidden)])
    assert list(shown) == ['a']
    assert shown['a'].nullable
    assert shown.to_arrow().field('a').nullable
    stored = schema.Schema.of_shards([('mds', hidden)], is_stored=True)
    assert list(stored) == ['a', 'a__is_null']
    assert not stored['a'].nullable
    mixed = schema.Schema.of_shards([('mds', hidden), ('mds', columns)])
    assert list(mixed) == ['a', 'a__is_null', 'b__is_null']
    assert mixed['a'].nullable
    assert mixed['a__is_null'].nullable
