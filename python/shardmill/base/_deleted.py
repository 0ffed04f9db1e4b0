"""Deleted samples: whether streams read them, and shards without them."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shardmill import _core
    from shardmill.base.format.base.reader import Reader
    from shardmill.base.stream import Stream
    from shardmill.base.world import World


def default_deleted(streams: Iterable[Stream], with_deleted: bool) -> None:
    """Sets whether deleted samples are read, for streams that do not specify it.

    Not passed as an argument of the streams, because subclasses may not accept it.
    """
    for stream in streams:
        if stream.with_deleted is None:
            stream.with_deleted = with_deleted


def stored_shards(
    streams: Iterable[Stream], world: World, allow_unsafe_types: bool
) -> list[list[Reader]]:
    """Returns the shards of each stream as described by its index."""
    return [list(stream.get_shards(world, allow_unsafe_types)) for stream in streams]


def live_shards(reader: _core.Reader, shards: Sequence[Sequence[Reader]]) -> list[Reader]:
    """Returns the shards of all streams in one list, without samples that are not read."""
    from shardmill.base.format.base.reader import leave_out

    for number, own in enumerate(shards):
        leave_out(own, reader.deleted_samples(number))
    return list(chain.from_iterable(shards))
