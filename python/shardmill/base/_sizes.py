"""Parses sizes and counts with units."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Union

from shardmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Units of 1024.
BYTES = {'b': 1}
for _power, _letter in enumerate('kmgtpezy', 1):
    BYTES[f'{_letter}b'] = BYTES[f'{_letter}ib'] = 1 << 10 * _power
#: Units of 1000.
THOUSANDS = {'k': 10**3, 'm': 10**6, 'b': 10**9, 't': 10**12}


def scaled(text: str, units: Mapping[str, int]) -> Optional[int]:
    """Parses a whole number, or a number followed by a unit. Underscores may separate its digits.

    Returns:
        The number, rounded down; ``None`` for other texts.
    """
    value = text.strip().lower()
    unit = max((unit for unit in units if value.endswith(unit)), key=len, default='')
    number = value[: len(value) - len(unit)].rstrip() if unit else value
    try:
        if number.replace('_', '').isdigit():
            return int(number) * units.get(unit, 1)
        return int(float(number) * units[unit]) if unit else None
    except (ValueError, OverflowError):
        return None


def bytes_to_int(bytes_str: Union[int, float, str]) -> int:
    """Parses a number of bytes from text such as ``16mb`` or ``16MiB`` (units of 1024) or ``500``; a
    number is rounded down.

    Raises:
        ValueError: The text is not a number of bytes.
    """
    return _parsed(bytes_str, BYTES)


def number_abbrev_to_int(abbrev_str: Union[int, float, str]) -> int:
    """Parses a number from text such as ``10k``, ``1.5m``, ``2b`` (units of 1000) or ``500``; a number is rounded down.

    Raises:
        ValueError: The text is not a number.
    """
    return _parsed(abbrev_str, THOUSANDS)


def _parsed(given: Union[int, float, str], units: Mapping[str, int]) -> int:
    number = scaled(given, units) if isinstance(given, str) else int(given)
    if number is None:
        # COMPAT: programs match the beginning of this message.
        raise UsageError(
            f'Unsupported value/suffix {given!r}',
            'config-value',
            None,
            f'use one of {", ".join(units)}',
        )
    return number
