"""Batches of tokens."""

from typing import Any, Optional, Union

class TokenOptions:
    """Which tokens to read, and how to make rows of them.

    Args:
        column: The column with the tokens.
        lengths: The tokens of each sample, as little-endian 32-bit integers.
        padding_id: The token that fills rows.
        form: ``context``, ``padded`` or ``summed``.
        tokens: The tokens of a row.
        pool: How many documents are considered together.
        long: ``split``, ``truncate`` or ``error``.
        last: ``repeat``, ``drop`` or ``short``.
        dtype: The type of the tokens in a column of bytes.
    """

    def __new__(
        cls,
        *,
        column: str,
        lengths: bytes,
        padding_id: int,
        form: str,
        tokens: int,
        pool: int,
        long: str,
        last: str,
        dtype: Optional[str] = None,
    ) -> TokenOptions: ...

class TokenBatches:
    """The token batches of a rank and worker in one epoch, in order."""

    def next(self) -> Optional[tuple[int, dict[str, Any]]]: ...
    def stats(self) -> dict[str, Union[int, float]]: ...
    def close(self) -> None: ...
