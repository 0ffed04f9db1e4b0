"""Packing: documents of tokens as contexts of one length, or as batches with a limited number of tokens."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Optional, Union

from shardmill import _core
from shardmill.base import _arguments as check
from shardmill.base._live import given_view
from shardmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from shardmill.base._typing import Path
    from shardmill.views import View

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
