"""Progress bars of the program's runs: those of tqdm if it is installed, otherwise one line of text."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any, Callable, Optional

from shardmill._text import size_text

#: What a command does, at the start of its bar.
_WORDS = {'convert': 'converting', 'verify': 'verifying'}


#: Shows the counters of the program.
Update = Callable[[dict[str, Any]], None]


@contextlib.contextmanager
def progress_bar(verb: str, shown: Optional[bool]) -> Iterator[Update]:
    """Shows the bar of a run, which is removed at the end. Yields the function that updates it."""
    word = _WORDS.get(verb, verb)
    if not (_is_interactive() if shown is None else shown):
        yield lambda _: None
        return
    try:
        from tqdm.auto import tqdm
    except ImportError:
        line = _Line(word)
        try:
            yield line.update
        finally:
            line.clear()
    else:
        with tqdm(desc=word, unit='B', unit_scale=True, unit_divisor=1024, leave=False) as bar:
            yield partial(_update, bar)


def _is_interactive() -> bool:
    """Returns whether standard error is a terminal, or this is a notebook."""
    shell = getattr(sys.modules.get('IPython'), 'get_ipython', lambda: None)()
    return sys.stderr.isatty() or type(shell).__name__ == 'ZMQInteractiveShell'


def _update(bar: Any, progress: dict[str, Any]) -> None:
    """Shows the bytes that were read in a bar of tqdm."""
    bar.total = progress['input_bytes_total']
    bar.n = progress['input_bytes']
    bar.set_postfix(samples=progress['samples'], shards=progress['shards'])


class _Line:
    """One line of text, which is written again with each update."""

    def __init__(self, word: str) -> None:
        self._word = word
        self._width = 0

    def update(self, progress: dict[str, Any]) -> None:
        read, total = progress['input_bytes'], progress['input_bytes_total']
        text = f'{self._word} {size_text(read)}'
        if total:
            text = (
                f'{self._word} {min(read / total, 1):4.0%}, {size_text(read)} of {size_text(total)}'
            )
        self._write(f'{text}, {progress["samples"]:,} samples, {progress["shards"]:,} shards')

    def _write(self, text: str) -> None:
        sys.stderr.write(f'\r{text.ljust(self._width)}')
        sys.stderr.flush()
        self._width = len(text)

    def clear(self) -> None:
        """Removes the line."""
        if self._width:
            self._write('')
            sys.stderr.write('\r')
            sys.stderr.flush()
