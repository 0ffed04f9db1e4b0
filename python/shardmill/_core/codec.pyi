"""Hashes, compressions and merged indexes of bytes."""

def hash_names() -> list[str]:
    """Returns the names of all hashes."""

def hash_hex(algo: str, data: bytes) -> str:
    """Returns the digest of the bytes as lower-case hexadecimal digits."""

def compression_names() -> list[str]:
    """Returns the names of all compressions, with and without levels."""

def compress(name: str, data: bytes) -> bytes:
    """Compresses the bytes to one frame, member, stream or block."""

def decompress(name: str, data: bytes) -> bytes:
    """Decompresses the bytes."""

def merge_indexes(
    parts: list[tuple[str, bytes, dict[str, bytes]]],
) -> tuple[str, list[tuple[str, str]]]:
    """Merges several indexes in order. Returns the text of the merged index, and its side files by name.

    Each part is the folder of a dataset relative to that of the result, its index, and its side files by name.
    """
