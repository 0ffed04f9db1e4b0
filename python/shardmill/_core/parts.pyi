"""Parts of datasets, written by tasks of Spark and Ray, and the commit that publishes them."""

from collections.abc import Sequence
from typing import Any, Optional

class PartWriter:
    """One attempt of a part. All work is done in the caller's thread.

    Args:
        dest: The folder or the URL of the dataset.
        staging: The result of `parts_begin`.
        part: The number of the part in its job.
        attempt: The name of the attempt, unique within the job.
        settings: Store settings that are not in the environment.
        columns: Names and encodings. By default all columns are written, with the encodings of their types.
    """

    def __new__(
        cls,
        dest: str,
        staging: str,
        part: int,
        attempt: str,
        settings: Optional[dict[str, str]] = None,
        *,
        columns: Optional[list[tuple[str, Optional[str]]]] = None,
        compression: Optional[str] = None,
        hashes: Sequence[str] = (),
        size_limit: Optional[int] = None,
        samples_per_shard: Optional[int] = None,
        key: Optional[str] = None,
        scratch: Optional[str] = None,
    ) -> PartWriter: ...
    def check(self, object: Any) -> list[tuple[str, str]]: ...
    def write_arrow(self, object: Any) -> int: ...
    def finish(self) -> str: ...
    def abort(self) -> None: ...

def parts_begin(
    dest: str,
    to: str,
    pattern: Optional[str],
    job: str,
    mode: str,
    settings: Optional[dict[str, str]] = None,
) -> str: ...
def parts_commit(
    dest: str,
    staging: str,
    manifests: list[str],
    parts: Optional[int],
    hashes: bool,
    settings: Optional[dict[str, str]] = None,
) -> tuple[int, int, int, bool]: ...
def parts_abort(dest: str, staging: str, settings: Optional[dict[str, str]] = None) -> int: ...
def parts_gc(
    dest: str,
    delete: bool,
    older_than: Optional[float],
    pattern: Optional[str] = None,
    settings: Optional[dict[str, str]] = None,
) -> list[tuple[str, int, str]]: ...
