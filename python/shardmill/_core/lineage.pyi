from collections.abc import Sequence
from typing import Optional

from shardmill._core.options import EpochOptions
from shardmill._core.reader import Reader
from shardmill._core.tokens import TokenOptions

def samples_of_step(
    reader: Reader,
    options: EpochOptions,
    step: int,
    rank: Optional[int] = None,
    tokens: Optional[TokenOptions] = None,
) -> tuple[int, int, list[tuple[int, int, int, bool]]]: ...
def steps_of_sample(
    reader: Reader,
    options: EpochOptions,
    sample: int,
    epochs: int,
    tokens: Optional[TokenOptions] = None,
) -> list[tuple[int, int, int, int, int, bool]]: ...
def places_of(
    reader: Reader, samples: Sequence[int]
) -> tuple[
    list[tuple[int, int, int, str, int, Optional[str], Optional[int]]],
    list[tuple[Optional[str], Optional[str], Optional[int], Optional[str]]],
]: ...
