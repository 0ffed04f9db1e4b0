"""Batches of NumPy arrays in the order of training, without torch."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Optional

from shardmill import _core
from shardmill.base import _arguments as check
from shardmill.base._collate import union_of
from shardmill.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Self

#: Encodings whose values are Python objects, even if those of one batch are numbers.
_OBJECTS = frozenset(('json', 'str_decimal', 'str_float', 'str_int'))


class BatchIterator(Iterator[dict[str, 'NDArray[Any]']]):
    """The batches of this rank in one epoch. The epoch begins with the first batch that is requested.

    As a context manager it stops its threads at the end of the block.

    Attributes:
        num_samples_yielded: Samples returned since the iteration began.
    """

    def __init__(
        self, dataset: Any, columns: Optional[list[str]], drop_last: bool, batch_size: int
    ) -> None:
        self._dataset = dataset
        self._names = columns
        self._drop_last = drop_last
        self._size = batch_size
        self._batches: Optional[Generator[tuple[int, dict[str, NDArray[Any]]], None, None]] = None
        self.num_samples_yielded = 0

    def __next__(self) -> dict[str, NDArray[Any]]:
        if self._batches is None:
            self._batches = self._read() if self._dataset._is_plain() else self._stacked()
        samples, batch = next(self._batches)
        self.num_samples_yielded += samples
        return batch

    def _read(self) -> Generator[tuple[int, dict[str, NDArray[Any]]], None, None]:
        """Yields batches that Rust has assembled, each after its number of samples."""
        schema = self._dataset._sample_columns
        names = list(schema) if self._names is None else self._names
        only = None if self._names is None else set(names)
        window = self._dataset.window
        padding = [] if window is None else window._padding(names)
        required = () if self._names is None else names
        objects = {
            column.name
            for column in schema.values()
            if column.encoding in _OBJECTS and not column.is_registered
        }
        windows = {name for name in names if window is not None and window._has(name)}
        batches = self._dataset._begin()
        is_packed = self._dataset.packing is not None
        try:
            while True:
                taken = batches.next_columns(only)
                if taken is None:
                    return
                samples, batch = taken
                if is_packed:
                    if not self._drop_last or samples == self._size:
                        yield samples, batch
                    continue
                if samples and not (self._drop_last and samples < self._size):
                    yield (
                        samples,
                        {
                            name: array_of(
                                values,
                                name in objects,
                                name in windows,
                            )
                            for name, values in _columns_of(
                                batch, [*names, *padding], required, samples
                            )
                        },
                    )
        finally:
            batches.close()

    def _stacked(self) -> Generator[tuple[int, dict[str, NDArray[Any]]], None, None]:
        """Yields batches of samples from overridden methods."""
        samples = iter(self._dataset)
        try:
            while taken := list(islice(samples, self._size)):
                if not isinstance(taken[0], dict):
                    check.refuse_type('dataset', taken[0], 'a dataset whose samples are dicts')
                if self._drop_last and len(taken) < self._size:
                    return
                columns = union_of(taken)
                names = list(columns) if self._names is None else self._names
                for name in names:
                    if name not in columns:
                        # Raises an error if no sample can have the column.
                        self._dataset._sample_columns.select([name])
                found = _columns_of(columns, names, names, len(taken))
                yield len(taken), {name: array_of(values) for name, values in found}
        finally:
            # An iterator of a subclass may be no generator.
            close = getattr(samples, 'close', None)
            if close is not None:
                close()

    def state_dict(self) -> dict[str, Any]:
        """Returns the position after the last returned batch, for `StreamingDataset.load_state_dict`.

        Samples that were prefetched do not count.
        """
        samples = self.num_samples_yielded * self._dataset._set_world().num_ranks
        samples //= self._dataset.replication or 1
        state: dict[str, Any] = self._dataset.state_dict(samples, False)
        return state

    def close(self) -> None:
        """Ends the iteration and stops its threads."""
        if self._batches is not None:
            self._batches.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _columns_of(
    batch: Any, names: Sequence[str], required: Sequence[str], samples: int
) -> Iterator[tuple[str, Any]]:
    """Yields the columns that a sample of a batch has, and the required ones.

    The batch may be a list of samples with different columns.
    """
    columns = batch if isinstance(batch, dict) else union_of(batch)
    for name in names:
        if name in columns:
            yield name, columns[name]
        elif name in required:
            yield name, [None] * samples


def array_of(values: Any, as_objects: bool = False, are_windows: bool = False) -> NDArray[Any]:
    """Returns the values of a column as an array with one item per sample.

    Numbers, and arrays of the same shape and type, become an array of numbers. Other values become an array of
    objects, ``[samples, offsets]`` for lists that are windows.
    """
    import numpy as np

    if isinstance(values, (_core.Block, np.ndarray)):
        return np.asarray(values)
    kinds = set() if as_objects else {type(value) for value in values}
    if len(kinds) == 1:
        (kind,) = kinds
        if kind is int and all(-(1 << 63) <= value < 1 << 63 for value in values):
            return np.array(values, np.int64)
        if kind is float or issubclass(kind, np.number):
            return np.array(values)
        if kind is np.ndarray and len({(value.dtype, value.shape) for value in values}) == 1:
            return np.stack(values)
    width = len(values[0]) if are_windows and kinds == {list} else None
    array = np.empty(len(values) if width is None else (len(values), width), object)
    for number, value in enumerate(values):
        if width is None:
            array[number] = value
        else:
            for place, each in enumerate(value):
                array[number, place] = each
    return array


def stacked(values: list[Any]) -> Any:
    """Returns the values of a window as an array; as a list if they are no numbers or arrays of one shape."""
    array = array_of(values)
    return values if array.dtype == object else array


def batches_of(
    dataset: Any, batch_size: Optional[int], drop_last: bool, columns: Optional[Sequence[str]]
) -> BatchIterator:
    """Returns the batches of a dataset, as `StreamingDataset.batches` describes."""
    size = check.whole_or_none('batch_size', batch_size, 1)
    if size is None and dataset.batch_size is None:
        text = 'neither `batches` nor the dataset has a batch size, and the order of samples depends on it'
        raise UsageError(text, 'config-value', 'batch_size', 'give `batch_size=...`')
    if size is not None and dataset.batch_size not in (None, size):
        text = (
            f'`batch_size` is {size}, and that of the dataset is {dataset.batch_size}: the order of samples depends '
            f'on it'
        )
        raise UsageError(text, 'config-value', 'batch_size', 'give both the same value')
    if size is not None:
        dataset.batch_size = size
    assert dataset.batch_size is not None
    names = None if columns is None else check.texts('columns', columns, 'a list of names')
    if names is not None and dataset._is_plain():
        dataset._sample_columns.select(names)
    drop_last = check.flag('drop_last', drop_last)
    if dataset.packing is not None:
        check.not_given('packing', columns=columns)
    return BatchIterator(dataset, names, drop_last, dataset.batch_size)
