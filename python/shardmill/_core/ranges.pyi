"""Consecutive samples by number, without an epoch."""

from typing import Any, Optional

class Ranges:
    """Reads ranges of samples in the order of their numbers. An epoch that is being read is not disturbed."""

    def read(self, start: int, stop: int, only: Optional[set[str]] = None) -> tuple[int, Any]: ...
