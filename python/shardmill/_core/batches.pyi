"""The batches of an epoch."""

from typing import Any, Optional, Union

class Batches:
    """The batches of a rank and worker in one epoch, in order."""

    def next_samples(self) -> Optional[list[Any]]:
        """Returns the next batch as a list of dicts; ``None`` at the end."""

    def next_numbered(self) -> Optional[tuple[list[int], list[Any]]]:
        """Returns the next batch as its sample numbers and a list of dicts; ``None`` at the end."""

    def next_columns(self, only: Optional[set[str]] = None) -> Optional[tuple[int, Any]]:
        """Returns the next batch as its number of samples and its columns; ``None`` at the end.

        Columns are a `Block` for numbers and a list for other values. If samples have different columns, the result is
        a list of dicts. With ``only``, other columns are not decoded.
        """

    def resolved(self) -> dict[str, Optional[int]]:
        """Returns the effective settings of the epoch."""

    def stats(self) -> dict[str, Union[int, float]]:
        """Returns the statistics of reading so far, by name."""

    def close(self) -> None:
        """Stops the threads. Nothing can be read afterwards."""

class Order:
    """The sample numbers of a rank and worker in one epoch, batch by batch, without reading samples."""

    def next_numbers(self) -> Optional[list[int]]:
        """Returns the sample numbers of the next batch; ``None`` at the end."""

    def resolved(self) -> dict[str, Optional[int]]:
        """Returns the effective settings of the epoch."""
