"""Checks arguments. Each function takes the name and value of an argument, and returns the value to use.

Errors name the argument, its value and the allowed values. A value of the wrong type raises an `ArgumentTypeError`,
which is a TypeError and a ValueError. A wrong value of the right type raises a ValueError.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, Callable, NoReturn, Optional, TypeVar, Union

from shardmill import _core
from shardmill.errors import ArgumentTypeError, UnknownEncodingError, UnknownNameError, UsageError

_MAX = (1 << 63) - 1
#: Maximum characters of a value in an error.
_SHOWN = 80

T = TypeVar('T')


def _shown(value: Any) -> str:
    """Formats a value for an error: shortened, and without secrets in a URL."""
    if isinstance(value, str):
        value = public_location(value)
    try:
        shown = repr(value)
    except Exception:
        shown = 'a value without a representation'
    return shown if len(shown) <= _SHOWN else f'{shown[:_SHOWN]}…'


def refuse_value(name: str, value: Any, allowed: str) -> NoReturn:
    """Raises an error for an invalid value."""
    raise UsageError(f'`{name}` must be {allowed}, but got: {_shown(value)}.', 'config-value', name)


def refuse_type(name: str, value: Any, allowed: str) -> NoReturn:
    """Raises an error for a value of the wrong type."""
    kind = type(value).__name__
    raise ArgumentTypeError(
        f'`{name}` must be {allowed}, but got: {_shown(value)} ({kind}).', 'config-type', name
    )


# Numbers.


def _index(value: Any) -> Optional[int]:
    """Converts an integer of Python, NumPy or torch; ``None`` for other values, including booleans."""
    if type(value) is int:
        return value
    if isinstance(value, (bool, str, bytes, bytearray)) or type(value).__name__ in (
        'bool_',
        'bool',
    ):
        return None
    try:
        return int(value.__index__())
    except (AttributeError, TypeError):
        return None


def whole(name: str, value: Any, minimum: int = 0, maximum: int = _MAX) -> int:
    """Checks an integer of Python, NumPy or torch."""
    kind = 'positive integer' if minimum == 1 else 'non-negative integer'
    kind = f'{kind} of 64 bits' if minimum in (0, 1) else f'integer from {minimum}'
    allowed = f'a {kind}' if maximum == _MAX else f'an integer from {minimum} to {maximum}'
    integer = _index(value)
    if integer is None:
        refuse_type(name, value, allowed)
    if not minimum <= integer <= maximum:
        refuse_value(name, value, allowed)
    return integer


def whole_or_none(name: str, value: Any, minimum: int = 0, maximum: int = _MAX) -> Optional[int]:
    """Checks an integer like `whole`; ``None`` remains ``None``."""
    return None if value is None else whole(name, value, minimum, maximum)


def count(name: str, value: Any, minimum: int = 0) -> int:
    """Checks an integer like `whole`, but also accepts floats without a fraction, such as ``64.0``."""
    return whole(name, _without_fraction(name, value), minimum)


def _without_fraction(name: str, value: Any) -> Any:
    """Converts a float to an integer; returns other values unchanged."""
    if _index(value) is not None or not _is_real(value):
        return value
    if not math.isfinite(value) or value != int(value):
        refuse_value(name, value, 'a whole number')
    return int(value)


def _is_real(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def number(name: str, value: Any, *, above: Optional[float] = None, minimum: float = 0) -> float:
    """Checks a finite number, whole or not, at least `minimum` or else larger than `above`."""
    allowed = f'a number from {minimum}' if above is None else f'a number above {above}'
    if not minimum:
        allowed = 'a non-negative number' if above is None else 'a positive number'
    if not _is_real(value):
        refuse_type(name, value, allowed)
    if not math.isfinite(value) or value < minimum or (above is not None and value <= above):
        refuse_value(name, value, allowed)
    # Convert NumPy numbers to int or float.
    plain = _index(value)
    return float(value) if plain is None else plain


def parsed(
    name: str, value: str, parse: Callable[[str], int], allowed: str, minimum: int = 0
) -> int:
    """Parses the text of an argument as a number."""
    try:
        found = parse(value)
    except UsageError as error:
        text = f'`{name}` must be {allowed}, but got: {error.message}.'
        raise UsageError(text, 'config-value', name, error.hint) from None
    is_lost = found == 0 and any(digit in value for digit in '123456789')
    if is_lost or not minimum <= found <= _MAX:
        refuse_value(name, value, allowed)
    return found


def byte_size(name: str, value: Any, maximum: int = _MAX) -> Optional[int]:
    """Checks a number of bytes, or parses text such as ``'64mb'``; ``None`` remains ``None``. Rounds down."""
    if value is None:
        return None
    allowed = "a number of bytes or a text such as '64mb'"
    if isinstance(value, str):
        size = parsed(name, value, bytes_to_int, allowed)
    else:
        if not _is_real(value) and _index(value) is None:
            refuse_type(name, value, allowed)
        if not math.isfinite(value) or value < 0 or 0 < value < 1:
            refuse_value(name, value, f'{allowed}, and must not be negative')
        size = int(value)
    if size > maximum:
        refuse_value(name, value, f'{allowed}, and less than {maximum + 1}')
    return size


def epoch_samples(value: Any, name: str = 'epoch_size') -> Optional[int]:
    """Checks the samples of an epoch, or parses text such as ``'100k'``; ``None`` for ``None`` and 0."""
    if value is None:
        return None
    if isinstance(value, str):
        if not value:
            return None
        allowed = "a number of samples or a text such as '100k'"
        return parsed(name, value, number_abbrev_to_int, allowed) or None
    value = _without_fraction(name, value)
    integer = _index(value)
    if integer is not None and integer < 0:
        # COMPAT: programs match the beginning of this message.
        text = f'Epoch size cannot be negative. `{name}` must be non-negative, but got: {integer}.'
        raise UsageError(text, 'config-value', name)
    return whole(name, value) or None


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


# Booleans, texts, places.


def flag(name: str, value: Any) -> bool:
    """Checks a boolean: ``True``, ``False``, 0 or 1, of Python or NumPy. ``None`` is ``False``."""
    if value is None or isinstance(value, bool):
        return bool(value)
    allowed = 'True or False'
    if type(value).__name__ in ('bool', 'bool_'):
        return bool(value)
    integer = _index(value)
    if integer is None:
        refuse_type(name, value, allowed)
    if integer not in (0, 1):
        refuse_value(name, value, allowed)
    return bool(integer)


def text(name: str, value: Any) -> str:
    """Checks that a value is text."""
    if not isinstance(value, str):
        refuse_type(name, value, 'a text')
    return value


def path(name: str, value: Any) -> str:
    """Checks a path or a URL: text, or an object such as `pathlib.Path`."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if not isinstance(value, str):
        refuse_type(name, value, 'a path or a URL, as a text or a `pathlib.Path`')
    if '\0' in value:
        refuse_value(name, value, 'a path or a URL without null characters')
    return value


def path_or_none(name: str, value: Any) -> Optional[str]:
    """Checks a path or URL like `path`; ``None`` remains ``None``."""
    return None if value is None else path(name, value)


def choice(name: str, value: Any, allowed: Iterable[str]) -> str:
    """Checks that a value is one of the allowed words."""
    known = list(allowed)
    quoted = ', '.join(repr(word) for word in known)
    if not isinstance(value, str):
        refuse_type(name, value, f'one of {quoted}')
    if value not in known:
        # COMPAT: programs match the beginning of this message.
        words = name.replace('_', ' ')
        raise UnknownNameError(
            f'Invalid {words}: {_shown(value)}. `{name}` must be one of {quoted}.',
            'config-value',
            name,
        )
    return value


def hash_name(name: str, value: Any) -> Optional[str]:
    """Checks the name of a hash; ``None`` for ``None`` and empty text."""
    if value is None or value == '':
        return None
    known = ', '.join(sorted(_core.hash_names()))
    if not isinstance(value, str):
        refuse_type(name, value, f'one of {known}')
    if value not in _core.hash_names():
        raise UsageError(
            f'`{name}` must be one of {known}, but got: {_shown(value)}.', 'hash-unknown', name
        )
    return value


def hash_names(name: str, value: Any) -> list[str]:
    """Checks names of hashes, which must be sorted and unique."""
    found = texts(name, value or (), 'a list of names of hashes')
    for each in found:
        hash_name(name, each or '(empty)')
    if found != sorted(set(found)):
        raise UsageError(
            f'`{name}` must be sorted and have each hash once, but got: {found}.',
            'config-hashes',
            name,
            f'give {sorted(set(found))}',
        )
    return found


def texts(name: str, value: Any, allowed: str = 'a list of texts') -> list[str]:
    """Checks an iterable of texts; a single text is not accepted."""
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        refuse_type(name, value, allowed)
    found = list(value)
    for at, each in enumerate(found):
        if not isinstance(each, str):
            refuse_type(f'{name}[{at}]', each, 'a text')
    return found


def sample_number(value: Any, size: int) -> int:
    """Checks the number of a sample, from 0."""
    return place('sample_id', value, size, 'sample')


def place(name: str, value: Any, size: int, what: str) -> int:
    """Checks the number of one of `size` objects, from 0. A missing object is an IndexError."""
    found = _index(value)
    if found is None:
        refuse_type(name, value, 'an integer')
    if not 0 <= found < size:
        raise IndexError(f'there is no {what} {found}: the dataset has {size}')
    return found


# Objects.


def function(name: str, value: Optional[T]) -> Optional[T]:
    """Checks that a value is callable or ``None``."""
    if value is not None and not callable(value):
        refuse_type(name, value, 'callable or None')
    return value


def mapping(name: str, value: Any, allowed: str = 'a dict') -> dict[str, Any]:
    """Checks a mapping with text keys, and returns it as a dict."""
    if not isinstance(value, Mapping):
        refuse_type(name, value, allowed)
    for key in value:
        if not isinstance(key, str):
            refuse_type(name, value, f'{allowed} with texts as keys')
    return dict(value)


def storage_options(value: Any) -> Optional[dict[str, str]]:
    """Checks the settings of a store, and returns them as a dict; ``None`` for none. Rust checks their names."""
    if value is None:
        return None
    name = 'storage_options'
    found = mapping(name, value, 'a dict of texts')
    for key, text in found.items():
        if not isinstance(text, str):
            refuse_type(f'{name}[{key!r}]', type(text).__name__, 'a text')
    return found or None


def instances(name: str, value: Any, kind: type[T]) -> Sequence[T]:
    """Checks a sequence of instances of a class."""
    allowed = f'a list of {kind.__name__} objects'
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        refuse_type(name, value, allowed)
    for at, each in enumerate(value):
        if not isinstance(each, kind):
            refuse_type(f'{name}[{at}]', each, f'a {kind.__module__}.{kind.__name__}')
    return value


def place_to_write(name: str, value: Any) -> Union[str, tuple[str, str]]:
    """Checks the destination of a writer: a folder or a URL, or a local folder and a URL."""
    if isinstance(value, (tuple, list)):
        if len(value) != 2:
            # COMPAT: programs match the beginning of this message.
            text = f'Invalid `{name}` argument: it is one place, or a local folder and a URL'
            raise UsageError(f'{text}, but got: {len(value)} places.', 'config-value', name)
        return path(f'{name}[0]', value[0]), path(f'{name}[1]', value[1])
    destination = path(name, value)
    if not destination:
        refuse_value(name, value, 'a path or a URL')
    return destination


def encodings(
    columns: Any, is_encoding: Callable[[str], bool], known: Iterable[str]
) -> dict[str, str]:
    """Checks the encodings of columns, by name."""
    found = mapping('columns', columns, 'a dict of encodings by the names of columns')
    if not found:
        refuse_value('columns', columns, 'a dict with at least one column')
    for name, encoding in found.items():
        shown = _shown(encoding)
        try:
            why = '' if isinstance(encoding, str) and is_encoding(encoding) else 'no such encoding'
        except (AssertionError, AttributeError, KeyError, ValueError) as error:
            why = str(error) or 'no such encoding'
        if why:
            raise UnknownEncodingError(
                f'column {name!r}: {shown} is none of the encodings {", ".join(sorted(known))}: {why}',
                'encoding-unknown',
                name,
            )
    return found


def not_given(instead: str, **given: Any) -> None:
    """Requires that no argument is given that another one replaces."""
    for name, value in given.items():
        if value is not None:
            raise UsageError(f'give either `{instead}` or `{name}`', 'config-value', name)


def given_together(**given: Any) -> None:
    """Requires that either all or none of several arguments are given."""
    if len({value is None for value in given.values()}) > 1:
        names = ' and '.join(f'`{name}`' for name in given)
        missing = [f'`{name}`' for name, value in given.items() if value is None]
        raise UsageError(
            f'{names} go together: {", ".join(missing)} is missing',
            'config-value',
            missing[0][1:-1],
        )


def public_location(location: Union[str, os.PathLike[str]]) -> str:
    """Removes user name, password, query and fragment from a URL, as they may contain secrets."""
    shown = os.fspath(location)
    scheme, separator, rest = shown.partition('://')
    if not separator or not scheme.replace('+', '').replace('-', '').replace('.', '').isalnum():
        return shown
    rest = rest.partition('?')[0].partition('#')[0]
    host, slash, tail = rest.partition('/')
    if ':' in host and '@' not in host and '@' in tail:
        if not host.rpartition(':')[2].isdigit():
            # The password contains a `/`: everything up to the last `@` is user information.
            host, slash, tail = tail.rpartition('@')[2].partition('/')
    return f'{scheme}://{host.rpartition("@")[2]}{slash}{tail}'
