"""Shard parts in a random order, the samples of each shuffled in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardmill.base.shuffle._order import shuffled

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ['divide_spans', 'get_shuffle_py1s']


def get_shuffle_py1s(
    shard_sizes: NDArray[np.int64],
    num_canonical_nodes: int,
    seed: int,
    epoch: int,
    block_size: int = 1 << 18,
) -> NDArray[np.int64]:
    """Shard parts in a random order, the samples of each shuffled in place; `block_size` does not
    matter.

    See `get_shuffle`.
    """
    return shuffled('py1s', shard_sizes, num_canonical_nodes, seed, epoch, block_size)


def divide_spans(
    spans: list[tuple[int, int]], num_samples: int, num_parts: int
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Cuts spans of samples where equal parts of all samples end.

    The order of shardmill does not need it; algorithms of others do.

    Args:
        spans: The first sample of each span, and the one behind its last.
        num_samples: Samples of all spans.
        num_parts: How many parts.

    Returns:
        The spans, and for each part its first span and the one behind its last.
    """
    cut: list[tuple[int, int]] = []
    parts: list[tuple[int, int]] = []
    rest = list(reversed(spans))
    done = 0
    for part in range(num_parts):
        first = len(cut)
        room = num_samples * (part + 1) // num_parts - done
        while rest and rest[-1][1] - rest[-1][0] <= room:
            begin, end = rest.pop()
            cut.append((begin, end))
            room -= end - begin
            done += end - begin
        if rest and room > 0:
            begin, end = rest.pop()
            cut.append((begin, begin + room))
            rest.append((begin + room, end))
            done += room
        parts.append((first, len(cut)))
    return cut, parts
