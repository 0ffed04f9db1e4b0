"""Opens the single dataset of a location, for functions that read it once."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, Optional

from shardmill import _core
from shardmill.base import _arguments as check

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shardmill.base._typing import Path


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
