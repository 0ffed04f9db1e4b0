"""Views: selected samples of a dataset."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Optional, Union

from shardmill import _core
from shardmill._runs import options_of, run
from shardmill.base import _arguments as check
from shardmill.errors import UsageError

__all__ = ['View', 'select']

#: As in `shardmill.base._typing`, which imports this module.
Path = Union[str, 'os.PathLike[str]']


class View:
    """Selected samples of a dataset.

    A view names its dataset by the hash of the index, and lists stored numbers of samples. Views of the same dataset
    are combined with ``&``, ``|``, ``-`` and ``~``. Deleted samples that a view selects are not read.

    Args:
        file: The file: a local path, or the URL of an object.
        storage_options: Store settings that are not in the environment.

    Raises:
        NotFoundError: The file does not exist.
        DataError: The file is damaged, or is not a view.
    """

    _view: _core.View

    def __init__(self, file: Path, *, storage_options: Optional[Mapping[str, str]] = None) -> None:
        settings = check.storage_options(storage_options)
        self._view = _core.View.read(check.path('file', file), settings)

    @classmethod
    def from_bytes(cls, data: bytes) -> View:
        """Returns the view of the bytes of a file.

        Raises:
            DataError: The bytes are damaged, or are not a view.
        """
        return cls._of(_core.View.from_bytes(data))

    @classmethod
    def _of(cls, view: _core.View) -> View:
        made = cls.__new__(cls)
        made._view = view
        return made

    def to_bytes(self) -> bytes:
        """Returns the bytes of the file. Equal views have equal bytes."""
        return self._view.to_bytes()

    def save(self, file: Path, *, overwrite: bool = False) -> None:
        """Writes the view to a local file.

        Args:
            file: The file.
            overwrite: Whether to replace an existing file.

        Raises:
            ConflictError: The file exists.
        """
        self._view.save(check.path('file', file), check.flag('overwrite', overwrite))

    @property
    def index(self) -> str:
        """The hash of the index of the dataset: ``sha256:`` and 64 hexadecimal digits."""
        return self._view.index

    @property
    def num_stored(self) -> int:
        """The number of samples that the dataset stores."""
        return self._view.stored

    def __len__(self) -> int:
        """Returns the number of selected samples, deleted ones counted."""
        return len(self._view)

    def __contains__(self, number: int) -> bool:
        """Returns whether a sample is selected, by its stored number."""
        return number in self._view

    def __iter__(self) -> Iterator[int]:
        """Iterates over the stored numbers of the selected samples."""
        return iter(memoryview(self._view.numbers()).cast('Q'))

    def __and__(self, other: View) -> View:
        return self._with('intersection', other) if isinstance(other, View) else NotImplemented

    def __or__(self, other: View) -> View:
        return self._with('union', other) if isinstance(other, View) else NotImplemented

    def __sub__(self, other: View) -> View:
        return self._with('difference', other) if isinstance(other, View) else NotImplemented

    def __invert__(self) -> View:
        return self._of(self._view.inverted())

    def _with(self, method: str, other: View) -> View:
        return self._of(getattr(self._view, method)(other._view))

    def __eq__(self, other: object) -> bool:
        return self._view == other._view if isinstance(other, View) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.index, len(self)))

    def __repr__(self) -> str:
        return f'<View of {len(self):,} of {self.num_stored:,} stored samples, {self.index[:15]}>'

    def __reduce__(self) -> tuple[Any, ...]:
        return View.from_bytes, (self.to_bytes(),)


def select(
    location: Path,
    *,
    where: Optional[str] = None,
    keys: Optional[Iterable[str]] = None,
    key_column: str = '__key__',
    samples: Optional[Iterable[int]] = None,
    source_kind: str = 'auto',
    with_deleted: bool = False,
    delta_version: Optional[int] = None,
    out: Optional[Path] = None,
    overwrite: bool = False,
    jobs: Optional[int] = None,
    storage_options: Optional[Mapping[str, str]] = None,
    progress: Optional[bool] = None,
) -> View:
    """Selects samples of a dataset, or rows of a table that is read in place.

    With several conditions, a sample has to meet all of them.

    Args:
        location: The dataset, folder of Parquet files or Delta table, in a directory or in a store.
        where: Selects the samples for which this SQL expression over their columns is true. ``__sample__`` is the
            number of the sample.
        keys: Selects the samples with these keys.
        key_column: The column with the keys.
        samples: Selects the samples with these numbers.
        source_kind: The kind of the dataset or table, such as ``mds`` or ``parquet``; ``auto`` detects it.
        with_deleted: Whether to also number and select deleted samples. They are read only with ``with_deleted``.
        delta_version: The version of a Delta table. Defaults to the latest.
        out: A local file to write the view to.
        overwrite: Whether to replace an existing file.
        jobs: The number of threads. Defaults to one for each core.
        storage_options: Store settings that are not in the environment.
        progress: Whether to show a progress bar. Defaults to terminals and notebooks.

    Raises:
        UsageError: There is no condition, or one is invalid.
        NotFoundError: There is no dataset, or no sample has one of the keys.
        ConflictError: The file exists.
    """
    if where is None and keys is None and samples is None:
        raise UsageError('give `where`, `keys` or `samples`', 'config-value')
    with tempfile.TemporaryDirectory() as folder:
        listed = {}
        if keys is not None:
            listed['keys'] = _write(folder, 'keys', [_key(key) for key in keys])
        if samples is not None:
            numbers = [str(check.whole('samples', number)) for number in samples]
            listed['samples'] = _write(folder, 'samples', numbers)
        path = os.path.join(folder, 'view') if out is None else check.path('out', out)
        options = options_of(
            where=where,
            key_column=key_column,
            **{'from': source_kind},
            with_deleted=check.flag('with_deleted', with_deleted),
            delta_version=check.whole_or_none('delta_version', delta_version, 0),
            overwrite=check.flag('overwrite', overwrite),
            jobs=jobs,
            out=path,
            **listed,
        )
        place = check.path('location', location)
        run('select', options, [place], storage_options=storage_options, progress=progress).only()
        return View(path)


def _key(key: str) -> str:
    if not check.text('keys', key) or '\n' in key or '\r' in key:
        raise UsageError(f'{key!r} is empty or has a line break', 'config-value', 'keys')
    return key


def _write(folder: str, name: str, lines: list[str]) -> str:
    path = os.path.join(folder, name)
    with open(path, 'w', encoding='utf-8', newline='') as file:
        file.writelines(f'{line}\n' for line in lines)
    return path
