"""Rows of tokens in the order of training."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Optional

from shardmill.base import _arguments as check
from shardmill.base._state import config_of
from shardmill.errors import ConflictError, NotFoundError, UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from shardmill import _core
    from shardmill.base._sharding import RankLayout
    from shardmill.packing import Packing


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


def given_packing(dataset: Any, packing: Packing, **others: Any) -> Packing:
    """Checks the packing of a dataset beside other arguments. Returns it with the lengths of the documents."""
    from shardmill.packing import Packing

    check.instances('packing', [packing], Packing)
    check_arguments(dataset, **others)
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

    from shardmill import _core

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
    from shardmill import _core

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


def check_arguments(dataset: Any, **others: Any) -> None:
    """Rejects arguments that contradict packing."""
    for name, value in others.items():
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
