"""Sources of `convert` that are no paths: Arrow streams, record batches and dicts. Needs pyarrow."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Optional

from shardmill.errors import DataError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

#: How many dicts become one record batch.
_ROWS = 1024


def is_stream(source: Any) -> bool:
    """Returns whether a source is a stream of rows, and not a path or a sequence of paths."""
    if hasattr(source, '__arrow_c_stream__'):
        return True
    if isinstance(source, (str, bytes, os.PathLike, Mapping)) or not isinstance(source, Iterable):
        return False
    if isinstance(source, (list, tuple)):
        return bool(source) and not isinstance(source[0], (str, os.PathLike))
    return True


def record_batches(source: Any) -> pa.RecordBatchReader:
    """Returns the rows of a source as record batches of one schema.

    Raises:
        UsageError: The source has no rows, or is no stream of rows; pyarrow is not installed.
        DataError: A row does not fit the schema of the first ones.
    """
    try:
        import pyarrow as pa
    except ImportError as error:
        message = 'streams need pyarrow, which is not installed'
        raise UsageError(
            message, 'config-source', 'source', 'pip install "shardmill[arrow]"'
        ) from error
    if hasattr(source, '__arrow_c_stream__'):
        return pa.RecordBatchReader.from_stream(source)
    rows = _items(source)
    first = next(rows, None)
    if first is None:
        message = 'it has no rows, and so no columns'
        raise UsageError(message, 'config-source', 'source', 'pass a pyarrow.Table with a schema')
    rows = itertools.chain([first], rows)
    batches = _of_dicts(rows) if isinstance(first, Mapping) else _of_batches(rows)
    one = next(batches)
    return pa.RecordBatchReader.from_batches(one.schema, itertools.chain([one], batches))


def _items(source: Iterable[Any]) -> Iterator[Any]:
    """Iterates once. Datasets that are their own iterators begin again whenever `iter` is called."""
    yield from source


def _of_batches(items: Iterator[Any]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for number, item in enumerate(items):
        if isinstance(item, pa.RecordBatch):
            yield item
        elif hasattr(item, '__arrow_c_array__'):
            yield pa.record_batch(item)
        elif hasattr(item, '__arrow_c_stream__'):
            yield from pa.RecordBatchReader.from_stream(item)
        else:
            message = f'item {number} is a {type(item).__name__}, not a record batch or a dict'
            raise UsageError(message, 'config-source', 'source')


def _of_dicts(rows: Iterator[Mapping[str, Any]]) -> Iterator[pa.RecordBatch]:
    """Collects dicts to batches, whose schema is that of the first one."""
    import pyarrow as pa

    schema = None
    first_row = 0
    hint = 'pass record batches, whose schema you choose'
    while block := list(itertools.islice(rows, _ROWS)):
        known = schema.names if schema else list(dict.fromkeys(itertools.chain(*block)))
        for number, row in enumerate(block, first_row):
            if unknown := set(row).difference(known):
                message = f'row {number} has {min(unknown)!r}, which none of the first rows has'
                raise DataError(message, 'arrow-schema-mismatch', 'source', hint)
        types = schema.types if schema else [None] * len(known)
        try:
            columns = [
                _column([row.get(name) for row in block], type) for name, type in zip(known, types)
            ]
        except (pa.ArrowException, TypeError, ValueError) as error:
            last_row = first_row + len(block) - 1
            message = f'rows {first_row} to {last_row}: {error}'
            raise DataError(message, 'arrow-schema-mismatch', 'source', hint) from error
        batch = pa.RecordBatch.from_arrays(columns, known)
        schema = batch.schema
        first_row += len(block)
        yield batch


def _column(values: list[Any], type: Optional[pa.DataType]) -> pa.Array:
    """Returns values as an array of a type, if they are exact in it; without one, of the type that Arrow infers."""
    import pyarrow as pa

    column = pa.array(values)
    if type is None or column.type == type:
        return column
    # The first one refuses texts as numbers and accepts 1.5 as 1; with the second one it is the other way round.
    pa.array(values, type)
    return column.cast(type)
