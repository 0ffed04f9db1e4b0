from typing import Optional

from shardmill._core.view import View

def lengths(
    path: str,
    column: str,
    with_deleted: bool = False,
    settings: Optional[dict[str, str]] = None,
    view: Optional[View] = None,
) -> bytes: ...
