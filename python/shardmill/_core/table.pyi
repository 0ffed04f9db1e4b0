"""Tables that are read in place."""

from typing import Optional

def delta_version(location: str, settings: Optional[dict[str, str]] = None) -> int: ...
