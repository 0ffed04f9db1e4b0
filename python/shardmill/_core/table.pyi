"""Tables that are read in place."""

from collections.abc import Sequence
from typing import Optional

class TableOptions:
    """A table that is read in place.

    Args:
        columns: The columns to read; all if empty.
        version: The version of a Delta table; ``None`` for a folder of Parquet files.
        masks_nulls: Whether nulls are zeros that columns ``NAME__is_null`` mark.
    """

    def __new__(
        cls, columns: Sequence[str], version: Optional[int] = None, masks_nulls: bool = False
    ) -> TableOptions: ...

def delta_version(location: str, settings: Optional[dict[str, str]] = None) -> int:
    """Returns the number of the latest version of a Delta table."""
