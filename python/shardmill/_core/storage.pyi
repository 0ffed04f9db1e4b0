"""Uploads and downloads of single files. A location is a path, `file://PATH` or the URL of an object in a store."""

import os
from typing import Any, Callable, Optional, Union

def upload(
    local_path: Union[str, os.PathLike[str]],
    url: str,
    settings: Optional[dict[str, str]] = None,
    progress: Optional[Callable[[int], Any]] = None,
) -> None:
    """Uploads a file, atomically replacing an existing one.

    Settings default to those of the environment. `progress` is called with the number of transferred bytes.
    """

def download(
    url: str,
    local_path: Union[str, os.PathLike[str]],
    settings: Optional[dict[str, str]] = None,
    timeout: Optional[float] = None,
    progress: Optional[Callable[[int], Any]] = None,
) -> int:
    """Downloads a file, which appears only when it is complete, and returns its size in bytes.

    The timeout is the maximum number of seconds without new data.
    """

def exists(url: str, settings: Optional[dict[str, str]] = None) -> bool:
    """Returns whether a file or an object exists."""

def list_objects(url: str, settings: Optional[dict[str, str]] = None) -> list[tuple[str, int]]:
    """Lists the files or objects whose paths or keys begin with the location, with their size in bytes."""

def check_bucket(url: str, settings: Optional[dict[str, str]] = None) -> None:
    """Checks that a bucket exists and may be listed."""
