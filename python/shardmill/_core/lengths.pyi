from typing import Optional

def lengths(
    path: str, column: str, with_deleted: bool = False, settings: Optional[dict[str, str]] = None
) -> bytes:
    """Returns the length of a column in every sample, as little-endian 32-bit integers."""
