"""The samples that are read once, from a single dataset, and those that arguments select."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, Optional, Union

from shardmill import _core
from shardmill.base import _arguments as check

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shardmill.base._typing import Path
    from shardmill.views import View


def given_view(given: Union[View, Path, None]) -> Optional[View]:
    """Returns the view of an argument, which may be the path of its file."""
    if given is None:
        return None
    from shardmill.views import View

    return given if isinstance(given, View) else View(given)


@contextmanager
def stream_at(
    location: Path,
    local: Optional[Path],
    storage_options: Optional[Mapping[str, str]],
    *,
    with_deleted: bool = False,
) -> Iterator[_core.StreamOptions]:
    """Describes a dataset in a directory, or in a store; shards of the latter go to ``local`` or a temporary folder."""
    place = check.path('location', location)
    settings = check.storage_options(storage_options) or {}
    with tempfile.TemporaryDirectory() as folder:
        if local is None and '://' in place:
            local = folder
        yield _core.StreamOptions(
            remote=None if local is None else place,
            local=place if local is None else check.path('local', local),
            with_deleted=with_deleted,
            settings=settings,
        )
