"""Packing: documents of tokens as contexts of one length, or as batches with a limited number of tokens."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Optional, Union

from shardmill import _core
from shardmill.base import _arguments as check
from shardmill.base._live import given_view
from shardmill.base._state import config_of
from shardmill.errors import ConflictError, NotFoundError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from shardmill.base._sharding import RankLayout
    from shardmill.base._typing import Path
    from shardmill.mixtures import Mixture
    from shardmill.views import View
    from shardmill.windows import Window

__all__ = ['Packing', 'lengths']

#: What NumPy calls the types that tokens may have.
_DTYPES = ('uint8', 'int8', 'uint16', 'int16', 'uint32', 'int32', 'uint64', 'int64')


class Packing:
    """How the documents of a dataset become rows of tokens.

    Give ``length`` or ``max_tokens``. With ``length``, documents are packed into contexts of so many tokens, and
    ``batch_size`` counts contexts. With ``max_tokens``, documents of similar lengths are batched; ``batch_size`` is 1,
    and each item of the dataset is a batch.

    A batch has these arrays of the shape ``[rows, tokens]``: ``input_ids``; ``labels``, which are the tokens again, but
    -100 for padding and for the first token of each document; ``position_ids``, which begin at 0 in each document;
    ``document_ids``, which count the documents of a row from 0 and are -1 for padding. ``repeated`` says which rows
    are repeated so that all ranks receive equally many. ``cu_seqlens``, in whole batches, are the boundaries of all
    documents and padding in the flattened batch.

    Args:
        column: The column with the tokens of a document: an array of integers, or bytes.
        length: The tokens of a context.
        max_tokens: The most tokens of a batch, which include padding.
        padded: Whether each document of a batch of ``max_tokens`` has a row that is padded to the longest one.
            Otherwise they follow one another in a single row.
        pool: How many documents are considered together. More fill rows better, and move documents further.
        long: What happens to a document that is longer than a row: ``'split'``, ``'truncate'``, or ``'error'``.
        last: What happens at the end of an epoch if rows do not divide evenly: ``'repeat'`` repeats the first ones,
            ``'drop'`` leaves out the last ones, and ``'short'`` gives some ranks fewer.
        padding_id: The token that fills rows.
        dtype: The type of the tokens in a column of bytes, such as ``'uint16'``.
        token_lengths: The tokens of each sample, by its number. By default they are those that
            ``convert(lengths=...)`` or ``shardmill index lengths`` wrote. Without these they are measured, which reads
            a local dataset once.

    Raises:
        ValueError: Not one of ``length`` and ``max_tokens`` is given, or an argument is invalid.
    """

    def __init__(
        self,
        column: str = 'tokens',
        *,
        length: Optional[int] = None,
        max_tokens: Optional[int] = None,
        padded: bool = True,
        pool: int = 4096,
        long: str = 'split',
        last: str = 'repeat',
        padding_id: int = 0,
        dtype: Optional[str] = None,
        token_lengths: Optional[ArrayLike] = None,
    ) -> None:
        if (length is None) == (max_tokens is None):
            raise UsageError(
                'give one of `length` and `max_tokens`: contexts of one length, or batches of documents',
                'config-value',
                'length',
            )
        self.column = check.text('column', column)
        self.length = check.whole_or_none('length', length, 1)
        self.max_tokens = check.whole_or_none('max_tokens', max_tokens, 1)
        self.padded = check.flag('padded', padded)
        self.pool = check.whole('pool', pool, 1, 1 << 24)
        self.long = check.choice('long', long, ('split', 'truncate', 'error'))
        self.last = check.choice('last', last, ('repeat', 'drop', 'short'))
        self.padding_id = check.whole('padding_id', padding_id, -(1 << 63))
        self.dtype = None if dtype is None else check.choice('dtype', dtype, _DTYPES)
        self.tokens = check.whole('length', self.length or self.max_tokens, 1, (1 << 31) - 1)
        self._lengths = None if token_lengths is None else _lengths(token_lengths)
        self._form = 'context' if max_tokens is None else 'padded' if self.padded else 'summed'

    def _with_lengths(self, lengths: NDArray[Any]) -> Packing:
        """Returns the same options with lengths."""
        made = Packing.__new__(Packing)
        made.__dict__.update(self.__dict__)
        made._lengths = lengths
        return made

    def _to_core(self) -> _core.TokenOptions:
        assert self._lengths is not None
        return _core.TokenOptions(
            column=self.column,
            dtype=self.dtype,
            lengths=self._lengths.tobytes(),
            padding_id=self.padding_id,
            form=self._form,
            tokens=self.tokens,
            pool=self.pool,
            long=self.long,
            last=self.last,
        )

    def _identity(self) -> dict[str, Any]:
        """Returns what decides the rows, for states."""
        assert self._lengths is not None
        digest = hashlib.sha256(self._lengths.tobytes()).hexdigest()[:32]
        return {
            'form': self._form,
            'tokens': self.tokens,
            'pool': self.pool,
            'long': self.long,
            'lengths': digest,
        }

    def __repr__(self) -> str:
        known = {'length': self.length, 'max_tokens': self.max_tokens}
        (given,) = (f'{name}={value}' for name, value in known.items() if value is not None)
        return f'Packing({self.column!r}, {given}, pool={self.pool}, last={self.last!r})'


def _lengths(values: ArrayLike) -> NDArray[Any]:
    """Returns lengths as 32-bit integers."""
    import numpy as np

    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in 'iu'):
        check.refuse_type('token_lengths', values, 'one integer for each sample')
    if array.size and not 0 <= int(array.min()) <= int(array.max()) < 1 << 32:
        check.refuse_value('token_lengths', values, 'numbers from 0 to 4294967295')
    return np.ascontiguousarray(array, '<u4')


def lengths(
    location: Path,
    column: str,
    *,
    with_deleted: bool = False,
    view: Union[View, Path, None] = None,
    storage_options: Optional[Mapping[str, str]] = None,
) -> NDArray[np.uint32]:
    """Returns the length of a column in every sample of a dataset, in order.

    The length of an array is its number of elements, and of text and other values their number of bytes. The lengths
    are read from a file beside the index, which ``convert(lengths=...)`` and ``shardmill index lengths`` write.

    Args:
        location: The dataset, in a directory or in a store.
        column: The column.
        with_deleted: Whether to also return the lengths of deleted samples.
        view: Only the samples of this view: a `View`, or the path of its file.
        storage_options: Store settings that are not in the environment.

    Raises:
        NotFoundError: There is no dataset, or it has no lengths of the column.
        ConflictError: The lengths or the view belong to another index.
        DataError: The file is damaged.
    """
    import numpy as np

    settings = check.storage_options(storage_options)
    place, name = check.path('location', location), check.text('column', column)
    chosen = given_view(view)
    selected = None if chosen is None else chosen._view
    found = _core.lengths(place, name, check.flag('with_deleted', with_deleted), settings, selected)
    return np.frombuffer(found, '<u4').astype(np.uint32, copy=False)


# Rows of tokens in the order of training.


class TokenReader:
    """The token batches of this worker, with the methods of `_core.Batches`."""

    def __init__(self, batches: _core.TokenBatches, packing: Packing) -> None:
        self._batches = batches
        self._is_context = packing.length is not None

    def next_columns(self, only: Optional[set[str]] = None) -> Optional[tuple[int, dict[str, Any]]]:
        """Returns the next batch: how many items of the dataset it has, and its arrays by name."""
        import numpy as np

        taken = self._batches.next()
        if taken is None:
            return None
        items, batch = taken
        columns = {
            name: np.asarray(batch[name])
            for name in ('input_ids', 'labels', 'position_ids', 'document_ids')
        }
        columns['cu_seqlens'] = np.array(np.frombuffer(batch['cu_seqlens'], '<i4'))
        columns['repeated'] = np.array(np.frombuffer(batch['repeated'], '?'))
        return items, columns

    def next_samples(self) -> Optional[list[dict[str, Any]]]:
        """Returns the items of the next batch: its rows, or the batch itself with ``max_tokens``."""
        taken = self.next_columns()
        if taken is None:
            return None
        items, columns = taken
        if not self._is_context:
            return [columns]
        # Those of the batch are no boundaries of a row.
        del columns['cu_seqlens']
        return [{name: values[row] for name, values in columns.items()} for row in range(items)]

    def stats(self) -> dict[str, Any]:
        """Returns statistics of reading, by name."""
        return self._batches.stats()

    def close(self) -> None:
        """Ends the iteration."""
        self._batches.close()


def given_packing(
    dataset: Any, packing: Packing, window: Optional[Window], mixture: Optional[Mixture]
) -> Packing:
    """Checks the packing of a dataset beside other arguments. Returns it with the lengths of the documents."""
    check.instances('packing', [packing], Packing)
    check_arguments(dataset, window, mixture)
    if dataset._fetches_in_python:
        check_unpacked(dataset, 'streams')
    return with_lengths(dataset, packing)


def with_lengths(dataset: Any, packing: Packing) -> Packing:
    """Returns packing with lengths: given ones, those beside the indexes, or measured ones."""
    if packing._lengths is not None:
        return packing
    lengths = _stored_lengths(dataset, packing)
    if lengths is None:
        if any(stream.remote is not None for stream in dataset.streams):
            raise UsageError(
                'there are no lengths, and measuring them would download the whole dataset',
                'config-lengths',
                'token_lengths',
                f'run `shardmill index lengths DATASET --column {packing.column}`, or give `token_lengths=...`',
            )
        import numpy as np

        measured = dataset._here().token_lengths(packing.column, packing.dtype)
        lengths = np.frombuffer(measured, '<u4')
    return packing._with_lengths(lengths)


def _stored_lengths(dataset: Any, packing: Packing) -> Optional[NDArray[Any]]:
    """Returns the lengths beside the indexes of the streams; ``None`` if there are none."""
    import numpy as np

    found = []
    for stream in dataset.streams:
        parts = (stream.remote or stream.local, stream.split)
        location = '/'.join(part.rstrip('/') for part in parts if part)
        settings = stream._settings()
        try:
            view = None if stream.view is None else stream.view._view
            of_stream = _core.lengths(location, packing.column, stream.with_deleted, settings, view)
        except NotFoundError:
            return None
        found.append(np.frombuffer(of_stream, '<u4'))
    lengths: NDArray[Any] = np.concatenate(found)
    is_bytes = dataset._columns[packing.column].encoding == 'bytes'
    if is_bytes and packing.dtype is not None:
        lengths //= np.dtype(packing.dtype).itemsize
    return lengths


def begin_rows(dataset: Any, config: _core.EpochOptions, rank: int, worker: int) -> TokenReader:
    """Begins an epoch and returns the token batches of a worker."""
    if not dataset._is_plain():
        raise UsageError(
            'packing reads documents in Rust, and this class overrides how samples are read',
            'config-packing',
            'packing',
        )
    packing: Packing = dataset.packing
    batches = dataset._here().token_batches(config, packing._to_core(), rank, worker)
    return TokenReader(batches, packing)


def rows_of(dataset: Any, order: RankLayout, epoch: int) -> int:
    """Returns the number of rows of an epoch, without repeated ones."""
    config = {**config_of(dataset, order), 'epoch': epoch}
    key = json.dumps(config, sort_keys=True)
    known: Optional[tuple[str, int]] = dataset._known_rows
    if known is None or known[0] != key:
        options = _core.EpochOptions(**config)
        rows = dataset._here().token_rows(options, dataset.packing._to_core())
        dataset._known_rows = known = key, rows
    return known[1]


def check_unpacked(dataset: Any, what: str) -> None:
    """Rejects a call that counts samples, while the dataset yields rows."""
    if dataset.packing is not None:
        raise UsageError(
            f'`{what}` counts samples, and with packing the dataset yields rows of tokens',
            'config-packing',
            'packing',
        )


def check_arguments(dataset: Any, window: Optional[Window], mixture: Optional[Mixture]) -> None:
    """Rejects arguments that contradict packing."""
    for name, value in (('window', window), ('mixture', mixture)):
        if value is not None:
            check_unpacked(dataset, name)
    if dataset.batching_method != 'random':
        raise UsageError(
            f'`batching_method` is {dataset.batching_method!r}, and packing needs `random`',
            'config-packing',
            'batching_method',
        )
    if dataset.packing.max_tokens is not None:
        if dataset.batch_size not in (None, 1):
            raise UsageError(
                f'`batch_size` is {dataset.batch_size}, and with `max_tokens` each item is a batch',
                'config-packing',
                'batch_size',
                'leave out `batch_size`, or give 1',
            )
        dataset.batch_size = 1


def check_packing(state: dict[str, Any], packing: Optional[Packing]) -> None:
    """Rejects a state that counts other rows, or samples instead of rows."""
    found = state.get('packing')
    expected = None if packing is None else packing._identity()
    if found != expected:
        raise ConflictError(
            f'The StreamingDataset state dict was made with the packing {found}, and this one is {expected}',
            'state-foreign',
            'packing',
            'resume with the packing and the lengths that the run began with, or start a new run',
        )
