"""Streams over tables of Parquet files and Delta tables, which are read where they are."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import tempfile
from typing import TYPE_CHECKING, Any, Optional

from shardmill import _core
from shardmill.base import _arguments as check
from shardmill.base.stream import Stream
from shardmill.errors import ConflictError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shardmill.base._typing import Path
    from shardmill.views import View

__all__ = ['TableStream']

#: The formats of tables.
_FORMATS = ('parquet', 'delta')
#: How samples show nulls.
_NULLS = ('none', 'mask')


class TableStream(Stream):
    """A stream over a folder of Parquet files, or a Delta table. Each row group is a shard, and each row is a sample.

    A row group with more than 128 MiB before compression is several shards, if its file has a page index.

    Values are those of a conversion with ``shardmill convert --to mds``: a dataset of MDS shards with the same numbers
    of samples has the same order and the same samples. A null is ``None``, or what ``nulls`` says.

    The files are listed when the dataset is opened, sorted by path, and their footers are kept in ``local``. All
    processes of a run use the same list. A file that changes during the run is an error. Row groups are fetched when
    they are needed, with the chosen columns only, and kept in ``local`` as MDS shards. Arguments that are not listed
    are as in `Stream`.

    A Delta table is read at one version: ``version``, or the latest when the stream is first opened, which is then its
    ``version``. Several processes of a run must name it.

    Args:
        remote: The table: a folder, or the URL of a prefix.
        local: The folder that row groups are kept in. Defaults to a folder in the temporary directory.
        split: A subfolder of both, such as ``train``.
        columns: The columns to read. Defaults to all.
        format: ``parquet`` or ``delta``.
        version: The version of a Delta table. Defaults to the latest.
        where: Only rows for which this SQL expression over the columns of the table is true, as with ``shardmill select
            --where``. The ``shardmill`` program evaluates it once, and its result is kept next to ``local``. The order
            is that of a `View`, which can be given as well.
        nulls: ``none`` for ``None`` in place of a null, or ``mask`` for a zero and a column ``NAME__is_null``, as with
            ``shardmill convert --nulls mask``. In batches, a column of numbers cannot have a ``None``: that is an error
            which names the sample.

    Raises:
        ValueError: An argument is invalid.
    """

    _is_raw = True

    def __init__(
        self,
        *,
        remote: Optional[Path] = None,
        local: Optional[Path] = None,
        split: Optional[str] = None,
        proportion: Optional[float] = None,
        repeat: Optional[float] = None,
        choose: Optional[int] = None,
        columns: Optional[Sequence[str]] = None,
        format: str = 'parquet',
        version: Optional[int] = None,
        where: Optional[str] = None,
        nulls: str = 'none',
        download_retry: Optional[int] = None,
        download_timeout: Optional[float] = None,
        view: Optional[View] = None,
        storage_options: Optional[Mapping[str, str]] = None,
    ) -> None:
        self.columns = check.texts('columns', columns or (), 'a list of column names')
        self.format = check.choice('format', format, _FORMATS)
        self.version = check.whole_or_none('version', version, 0)
        if self.version is not None and format != 'delta':
            raise UsageError("`version` is for format='delta'", 'config-value')
        self.where = None if where is None else check.text('where', where)
        #: The rows that `where` selects, once they are known. Worker processes get them with the stream.
        self._selected: Optional[View] = None
        self.nulls = check.choice('nulls', nulls, _NULLS)
        remote = check.path_or_none('remote', remote)
        local = check.path_or_none('local', local)
        if remote is None:
            # The table itself is never written.
            remote, local = local, None
        super().__init__(
            remote=remote,
            local=None if local is None else os.path.abspath(local),
            split=split,
            proportion=proportion,
            repeat=repeat,
            choose=choose,
            download_retry=download_retry,
            download_timeout=download_timeout,
            view=view,
            storage_options=storage_options,
        )

    def _get_temporary_directory(self) -> str:
        name = hashlib.blake2s(json.dumps(self.remote).encode(), digest_size=16).hexdigest()
        return os.path.join(tempfile.gettempdir(), f'table-{name}', self.split)

    def _arguments(self, is_fetched_here: bool, **listing: Any) -> dict[str, Any]:
        files = _core.FileOptions(**{'relist': True, **listing})
        arguments = super()._arguments(False)
        version = self._pinned_version(arguments['settings'])
        table = (self.columns, version, self.nulls == 'mask')
        arguments.update(validate_hash=None, files=files, table=table)
        if self.where is not None:
            view = self._where(arguments)
            arguments['view'] = (view if self.view is None else view & self.view)._view
        return arguments

    def _where(self, arguments: dict[str, Any]) -> View:
        """Returns the rows that meet the condition, from the cache if they are known for these files."""
        from shardmill.views import View, select

        if self._selected is not None:
            return self._selected
        index, folder = _core.table_index(_core.StreamOptions(**{**arguments, 'view': None}))
        name = hashlib.blake2s(json.dumps([index, self.where]).encode(), digest_size=16).hexdigest()
        path = os.path.join(folder, f'where-{name}.view')
        # The processes of a machine wait for the first one.
        with open(f'{path}.lock', 'w', encoding='utf-8') as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not os.path.exists(path):
                location = self._table_location()
                made = select(
                    location,
                    where=self.where,
                    source_kind=self.format,
                    delta_version=self.version,
                    out=f'{path}.new',
                    overwrite=True,
                    storage_options=arguments['settings'],
                )
                if made.index != index:
                    raise ConflictError(
                        f'{location}: the table changed while its rows were selected',
                        'file-changed',
                        location,
                    )
                os.replace(f'{path}.new', path)
            self._selected = View(path)
        return self._selected

    def _table_location(self) -> str:
        return os.path.join(str(self.remote), self.split) if self.split else str(self.remote)

    def _pinned_version(self, settings: Optional[dict[str, str]]) -> Optional[int]:
        """Returns the version of a Delta table, which never changes after the first call."""
        if self.format == 'delta' and self.version is None:
            if int(os.environ.get('WORLD_SIZE', '1')) > 1:
                raise UsageError(
                    'several processes read a Delta table without `version`; a commit between their starts would give '
                    'them different samples',
                    'config-value',
                    hint='pass version=',
                )
            self.version = _core.delta_version(self._table_location(), settings)
        return self.version


def table_stream(
    given: Mapping[str, Any],
    streams: Optional[Sequence[Stream]],
    remote: Optional[str],
    local: Optional[str],
) -> Stream:
    """Returns the stream of a dataset that is given by the format of a table.

    Raises:
        ValueError: The format is unknown or missing, or there are other streams.
    """
    if streams or 'format' not in given:
        names = ', '.join(
            f'`{name}`' for name in ('format', *(each for each in given if each != 'format'))
        )
        raise UsageError(
            f'{names} describe the table at `remote`; give each of several tables as a shardmill.tables.TableStream',
            'config-streams',
        )
    return TableStream(remote=remote, local=local, **given)
