"""Which samples streams read: whether deleted ones, which of a view, and which neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Protocol, Union

from shardmill.base._arguments import refuse_type
from shardmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardmill.base._typing import Path
    from shardmill.views import View
    from shardmill.windows import Window


class _Chosen(Protocol):
    """A stream that knows which of its samples are read."""

    with_deleted: Optional[bool]
    view: Optional[View]


def default_live(streams: Sequence[_Chosen], with_deleted: bool, view: Optional[View]) -> None:
    """Sets which samples are read, for streams that do not specify it.

    Not passed as arguments of the streams, because subclasses may not accept them.

    Raises:
        ValueError: There is a view for several streams, or for one that has a view.
    """
    for stream in streams:
        if stream.with_deleted is None:
            stream.with_deleted = with_deleted
    if view is None:
        return
    if len(streams) > 1 or streams[0].view is not None:
        raise UsageError(
            'a view is of one dataset: give each of the streams its own', 'config-streams', 'view'
        )
    streams[0].view = view


def given_view(given: Union[View, Path, None]) -> Optional[View]:
    """Returns the view of an argument, which may be the path of its file."""
    if given is None:
        return None
    from shardmill.views import View

    return given if isinstance(given, View) else View(given)


def given_window(given: Optional[Window]) -> Optional[Window]:
    """Checks the window of an argument."""
    if given is None:
        return None
    from shardmill.windows import Window

    return given if isinstance(given, Window) else refuse_type('window', given, 'a `Window`')
