from typing import Optional

class View:
    """Selected samples of a dataset, by their stored numbers."""

    index: str
    stored: int

    @staticmethod
    def read(path: str, settings: Optional[dict[str, str]] = None) -> View:
        """Reads a file, or an object of a store."""

    @staticmethod
    def from_bytes(data: bytes) -> View:
        """Parses the bytes of a file."""

    def to_bytes(self) -> bytes:
        """Returns the bytes of the file."""

    def save(self, path: str, overwrite: bool) -> None:
        """Writes the file."""

    def numbers(self) -> bytes:
        """Returns the stored numbers of the samples, as little-endian 64-bit integers."""

    def intersection(self, other: View) -> View: ...
    def union(self, other: View) -> View: ...
    def difference(self, other: View) -> View: ...
    def inverted(self) -> View: ...
    def __len__(self) -> int: ...
    def __contains__(self, number: int) -> bool: ...
