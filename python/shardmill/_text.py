"""Numbers and tables as text and HTML, for representations and progress."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any


def size_text(size: int) -> str:
    """Formats a number of bytes, such as ``64.0 MiB``."""
    if size < 1024:
        return f'{size} B'
    power = min(max(size.bit_length() - 1, 10) // 10, 6)
    return f'{size / 1024**power:.1f} {" KMGTPE"[power]}iB'


def html_table(rows: Iterable[Sequence[Any]], head: Sequence[str] = (), caption: str = '') -> str:
    """Formats rows as an HTML table. All texts are escaped, except cells with a method ``_repr_html_``."""

    def row(cells: Iterable[Any], tag: str) -> str:
        return f'<tr>{"".join(f"<{tag}>{_cell(cell)}</{tag}>" for cell in cells)}</tr>'

    top = f'<caption>{escape(caption)}</caption>' if caption else ''
    heading = f'<thead>{row(head, "th")}</thead>' if head else ''
    body = ''.join(row(cells, 'td') for cells in rows)
    return f'<table>{top}{heading}<tbody>{body}</tbody></table>'


def _cell(value: Any) -> str:
    if hasattr(value, '_repr_html_'):
        return str(value._repr_html_())
    if value is None:
        return ''
    if isinstance(value, int) and not isinstance(value, bool):
        return f'{value:,}'
    return escape(f'{value:.2f}' if isinstance(value, float) else str(value))
