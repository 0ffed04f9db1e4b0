"""Many writers, one dataset: parts that tasks write, and the commit that publishes them.

A job begins once (:func:`begin`), every task writes its share of the rows as a part (:func:`write_part`), and the
driver publishes one attempt of each part (:func:`commit`). Until then there is nothing for a reader. What did not count
is removed by :func:`abort`, and by :func:`gc` where a job was killed.

    staging = begin('/data/tokens')
    manifests = [write_part(batches, staging, part) for part, batches in enumerate(shares)]
    commit(manifests, staging)

The same parts give the same bytes, whatever engine made them and however often a task was tried.
"""

from __future__ import annotations

import os
import re
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Union

from shardmill import _core
from shardmill.base import _arguments as check
from shardmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import TracebackType

    from typing_extensions import Self

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

#: Raw bytes of a shard, where nobody says.
SIZE_LIMIT = 1 << 26


@dataclass(frozen=True)
class Staging:
    """What all tasks of a job and its commit agree on. It is pickled with the tasks.

    Attributes:
        dest: The folder or the URL of the dataset.
        text: The rest, as the extension module wants it.
        storage_options: Settings of the store that are not in the environment.
    """

    dest: str
    text: str
    storage_options: Optional[dict[str, str]] = field(default=None, repr=False)


class Committed(NamedTuple):
    """A dataset that was published.

    Attributes:
        shards: Shards of the job.
        samples: Samples of the job.
        total_samples: Samples of the dataset, with those that were there before.
        was_done: Whether an earlier call had published the very same index.
    """

    shards: int
    samples: int
    total_samples: int
    was_done: bool


class Leftover(NamedTuple):
    """Something that no dataset needs.

    Attributes:
        name: Its name, relative to the dataset.
        bytes: Its bytes.
        reason: ``attempt``, ``unlisted`` or ``temporary``.
    """

    name: str
    bytes: int
    reason: str


def begin(
    dest: str,
    *,
    to: str = 'mds',
    mode: str = 'error',
    pattern: Optional[str] = None,
    job: Optional[str] = None,
    storage_options: Optional[Mapping[str, str]] = None,
) -> Staging:
    """Looks at a place, and decides what the parts of a job are called. Nothing is written.

    Args:
        dest: A folder or the URL of a prefix in a store.
        to: ``mds`` or ``webdataset``.
        mode: What happens to a dataset that is there: ``error``; ``append``, which puts the new samples behind those
            that are there; ``overwrite``, which puts them in their place and leaves the old shards to :func:`gc`.
        pattern: What tar shards are called, as in ``shard-%06d.tar``.
        job: Letters and digits that no other job has; ``None`` for random ones.
        storage_options: Settings of the store that are not in the environment.

    Raises:
        ConflictError: There is a dataset, and the mode is ``error``.
    """
    dest = check.path('dest', dest)
    to, mode = check.text('to', to), check.text('mode', mode)
    if '://' not in dest and not dest.startswith('dbfs:'):
        # Tasks may have another current folder.
        dest = os.path.abspath(dest)
    settings = dict(storage_options) if storage_options else None
    text = _core.parts_begin(dest, to, pattern, job or uuid.uuid4().hex[:16], mode, settings)
    return Staging(dest, text, settings)


class PartWriter:
    """Writes one attempt of a part, batch by batch. As a context manager it removes what it has written, unless
    :meth:`finish` was called.

    Everything is done in the thread of the caller; in memory are one shard and what it is compressed to.

    Args:
        staging: What the job was told.
        part_id: The number of the part, from 0.
        attempt: Letters and digits that no other attempt of the job has; ``None`` for random ones.
        columns: The columns that are written: their names, or their encodings by name, ``None`` for what follows from
            the type. Without it all columns, and fields of WebDataset get an extension that fits.
        compression: A compression, as in ``zstd:3``; ``None`` or ``'none'`` for none.
        hashes: Names of hashes that go into the index: a list, or a text with commas.
        size_limit: Most raw bytes of a shard, as a number or as text such as ``'64mb'`` or ``'64MiB'``; ``None``,
            ``'none'`` or 0 for one shard.
        samples_per_shard: Most samples of a shard, as a number or as text such as ``'10k'``.
        key: The column that keys of WebDataset samples come from. Without it they are numbers, behind that of the part.
        scratch: The folder for shards on their way to a store.
    """

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
        scratch: Optional[str] = None,
    ) -> None:
        _check_staging(staging)
        if compression is not None:
            compression = check.text('compression', compression)
        options = {
            'columns': _pairs(columns),
            'compression': None if compression == 'none' else compression or None,
            'hashes': _hashes(hashes),
            'size_limit': _bytes(size_limit),
            'samples_per_shard': count_of('samples_per_shard', samples_per_shard),
            'key': key,
            'scratch': scratch,
        }
        self._core = _core.PartWriter(
            staging.dest,
            staging.text,
            _number('part_id', part_id),
            attempt or uuid.uuid4().hex[:16],
            options,
            staging.storage_options,
        )

    def check(self, batch: Any) -> None:
        """Whether the columns of an Arrow table, record batch or stream can be written as the options say. Nothing is
        made, so that a driver can ask before its tasks begin.

        Raises:
            ShardmillError: They cannot: a column is missing, or has a type without an encoding; an option has a value
                that there is not.
        """
        self._core.check(batch)

    def write(self, batch: Any) -> int:
        """Adds the rows of an Arrow table, record batch or stream; answers how many.

        Raises:
            ShardmillError: A row cannot be stored, or a shard not be written. Then the attempt is over, and what it has
                written is removed.
        """
        return self._core.write_arrow(batch)

    def finish(self) -> str:
        """Writes the last shard.

        Returns:
            The manifest: a small text, for :func:`commit`.
        """
        return self._core.finish()

    def abort(self) -> None:
        """Removes what was written. Nothing happens after :meth:`finish`."""
        self._core.abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.abort()


def write_part(
    batches: Iterable[Any],
    staging: Staging,
    part_id: int,
    attempt: Optional[str] = None,
    **options: Any,
) -> str:
    """Writes a part of a dataset.

    Args:
        batches: Arrow tables or record batches, in order.
        staging: What the job was told.
        part_id: The number of the part, from 0.
        attempt: Letters and digits that no other attempt of the job has; ``None`` for random ones.
        **options: As for :class:`PartWriter`.

    Returns:
        The manifest: a small text, for :func:`commit`.
    """
    with PartWriter(staging, part_id, attempt, **options) as writer:
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
    """Publishes one attempt of every part as a dataset, in the order of their numbers.

    Every file is looked at, then the index is written. Committing the same manifests again is no error.

    Args:
        manifests: What the tasks have returned, in any order.
        staging: What the job was told.
        parts: How many parts there have to be; ``None`` for those from 0 to the largest that is there.
        verify: ``size``, or ``hash`` to read all bytes of all shards once more.

    Raises:
        UsageError: Parts that are missing, there twice, or of another job or form.
        DataError: Files that are not as they were written.
        ConflictError: The dataset was changed since the job began, or somebody else commits.
    """
    if verify not in ('size', 'hash'):
        raise UsageError(f'verify: {verify!r} is neither size nor hash', 'config-value')
    _check_staging(staging)
    texts = check.texts('manifests', manifests, 'a list of manifests')
    if parts is not None and len(texts) > _number('parts', parts):
        text = f'there are {len(texts)} parts, and there have to be {parts}'
        raise UsageError(text, 'limit-parts')
    return Committed(
        *_core.parts_commit(
            staging.dest,
            staging.text,
            texts,
            parts,
            verify == 'hash',
            staging.storage_options,
        )
    )


def abort(staging: Staging) -> int:
    """Removes what a job has written and not committed; answers how many files and folders. Tasks that have not noticed
    yet that their job is over may leave some more, which :func:`gc` finds.
    """
    _check_staging(staging)
    return _core.parts_abort(staging.dest, staging.text, staging.storage_options)


def gc(
    dest: str,
    *,
    delete: bool = False,
    older_than: Optional[float] = 86400.0,
    pattern: Optional[str] = None,
    storage_options: Optional[Mapping[str, str]] = None,
) -> list[Leftover]:
    """Finds what no dataset needs: what jobs that were killed have left, and shards that the index does not name.

    Args:
        dest: A folder or the URL of a prefix in a store.
        delete: Whether it is removed.
        older_than: Only what has not changed for so many seconds; ``None`` for everything, and then no job may be at
            work. A few stores do not tell ages: there only ``None`` is possible.
        pattern: What tar shards are called, where it is not ``shard-%06d.tar``.
        storage_options: Settings of the store that are not in the environment.
    """
    settings = dict(storage_options) if storage_options else None
    delete = check.flag('delete', delete)
    if older_than is not None:
        older_than = check.number('older_than', older_than)
    found = _core.parts_gc(check.path('dest', dest), delete, older_than, pattern, settings)
    return [Leftover(*entry) for entry in found]


def _check_staging(staging: Staging) -> None:
    if not isinstance(staging, Staging):
        check.refuse_type('staging', staging, 'what `begin` returned')


def _pairs(columns: Optional[Columns]) -> Optional[list[tuple[str, Optional[str]]]]:
    if columns is None:
        return None
    if isinstance(columns, str):
        raise UsageError('columns: a list of names or a dict, not a text', 'config-value')
    if hasattr(columns, 'items'):
        return list(columns.items())
    return [(name, None) for name in check.texts('columns', columns)]


def _hashes(names: Union[str, Sequence[str]]) -> list[str]:
    if isinstance(names, str):
        names = names.split(',')
    names = check.texts('hashes', names, 'a list of names of hashes')
    return [name.strip() for name in names if name.strip()]


def _number(name: str, value: Any) -> int:
    """A number from 0."""
    if isinstance(value, bool) or not hasattr(value, '__index__') or value.__index__() < 0:
        raise UsageError(f'{name}: {value!r} is not a number from 0', 'config-value', name)
    return int(value.__index__())


#: Powers of 1024 and of 1000, as on the command line.
_UNITS = {
    f'{letter}{rest}': 1 << 10 * power
    for power, letter in enumerate('kmgtpe', 1)
    for rest in ('b', 'ib')
}
_THOUSANDS = {letter: 1000**power for power, letter in enumerate('kmbt', 1)}


def _scaled(text: str, units: Mapping[str, int]) -> Optional[int]:
    """A whole number, or one with a unit behind it."""
    found = re.fullmatch(r'([0-9.][0-9.e+-]*?)\s*([a-z]*)', text.strip().lower(), re.ASCII)
    if found is None:
        return None
    number, unit = found.groups()
    try:
        return int(float(number) * units[unit]) if unit else int(number)
    except (KeyError, ValueError, OverflowError):
        return None


def count_of(name: str, value: Optional[Union[int, str]]) -> Optional[int]:
    """A number above 0 from a number or a text such as ``'10k'``; ``None`` for ``None``.

    Raises:
        UsageError: It is something else.
    """
    if value is None:
        return None
    number = _scaled(value, _THOUSANDS) if isinstance(value, str) else _number(name, value)
    if not number or number >= 1 << 63:
        text = f'{name}: {value!r} is not a number above 0'
        raise UsageError(text, 'config-value', name, 'write 1000, 10k or 1.5m')
    return number


def _bytes(size: Optional[Union[int, str]]) -> Optional[int]:
    """A number of bytes; ``None`` for no limit."""
    if size is None or size == 'none':
        return None
    if not isinstance(size, str):
        return _number('size_limit', size) or None
    units = {'b': 1, **_UNITS}
    number = _scaled(size, units)
    if number is None or number >= 1 << 63:
        text = f'size_limit: {size!r} is not a number of bytes'
        raise UsageError(text, 'config-value', 'size_limit', 'write 1000, 64mb or 1.5GiB')
    return number or None
