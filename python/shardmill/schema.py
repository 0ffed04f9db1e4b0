"""The columns of a dataset: names, encodings, and the types of their values in NumPy and Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Optional

from shardmill._text import html_table
from shardmill.errors import UnsupportedError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ['ColumnSchema', 'Schema']

#: The suffix of a column that says for each sample whether the value of another column is null.
_MASK = '__is_null'
_NUMBERS = frozenset(f'{kind}{bits}' for kind in ('int', 'uint') for bits in (8, 16, 32, 64))
_FLOATS = {'float16': 'halffloat', 'float32': 'float', 'float64': 'double'}
#: Encodings of text in Arrow, of bytes, and of lists of bytes.
TEXTS = frozenset(('json', 'str', 'str_decimal', 'str_float', 'str_int'))
_BINARY = frozenset(('bytes', 'jpeg', 'pil', 'pkl', 'png'))
LISTS = frozenset(('jpeg_array', 'jpegarray', 'list[jpeg]', 'list[pil]', 'list[png]'))
#: Extensions of WebDataset fields that are text, and those that are integers.
_TEXT_FIELDS = frozenset(('json', 'jsn', 'text', 'transcript', 'txt'))
_INTEGER_FIELDS = frozenset(('cls', 'cls2', 'id', 'inx', 'class', 'count', 'index'))
_KEY = '__key__'


def field_encoding(name: str) -> str:
    """Returns the encoding of a WebDataset field in tables, by its extension: ``str``, ``int`` or ``bytes``."""
    extension = name.rpartition('.')[2]
    if name == _KEY or extension in _TEXT_FIELDS:
        return 'str'
    return 'int' if extension in _INTEGER_FIELDS else 'bytes'


def number_type(dtype: str) -> pa.DataType:
    """Returns the Arrow type of a NumPy type of numbers."""
    import pyarrow as pa

    return pa.type_for_alias(_FLOATS.get(dtype, dtype))


@dataclass(frozen=True)
class ColumnSchema:
    """A column of a dataset.

    Attributes:
        name: Its name.
        encoding: Its encoding, such as ``ndarray:float32:3``. A WebDataset field is ``str``, ``int`` or ``bytes``,
            depending on its extension.
        dtype: The NumPy type of its numbers, such as ``float32``; ``None`` for other values, and for arrays that
            store their own type.
        shape: The shape of each value, which is ``()`` for a number; ``None`` for other values, and for arrays that
            store their own shape.
        nullable: Whether samples may lack it, or have ``None``.
        other_encodings: Its encodings in other shards.
        is_registered: Whether the program registered its encoding. In tables its values are the stored bytes.
    """

    name: str
    encoding: str
    dtype: Optional[str] = None
    shape: Optional[tuple[int, ...]] = None
    nullable: bool = False
    other_encodings: tuple[str, ...] = ()
    is_registered: bool = field(default=False, repr=False)

    @property
    def is_array(self) -> bool:
        """Whether the values are arrays."""
        return self.encoding.partition(':')[0] == 'ndarray' and not self.is_registered

    def arrow_type(self, like: Any = None) -> pa.DataType:
        """Returns the Arrow type of the values.

        Arrays of a fixed shape are nested lists of fixed sizes, other arrays are lists. ``json``, ``str_int``,
        ``str_float`` and ``str_decimal`` are text. Images and pickles are the stored bytes.

        Args:
            like: An array of the column, which gives the type and the number of dimensions that the encoding lacks.
                Without it, arrays without a shape have one dimension.

        Raises:
            UnsupportedError: The values have no Arrow type.
        """
        import pyarrow as pa

        if self.is_registered:
            return pa.binary()
        found = _arrow_type(self.name, self.encoding, like)
        for encoding in self.other_encodings:
            other = _arrow_type(self.name, encoding, like)
            if other != found:
                text = f'column {self.name}: it is {self.encoding} in some shards and {encoding} in others'
                raise UnsupportedError(text, 'type-unsupported', self.name, 'choose other columns')
        assert isinstance(found, pa.DataType)
        return found

    def __str__(self) -> str:
        return f'{self.name}: {" or ".join((self.encoding, *self.other_encodings))}'


def _arrow_type(name: str, encoding: str, like: Any) -> pa.DataType:
    import pyarrow as pa

    if encoding in TEXTS:
        return pa.string()
    if encoding in _BINARY:
        return pa.binary()
    if encoding in LISTS:
        return pa.list_(pa.binary())
    dtype, shape = _numbers_of(encoding)
    if encoding.partition(':')[0] == 'ndarray':
        if dtype is None and like is not None:
            dtype = like.dtype.name
        if dtype is not None:
            value = number_type(dtype)
            if shape is None:
                for _ in range(1 if like is None else like.ndim):
                    value = pa.list_(value)
                return value
            for size in reversed(shape):
                value = pa.list_(value, size)
            return value
        text = f'column {name}: the encoding {encoding} does not say which type its arrays have'
        raise UnsupportedError(
            text, 'type-unsupported', name, 'give an array of the column as `like`'
        )
    if dtype is not None:
        return number_type(dtype)
    text = f'column {name}: values of {encoding} have no type in a table'
    raise UnsupportedError(text, 'type-unsupported', name, 'choose other columns')


def _numbers_of(encoding: str) -> tuple[Optional[str], Optional[tuple[int, ...]]]:
    """Returns the NumPy type and the shape that an encoding gives to its values."""
    if encoding == 'int':
        return 'int64', ()
    if encoding == 'float':
        return 'float64', ()
    if encoding in _NUMBERS or encoding in _FLOATS:
        return encoding, ()
    kind, _, rest = encoding.partition(':')
    if kind != 'ndarray' or not rest:
        return None, None
    dtype, _, shape = rest.partition(':')
    return dtype, tuple(map(int, shape.split(','))) if shape else None


class Schema(Mapping[str, ColumnSchema]):
    """The columns of a dataset by name, in the order of its samples. It is immutable.

    If shards have different columns, it has all of them.
    """

    def __init__(self, columns: Sequence[ColumnSchema]) -> None:
        self._columns = {column.name: column for column in columns}

    @classmethod
    def of_shards(
        cls,
        found: Sequence[tuple[str, Sequence[tuple[str, str, bool, Optional[str]]]]],
        *,
        is_stored: bool = False,
    ) -> Schema:
        """Merges the columns of different shards.

        Args:
            found: The format of the shards, and of each column the name, the encoding, whether every sample has it, and
                the column that marks its nulls if samples have ``None`` for them.
            is_stored: Whether columns that mark nulls are included, which samples do not have.
        """
        from shardmill.base.format.mds.encodings import is_stock

        encodings: dict[str, list[str]] = {}
        always: dict[str, int] = {}
        registered = set()
        for form, columns in found:
            masks = set() if is_stored else {mask for *_, mask in columns}
            for name, given, has_value, mask in columns:
                if name in masks:
                    continue
                is_always = has_value and (is_stored or mask is None)
                encoding = field_encoding(name) if form == 'webdataset' else given
                known = encodings.setdefault(name, [])
                if encoding not in known:
                    known.append(encoding)
                always[name] = always.get(name, 0) + is_always
                if form == 'mds' and not is_stock(given):
                    registered.add(name)
        return cls(
            [
                ColumnSchema(
                    name,
                    first,
                    *((None, None) if others or name in registered else _numbers_of(first)),
                    nullable=always[name] < len(found),
                    other_encodings=tuple(others),
                    is_registered=name in registered,
                )
                for name, (first, *others) in encodings.items()
            ]
        )

    def __getitem__(self, name: str) -> ColumnSchema:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __hash__(self) -> int:
        return hash(tuple(self._columns.values()))

    def null_mask(self, name: str) -> Optional[str]:
        """Returns the column that says which values of a column are null; ``None`` if there is none.

        ``shardmill convert --nulls mask`` writes such columns: ``NAME__is_null``, of ``uint8``.
        """
        mask = self._columns.get(name + _MASK)
        is_mask = name in self._columns and mask is not None and mask.dtype == 'uint8'
        return name + _MASK if is_mask else None

    def select(
        self, columns: Optional[Sequence[str]] = None, *, apply_null_masks: bool = True
    ) -> list[ColumnSchema]:
        """Returns columns in the given order.

        Args:
            columns: Their names; by default all columns.
            apply_null_masks: Whether masks are left out of the default, because they become nulls.

        Raises:
            UsageError: A column does not exist or is given twice.
        """
        if isinstance(columns, str):
            text = 'columns: a list of names, not a text'
            raise UsageError(text, 'config-value', 'columns')
        if columns is None:
            masks = {self.null_mask(name) for name in self} if apply_null_masks else set()
            return [column for column in self.values() if column.name not in masks]
        for number, name in enumerate(columns):
            if name not in self._columns:
                text = f'there is no column `{name}`, only {", ".join(self)}'
                raise UsageError(text, 'config-columns', name)
            if name in columns[:number]:
                raise UsageError(f'column `{name}` is given twice', 'config-columns', name)
        return [self._columns[name] for name in columns]

    def to_arrow(
        self,
        columns: Optional[Sequence[str]] = None,
        *,
        like: Optional[Mapping[str, Any]] = None,
        apply_null_masks: bool = True,
    ) -> pa.Schema:
        """Returns the Arrow schema of the columns.

        Args:
            columns: The names of the columns; by default all columns.
            like: Arrays by column, whose types and numbers of dimensions are used where an encoding lacks them.
            apply_null_masks: Whether columns with a mask are nullable, and the masks are left out.

        Raises:
            UnsupportedError: A column has no Arrow type.
            UsageError: A column does not exist.
        """
        import pyarrow as pa

        fields = []
        for column in self.select(columns, apply_null_masks=apply_null_masks):
            masked = apply_null_masks and self.null_mask(column.name) is not None
            kind = column.arrow_type((like or {}).get(column.name))
            fields.append(pa.field(column.name, kind, column.nullable or masked))
        return pa.schema(fields)

    def __repr__(self) -> str:
        return f'Schema({", ".join(map(str, self.values()))})'

    def _repr_html_(self) -> str:
        rows = [
            (
                column.name,
                ' or '.join((column.encoding, *column.other_encodings)),
                column.dtype,
                None if column.shape is None else str(column.shape),
                'yes' if column.nullable else '',
            )
            for column in self.values()
        ]
        return html_table(rows, ('column', 'encoding', 'dtype', 'shape', 'nullable'))
