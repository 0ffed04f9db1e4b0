"""Windows: samples together with their neighbours in the same episode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Optional, Union

from shardmill import _core
from shardmill.base import _arguments as check
from shardmill.base._live import stream_at
from shardmill.errors import UsageError
from shardmill.views import View

if TYPE_CHECKING:
    from shardmill.base._typing import Path

__all__ = ['Window', 'find_episodes']

#: The end of the name of a column that says which values are padding.
PAD_SUFFIX = '_is_pad'


class Window:
    """Which neighbours are returned with each sample.

    A column with a window has one value for each offset: an array ``[offsets, …]`` for numbers and for arrays of one
    shape, a list for other values. Windows never contain samples of another episode. Neighbours are counted among
    the samples that are not deleted; a ``view`` selects the samples that have a window, not the neighbours.

    Args:
        offsets: The offsets of the neighbours, such as ``[-2, -1, 0, 8]``; 0 is the sample itself. Or the offsets of
            each column by name: other columns then have the value of the sample.
        episode: The column whose value is equal in all samples of an episode. Of the keys of tar files (``__key__``),
            the part before the last slash or dot is compared. Or a `View` of the first sample of each episode, as
            `find_episodes` returns. By default all samples of a stream are one episode.
        columns: The columns that have a window, if ``offsets`` does not name them; by default all.
        pad: ``'repeat'`` to repeat the first or last sample of an episode in place of missing neighbours. A column
            ``NAME_is_pad`` then says which values of the column ``NAME`` are repeated. By default samples without all
            neighbours are left out.

    Raises:
        ValueError: There are no offsets, or an argument is invalid.
    """

    def __init__(
        self,
        offsets: Union[Iterable[int], Mapping[str, Iterable[int]]],
        *,
        episode: Union[str, View, None] = None,
        columns: Optional[Sequence[str]] = None,
        pad: Optional[str] = None,
    ) -> None:
        self.columns: Optional[dict[str, list[int]]] = None
        self.offsets: Optional[list[int]] = None
        if isinstance(offsets, Mapping):
            check.not_given('offsets` of columns', columns=columns)
            self.columns = {
                check.text('offsets', name): _whole_numbers(each) for name, each in offsets.items()
            }
        elif columns is not None:
            numbers = _whole_numbers(offsets)
            names = check.texts('columns', columns, 'a list of names')
            self.columns = dict.fromkeys(names, numbers)
        else:
            self.offsets = _whole_numbers(offsets)
        if episode is not None and not isinstance(episode, View):
            episode = check.text('episode', episode)
        self.episode = episode
        self.pad = None if pad is None else check.choice('pad', pad, ('repeat',))
        # Errors are those of this call, not of the dataset.
        self._to_core([])

    def _has(self, column: str) -> bool:
        """Returns whether a column has a window."""
        return self.columns is None or column in self.columns

    def _padding(self, columns: Iterable[str]) -> list[str]:
        """Returns the names of the columns that say which values of these columns are padding."""
        return [name + PAD_SUFFIX for name in columns if self.pad and self._has(name)]

    def _to_core(self, episodes: Sequence[Optional[View]]) -> _core.Window:
        views = [None if view is None else view._view for view in episodes]
        return _core.Window(
            self.offsets, list((self.columns or {}).items()), self.pad is not None, views
        )

    def _episodes_of(
        self, streams: Sequence[_core.StreamOptions], options: _core.ReaderOptions
    ) -> list[Optional[View]]:
        """Returns the first samples of the episodes of each stream."""
        if self.episode is None:
            return []
        if isinstance(self.episode, View):
            if len(streams) > 1:
                raise UsageError(
                    'a view of episodes is of one dataset: name the column of the episodes',
                    'config-streams',
                    'window',
                )
            return [self.episode]
        column = self.episode
        return [View._of(_core.episodes_of(stream, column, options)) for stream in streams]

    def __repr__(self) -> str:
        offsets = self.offsets if self.columns is None else self.columns
        return f'Window({offsets!r}, episode={self.episode!r}, pad={self.pad!r})'


def _whole_numbers(offsets: Any) -> list[int]:
    if isinstance(offsets, (str, bytes)) or not isinstance(offsets, Iterable):
        check.refuse_type('offsets', offsets, 'a list of integers')
    numbers = []
    for each in offsets:
        number = check._index(each)
        if number is None:
            check.refuse_type('offsets', each, 'an integer')
        numbers.append(number)
    return numbers


def find_episodes(
    location: Path,
    column: str,
    *,
    local: Optional[Path] = None,
    storage_options: Optional[Mapping[str, str]] = None,
) -> View:
    """Finds the episodes of a dataset: runs of consecutive samples with equal values in a column.

    Save the result to find the episodes once for all runs. `Window` takes it as ``episode``.

    Args:
        location: The dataset, in a directory or in a store.
        column: The column, as in `Window`.
        local: The folder that shards are fetched to. Defaults to a temporary folder for a store.
        storage_options: Store settings that are not in the environment.

    Returns:
        A view of the first sample of each episode.

    Raises:
        UsageError: The column does not exist, or its values cannot be compared.
        NotFoundError: There is no dataset.
    """
    column = check.text('column', column)
    with stream_at(location, local, storage_options) as stream:
        return View._of(_core.episodes_of(stream, column, _core.ReaderOptions()))
