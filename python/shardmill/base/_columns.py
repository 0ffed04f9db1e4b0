"""Builds Arrow arrays and record batches from the values of columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Optional

from shardmill.base import _arguments as check
from shardmill.errors import DataError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from shardmill import _core
    from shardmill.schema import ColumnSchema

#: Bytes of samples in a record batch, by their average size.
_BATCH_BYTES = 16 << 20
_MAX_SAMPLES = 1 << 16
#: How many shards are fetched ahead.
_SHARDS_AHEAD = 4


def stored_value(encoding: str, data: bytes) -> Any:
    """Returns a value that the extension module does not decode as it is stored: bytes, or a list of files."""
    from shardmill.base.format.mds.encodings import is_stock, stored_items

    is_list = encoding.startswith('list[') or encoding in ('jpeg_array', 'jpegarray')
    return stored_items(encoding, data) if is_list and is_stock(encoding) else bytes(data)


class Column(NamedTuple):
    """A column of a table: its values in samples and in Arrow, and the column with its nulls, if any."""

    schema: ColumnSchema
    field: pa.Field
    mask: Optional[str]


def record_batches(
    dataset: Any,
    start: Optional[int],
    stop: Optional[int],
    columns: Optional[Sequence[str]],
    batch_size: Optional[int],
    apply_null_masks: bool,
) -> pa.RecordBatchReader:
    """Returns a reader of the record batches of a dataset, with the arguments of `iter_arrow`."""
    import pyarrow as pa

    size = dataset.num_samples
    begin, end, _ = slice(start, stop).indices(size)
    end = max(begin, end)
    known = dataset._columns
    chosen = known.select(columns, apply_null_masks=apply_null_masks)
    reader = dataset._here()
    ranges = reader.ranges(stored_value)
    like: dict[str, Any] = {}
    unknown = [each.name for each in chosen if each.is_array and each.shape is None]
    if unknown and size:
        # The encodings do not say how many dimensions these arrays have.
        at = min(begin, size - 1)
        dataset._make_local(at, at + 1)
        like = _first(ranges.read(at, at + 1, set(unknown))[1])
    names = [each.name for each in chosen]
    schema = known.to_arrow(names, like=like, apply_null_masks=apply_null_masks)
    made = [
        Column(each, field, known.null_mask(each.name) if apply_null_masks else None)
        for each, field in zip(chosen, schema)
    ]
    if batch_size is None:
        average = max(1, reader.raw_bytes // max(1, size))
        batch_size = max(1, min(_BATCH_BYTES // average, _MAX_SAMPLES))
    step = check.whole('batch_size', batch_size, 1)
    only = {*names, *(column.mask for column in made if column.mask is not None)}

    def batches() -> Iterator[pa.RecordBatch]:
        ahead = _Ahead(reader, begin, end)
        for at in range(begin, end, step):
            last = min(at + step, end)
            ahead.move_to(last)
            dataset._make_local(at, last)
            samples, batch = ranges.read(at, last, only)
            yield record_batch(made, batch, samples, at, schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _first(batch: Any) -> dict[str, Any]:
    """Returns the values of the first sample of a batch."""
    import numpy as np

    if not isinstance(batch, dict):
        return {name: value for name, value in batch[0].items() if value is not None}
    return {
        name: (values if isinstance(values, list) else np.asarray(values))[0]
        for name, values in batch.items()
    }


class _Ahead:
    """Fetches the next shards of a range in the background."""

    def __init__(self, reader: _core.Reader, start: int, stop: int) -> None:
        import numpy as np

        sizes = np.concatenate([np.frombuffer(each, np.int64) for each in reader.shard_sizes()])
        firsts = (np.cumsum(sizes) - sizes)[sizes > 0]
        self._reader = reader
        self._firsts = [int(first) for first in firsts if start < first < stop]
        self._requested = 0

    def move_to(self, stop: int) -> None:
        """Requests the shards after a sample, unless they were requested before."""
        import bisect

        wanted = bisect.bisect_left(self._firsts, stop) + _SHARDS_AHEAD
        ahead = self._firsts[self._requested : wanted]
        if ahead:
            self._reader.preload(ahead)
            self._requested += len(ahead)


def record_batch(
    columns: Sequence[Column],
    batch: Any,
    samples: int,
    first: int,
    schema: pa.Schema,
    tensors: Optional[Callable[[Any], Any]] = None,
) -> pa.RecordBatch:
    """Builds a record batch. `tensors` makes the columns of arrays, which may have other types than in `schema`."""
    import pyarrow as pa

    arrays = []
    for column in columns:
        name = column.schema.name
        values = _values(batch, name, samples)
        mask = None if column.mask is None else mask_of(_values(batch, column.mask, samples))
        try:
            if tensors is not None and column.schema.is_array:
                arrays.append(tensors(values))
            else:
                arrays.append(_array(column, values, mask, first))
        except (pa.ArrowException, OverflowError, TypeError) as error:
            where = f'samples {first} to {first + samples - 1}'
            text = f'column {name}: a value of {where} is not of type {column.field.type}: {error}'
            raise DataError(text, 'type-unsupported', name, 'choose other columns') from error
    if not arrays:
        # A batch without columns has a length nevertheless.
        return pa.RecordBatch.from_struct_array(pa.array([{}] * samples, pa.struct([])))
    if tensors is not None:
        return pa.RecordBatch.from_arrays(arrays, names=schema.names)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _values(batch: Any, name: str, samples: int) -> Any:
    """Returns the values of a column: an array for numbers, a list for others, with ``None`` where there is none."""
    if not isinstance(batch, dict):
        return [sample.get(name) for sample in batch]
    values = batch.get(name, [None] * samples)
    if isinstance(values, list):
        return values
    import numpy as np

    return np.asarray(values)


def mask_of(values: Any) -> Optional[NDArray[np.bool_]]:
    """Returns for each sample whether its value is null, from the values of a mask.

    Only 1 stands for a null: 2 marks a list whose inner nulls became 0.
    """
    import numpy as np

    mask = np.asarray(
        [value == 1 for value in values] if isinstance(values, list) else values == 1, np.bool_
    )
    return mask if mask.any() else None


def _array(column: Column, values: Any, mask: Optional[NDArray[np.bool_]], first: int) -> pa.Array:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.field.type
    if column.schema.is_array:
        array = _arrays(column, values, first)
    elif isinstance(values, np.ndarray):
        array = pa.array(values, kind)
    else:
        array = pa.array(_decoded(column, values, first), kind)
    if mask is None:
        return array
    return pc.if_else(pa.array(mask), pa.scalar(None, kind), array)


def _decoded(column: Column, values: list[Any], first: int) -> list[Any]:
    """Decodes text that is still bytes, and WebDataset fields with an extension of integers."""
    if column.field.type == 'string':
        convert, id, what = _text, 'sample-utf8', 'text in UTF-8'
    elif column.schema.encoding == 'int':
        convert, id, what = _integer, 'number-text', 'a whole number'
    else:
        return values
    decoded: list[Any] = []
    for number, value in enumerate(values):
        try:
            decoded.append(convert(value))
        except ValueError:
            name = column.schema.name
            text = f'column {name}: sample {first + number} has something else than {what}'
            # Not `from`: the message of the codec adds nothing.
            raise DataError(text, id, name, 'choose other columns') from None
    return decoded


def _text(value: Any) -> Any:
    return bytes(value).decode() if isinstance(value, (bytes, bytearray, memoryview)) else value


def _integer(value: Any) -> Any:
    return int(value) if isinstance(value, (bytes, bytearray)) else value


def _arrays(column: Column, values: Any, first: int) -> pa.Array:
    """Converts NumPy arrays to nested lists, copying the numbers of all arrays at once."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.field.type
    depth, inner = depth_of(kind)
    missing = None
    if isinstance(values, list) and any(value is None for value in values):
        missing = pa.array([value is None for value in values])
        nothing = np.zeros(column.schema.shape or (0,) * depth, inner.to_pandas_dtype())
        values = [nothing if value is None else value for value in values]
    _check_arrays(column, values, depth, np.dtype(inner.to_pandas_dtype()), first)
    if pa.types.is_fixed_size_list(kind):
        whole = values if isinstance(values, np.ndarray) else np.stack(values)
        array = pa.array(whole.reshape(-1), inner)
        for size in reversed(whole.shape[1:]):
            array = pa.FixedSizeListArray.from_arrays(array, size)
        array = array.cast(kind)
    else:
        array = _lists(column.schema.name, list(values), kind)
    return array if missing is None else pc.if_else(missing, pa.scalar(None, kind), array)


def _check_arrays(
    column: Column, values: Any, depth: int, dtype: np.dtype[Any], first: int
) -> None:
    """Checks that arrays have the type and the number of dimensions of their column."""
    import numpy as np

    if isinstance(values, np.ndarray):
        found = [(values.dtype, values.ndim - 1)]
    else:
        found = [(value.dtype, value.ndim) for value in values]
    for number, (own, dimensions) in enumerate(found):
        if (own, dimensions) != (dtype, depth):
            text = (
                f'column {column.schema.name}: the array of sample {first + number} has {dimensions} dimensions of '
                f'{own}, and the column has {depth} of {dtype}'
            )
            hint = 'choose other columns, or read the arrays with `batches`'
            raise UnsupportedError(text, 'type-unsupported', column.schema.name, hint)


def depth_of(kind: Any) -> tuple[int, Any]:
    """Returns how many lists a type is nested in, and the type of the numbers."""
    import pyarrow as pa

    depth = 0
    while pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        depth, kind = depth + 1, kind.value_type
    return depth, kind


def _lists(name: str, values: Sequence[NDArray[Any]], data_type: Any) -> pa.Array:
    """Converts NumPy arrays to lists of variable lengths, copying the numbers of all arrays at once."""
    import numpy as np
    import pyarrow as pa

    if not values:
        return pa.array([], data_type)
    depth, inner = depth_of(data_type)
    flat = np.concatenate([np.ravel(value) for value in values])
    if len(flat) > np.iinfo(np.int32).max:
        raise UnsupportedError(
            f'column {name}: a batch has {len(flat)} numbers, more than an Arrow list holds',
            'type-unsupported',
            name,
            'read smaller batches',
        )
    array = pa.array(flat, inner)
    # Build offsets for each level, from the innermost list.
    for level in range(depth - 1, -1, -1):
        lengths = [
            np.repeat(value.shape[level], int(np.prod(value.shape[:level]))) for value in values
        ]
        offsets = np.zeros(sum(map(len, lengths)) + 1, np.int32)
        np.cumsum(np.concatenate(lengths), out=offsets[1:])
        array = pa.ListArray.from_arrays(offsets, array)
    return array.cast(data_type)
