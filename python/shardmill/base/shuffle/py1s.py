"""A shuffle of shard parts that then shuffles the samples of each part."""

from __future__ import annotations

from shardmill.base.shuffle._order import shuffle_by

__all__ = ['divide_spans', 'get_shuffle_py1s']

get_shuffle_py1s = shuffle_by(
    'py1s', 'Shuffles shard parts, then the samples within each part, ignoring `block_size`.'
)


def divide_spans(
    spans: list[tuple[int, int]], num_samples: int, num_parts: int
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Cuts spans of samples at the borders of equal parts of all samples.

    COMPAT: shardmill does not use it, but shuffles of other programs do.

    Args:
        spans: The first sample and the exclusive end of each span.
        num_samples: The total number of samples.
        num_parts: The number of parts.

    Returns:
        The spans, and for each part its first span and the exclusive end.
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
