"""Writes one dataset from many tasks: each task writes a part, and a commit publishes all of them.

:func:`begin` starts a job. Each task writes its share of the rows with :func:`write_part`. The driver then publishes
one attempt of each part with :func:`commit`; until then readers see nothing. :func:`abort` removes what was not
committed. :func:`gc` does so for jobs that were killed.

    with begin('/data/tokens') as staging:    # an error in the block removes what was written
        manifests = [write_part(batches, staging, part) for part, batches in enumerate(shares)]
        commit(manifests, staging)

The same parts produce the same bytes, whichever engine wrote them and however often a task was retried.
"""

from __future__ import annotations

import os
import uuid
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Union

from shardmill import _core
from shardmill.base import _arguments as check
from shardmill.base._signatures import renamed
from shardmill.errors import ShardmillError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from typing_extensions import Self

    from shardmill.base._typing import Path

    Columns = Union[Mapping[str, Optional[str]], Sequence[str]]

__all__ = [
    'Committed',
    'Leftover',
    'PartWriter',
    'Staging',
    'abort',
    'begin',
    'commit',
    'gc',
    'write_part',
]

#: The default maximum of raw bytes per shard.
SIZE_LIMIT = 1 << 26


@dataclass(frozen=True)
class Staging:
    """The settings shared by all tasks of a job and its commit. Tasks are pickled with it.

    As a context manager in the driver it removes what was not committed if the block ends with an error, as
    :func:`abort` does.

    Attributes:
        out: The folder or the URL of the dataset.
        text: The other settings, serialized by the extension module.
        storage_options: Store settings that are not in the environment.
    """

    out: str
    text: str
    storage_options: Optional[dict[str, str]] = field(default=None, repr=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], *_: object) -> None:
        if kind is None:
            return
        try:
            abort(self)
        except ShardmillError as problem:
            # The error of the block is the one to raise.
            text = f'{self.out}: the files of the failed job remain, and `parts.gc` finds them: {problem}'
            warnings.warn(text, stacklevel=2)


class Committed(NamedTuple):
    """A published dataset.

    Attributes:
        shards: Shards of this job.
        samples: Samples of this job.
        total_samples: Samples of the whole dataset, including existing ones.
        was_done: Whether an earlier call already published this index.
    """

    shards: int
    samples: int
    total_samples: int
    was_done: bool


class Leftover(NamedTuple):
    """A file or folder that no dataset needs.

    Attributes:
        name: Its name, relative to the dataset.
        bytes: Its size in bytes.
        reason: ``attempt``, ``unlisted`` or ``temporary``.
    """

    name: str
    bytes: int
    reason: str


@renamed(dest='out', pattern='shard_pattern')
def begin(
    out: Path,
    *,
    to: str = 'mds',
    mode: str = 'error',
    shard_pattern: Optional[str] = None,
    job: Optional[str] = None,
    storage_options: Optional[Mapping[str, str]] = None,
) -> Staging:
    """Inspects the destination and chooses the names of the job's files. Writes nothing.

    Args:
        out: A folder or the URL of a prefix in a store.
        to: ``mds`` or ``webdataset``.
        mode: How to treat an existing dataset. ``error`` fails. ``append`` adds the new samples after the existing
            ones. ``overwrite`` replaces it and leaves the old shards for :func:`gc` to remove.
        shard_pattern: The pattern of tar shard names, such as ``shard-%06d.tar``.
        job: Letters and digits unique to this job; ``None`` for random ones.
        storage_options: Store settings that are not in the environment.

    Raises:
        ConflictError: A dataset exists, and the mode is ``error``.
    """
    out = check.path('out', out)
    to, mode = check.text('to', to), check.text('mode', mode)
    if '://' not in out and not out.startswith('dbfs:'):
        # Tasks may run in another working directory.
        out = os.path.abspath(out)
    settings = dict(storage_options) if storage_options else None
    text = _core.parts_begin(out, to, shard_pattern, job or uuid.uuid4().hex[:16], mode, settings)
    return Staging(out, text, settings)


class PartWriter:
    """Writes one attempt of a part, batch by batch.

    As a context manager it removes what it has written, unless :meth:`finish` was called.

    All work is done in the caller's thread. Memory holds one shard and its compressed bytes.

    Args:
        staging: The result of :func:`begin`.
        part_id: The number of the part, from 0.
        attempt: Letters and digits unique to this attempt within the job; ``None`` for random ones.
        columns: The columns to write: their names, or their encodings by name. ``None`` as an encoding selects the
            default of the column's type. ``'*'`` stands for all columns that are not named; a column of that name is
            ``'"*"'``. By default all columns are written, and WebDataset fields get a matching
            extension.
        compression: A compression, such as ``zstd:3``; ``None`` or ``'none'`` for none.
        hashes: Names of the hashes to store in the index: a list, or text separated by commas.
        size_limit: Maximum raw bytes per shard, as a number or as text such as ``'64mb'`` or ``'64MiB'``. ``None``,
            ``'none'`` or 0 for a single shard.
        samples_per_shard: Maximum samples per shard, as a number or as text such as ``'10k'``.
        key: The column with the keys of WebDataset samples. By default keys are numbers, prefixed with the part number.
        temp_dir: The folder for shards that are waiting for upload.
    """

    @renamed(scratch='temp_dir')
    def __init__(
        self,
        staging: Staging,
        part_id: int,
        attempt: Optional[str] = None,
        *,
        columns: Optional[Columns] = None,
        compression: Optional[str] = None,
        hashes: Union[str, Sequence[str]] = (),
        size_limit: Optional[Union[int, str]] = SIZE_LIMIT,
        samples_per_shard: Optional[Union[int, str]] = None,
        key: Optional[str] = None,
        temp_dir: Optional[Path] = None,
    ) -> None:
        _check_staging(staging)
        if compression is not None:
            compression = check.text('compression', compression)
        limit = None if size_limit == 'none' else size_limit
        self._core = _core.PartWriter(
            staging.out,
            staging.text,
            check.whole('part_id', part_id),
            attempt or uuid.uuid4().hex[:16],
            staging.storage_options,
            columns=_pairs(columns),
            compression=None if compression == 'none' else compression or None,
            hashes=_hashes(hashes),
            size_limit=check.byte_size('size_limit', limit) or None,
            samples_per_shard=count_of('samples_per_shard', samples_per_shard),
            key=key,
            scratch=check.path_or_none('temp_dir', temp_dir),
        )

    def check(self, batch: Any) -> None:
        """Checks that the columns of an Arrow table, record batch or stream can be written with these options.

        Writes nothing, so that a driver can call it before tasks start.

        Raises:
            ShardmillError: A column is missing or its type has no encoding, or an option has an invalid value.
        """
        self._core.check(batch)

    def write(self, batch: Any) -> int:
        """Adds the rows of an Arrow table, record batch or stream. Returns the number of rows.

        Raises:
            ShardmillError: A row cannot be stored, or a shard cannot be written. The attempt then ends, and its files
                are removed.
        """
        return self._core.write_arrow(batch)

    def finish(self) -> str:
        """Writes the last shard and ends the attempt.

        Returns:
            The manifest, a short text for :func:`commit`.
        """
        return self._core.finish()

    def abort(self) -> None:
        """Removes what was written. Does nothing after :meth:`finish`."""
        self._core.abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()


@renamed(scratch='temp_dir')
def write_part(
    batches: Iterable[Any],
    staging: Staging,
    part_id: int,
    attempt: Optional[str] = None,
    *,
    columns: Optional[Columns] = None,
    compression: Optional[str] = None,
    hashes: Union[str, Sequence[str]] = (),
    size_limit: Optional[Union[int, str]] = SIZE_LIMIT,
    samples_per_shard: Optional[Union[int, str]] = None,
    key: Optional[str] = None,
    temp_dir: Optional[Path] = None,
) -> str:
    """Writes one part of a dataset. The other arguments are those of :class:`PartWriter`.

    Args:
        batches: Arrow tables or record batches, in order.

    Returns:
        The manifest, a short text for :func:`commit`.
    """
    writer = PartWriter(
        staging,
        part_id,
        attempt,
        columns=columns,
        compression=compression,
        hashes=hashes,
        size_limit=size_limit,
        samples_per_shard=samples_per_shard,
        key=key,
        temp_dir=temp_dir,
    )
    with writer:
        for batch in batches:
            writer.write(batch)
        return writer.finish()


def commit(
    manifests: Iterable[str],
    staging: Staging,
    *,
    parts: Optional[int] = None,
    verify: str = 'size',
) -> Committed:
    """Publishes one attempt of every part as a dataset, ordered by part number.

    Checks every file, then writes the index. Committing the same manifests again is not an error.

    Args:
        manifests: The manifests that the tasks returned, in any order.
        staging: The result of :func:`begin`.
        parts: The expected number of parts. By default all parts from 0 to the largest number must be present.
        verify: ``size`` checks file sizes; ``hash`` also reads all bytes of all shards again.

    Raises:
        UsageError: A part is missing, duplicated, or from another job or of another format.
        DataError: A file differs from what was written.
        ConflictError: The dataset changed since the job began, or another process is committing.
    """
    if verify not in ('size', 'hash'):
        raise UsageError(f'verify: {verify!r} is neither size nor hash', 'config-value')
    _check_staging(staging)
    texts = check.texts('manifests', manifests, 'a list of manifests')
    if parts is not None and len(texts) > check.whole('parts', parts):
        text = f'there are {len(texts)} parts, and there have to be {parts}'
        raise UsageError(text, 'limit-parts')
    return Committed(
        *_core.parts_commit(
            staging.out,
            staging.text,
            texts,
            parts,
            verify == 'hash',
            staging.storage_options,
        )
    )


def abort(staging: Staging) -> int:
    """Removes what a job has written and not committed. Returns the number of files and folders.

    Tasks that are still running may leave more files; :func:`gc` finds them.
    """
    _check_staging(staging)
    return _core.parts_abort(staging.out, staging.text, staging.storage_options)


@renamed(dest='out', pattern='shard_pattern')
def gc(
    out: Path,
    *,
    delete: bool = False,
    older_than: Optional[float] = 86400.0,
    shard_pattern: Optional[str] = None,
    storage_options: Optional[Mapping[str, str]] = None,
) -> list[Leftover]:
    """Finds files that no dataset needs: leftovers of killed jobs, and shards that are not in the index.

    Args:
        out: A folder or the URL of a prefix in a store.
        delete: Whether to remove them.
        older_than: Only include what has not changed for this many seconds; ``None`` for everything, which requires
            that no job is running. Some stores do not report ages, and support only ``None``.
        shard_pattern: The pattern of tar shard names, if it is not ``shard-%06d.tar``.
        storage_options: Store settings that are not in the environment.
    """
    settings = dict(storage_options) if storage_options else None
    delete = check.flag('delete', delete)
    if older_than is not None:
        older_than = check.number('older_than', older_than)
    found = _core.parts_gc(check.path('out', out), delete, older_than, shard_pattern, settings)
    return [Leftover(*entry) for entry in found]


def _check_staging(staging: Staging) -> None:
    if not isinstance(staging, Staging):
        check.refuse_type('staging', staging, 'what `begin` returned')


def _pairs(columns: Optional[Columns]) -> Optional[list[tuple[str, Optional[str]]]]:
    if columns is None:
        return None
    if hasattr(columns, 'items'):
        return list(columns.items())
    names = check.texts('columns', columns, 'a list of names or a dict')
    return [(name, None) for name in names]


def _hashes(names: Union[str, Sequence[str]]) -> list[str]:
    if isinstance(names, str):
        names = names.split(',')
    names = check.texts('hashes', names, 'a list of names of hashes')
    return [name.strip() for name in names if name.strip()]


def count_of(name: str, value: Optional[Union[int, str]]) -> Optional[int]:
    """Checks a positive number, or parses text such as ``'10k'``; ``None`` remains ``None``."""
    if isinstance(value, str):
        allowed = "a positive integer or a text such as '10k'"
        return check.parsed(name, value, check.number_abbrev_to_int, allowed, 1)
    return check.whole_or_none(name, value, 1)
