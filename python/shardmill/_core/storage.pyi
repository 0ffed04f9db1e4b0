"""Uploads and downloads of single files. A location is a path, `file://PATH` or the URL of an object in a store."""

import os
from typing import Any, Callable, Optional, Union

def upload(
    local_path: Union[str, os.PathLike[str]],
    url: str,
    settings: Optional[dict[str, str]] = None,
    progress: Optional[Callable[[int], Any]] = None,
) -> None: ...
def download(
    url: str,
    local_path: Union[str, os.PathLike[str]],
    settings: Optional[dict[str, str]] = None,
    timeout: Optional[float] = None,
    progress: Optional[Callable[[int], Any]] = None,
) -> int: ...
def list_objects(url: str, settings: Optional[dict[str, str]] = None) -> list[tuple[str, int]]: ...
def check_bucket(url: str, settings: Optional[dict[str, str]] = None) -> None: ...
