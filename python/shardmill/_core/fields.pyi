"""Decoding of WebDataset fields by their extension."""

from typing import Any

def decode_field(field: str, data: bytes) -> tuple[str, Any]: ...
