"""Checks of arguments. Each function takes the name of an argument and its value, and returns the value to use.

Every error names the argument, the value and the values that are allowed. A value of a wrong type is an
`ArgumentTypeError`, which is a TypeError and a ValueError; a wrong value of the right type is a ValueError.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, Callable, NoReturn, Optional, TypeVar, Union

from shardmill import _core
from shardmill.errors import ArgumentTypeError, UnknownEncodingError, UnknownNameError, UsageError

__all__ = [
    'byte_size',
    'choice',
    'count',
    'encodings',
    'epoch_samples',
    'flag',
    'function',
    'given_together',
    'hash_name',
    'hash_names',
    'instances',
    'mapping',
    'number',
    'path',
    'path_or_none',
    'place',
    'place_to_write',
    'public_location',
    'refuse_type',
    'refuse_value',
    'sample_number',
    'scaled',
    'text',
    'texts',
    'whole',
    'whole_or_none',
]

_MOST = (1 << 63) - 1
#: How much of a value an error shows.
_SHOWN = 80

T = TypeVar('T')


def _shown(value: Any) -> str:
    """A value as an error shows it: short, and without the secrets of a URL."""
    if isinstance(value, str):
        value = public_location(value)
    try:
        shown = repr(value)
    except Exception:
        shown = 'a value without a representation'
    return shown if len(shown) <= _SHOWN else f'{shown[:_SHOWN]}…'


def refuse_value(name: str, value: Any, allowed: str) -> NoReturn:
    """Raises an error for a value that an argument cannot have.

    Raises:
        ValueError: Always.
    """
    raise UsageError(f'`{name}` must be {allowed}, but got: {_shown(value)}.', 'config-value', name)


def refuse_type(name: str, value: Any, allowed: str) -> NoReturn:
    """Raises an error for a value of a type that an argument cannot have.

    Raises:
        TypeError: Always. It is a ValueError as well.
    """
    kind = type(value).__name__
    raise ArgumentTypeError(
        f'`{name}` must be {allowed}, but got: {_shown(value)} ({kind}).', 'config-type', name
    )


# Numbers.


def _index(value: Any) -> Optional[int]:
    """An integer of Python, NumPy or torch; ``None`` for anything else, truth values included."""
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


def whole(name: str, value: Any, least: int = 0, most: int = _MOST) -> int:
    """An integer of Python, NumPy or torch in a range.

    Raises:
        TypeError: It is no integer. A float is none, whatever its value.
        ValueError: It is outside of the range.
    """
    kind = 'positive integer' if least == 1 else 'non-negative integer'
    kind = f'{kind} of 64 bits' if least in (0, 1) else f'integer from {least}'
    allowed = f'a {kind}' if most == _MOST else f'an integer from {least} to {most}'
    integer = _index(value)
    if integer is None:
        refuse_type(name, value, allowed)
    if not least <= integer <= most:
        refuse_value(name, value, allowed)
    return integer


def whole_or_none(name: str, value: Any, least: int = 0, most: int = _MOST) -> Optional[int]:
    """As `whole`; ``None`` stays ``None``."""
    return None if value is None else whole(name, value, least, most)


def count(name: str, value: Any, least: int = 0) -> int:
    """As `whole`, where a float without a fraction is accepted too, such as ``64.0``.

    Raises:
        TypeError: It is no number.
        ValueError: It is outside of the range, or has a fraction.
    """
    return whole(name, _without_fraction(name, value), least)


def _without_fraction(name: str, value: Any) -> Any:
    """A float as an integer; other values as they are."""
    if _index(value) is not None or not _is_real(value):
        return value
    if not math.isfinite(value) or value != int(value):
        refuse_value(name, value, 'a whole number')
    return int(value)


def _is_real(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def number(name: str, value: Any, *, above: Optional[float] = None, least: float = 0) -> float:
    """A finite number, whole or not, in a range.

    Args:
        name: The argument.
        value: Its value.
        above: What it must be larger than.
        least: What it must not be smaller than.

    Raises:
        TypeError: It is no number.
        ValueError: It is infinite, no number, or outside of the range.
    """
    allowed = f'a number from {least}' if above is None else f'a number above {above}'
    if not least:
        allowed = 'a non-negative number' if above is None else 'a positive number'
    if not _is_real(value):
        refuse_type(name, value, allowed)
    if not math.isfinite(value) or value < least or (above is not None and value <= above):
        refuse_value(name, value, allowed)
    # A NumPy number stays the float or int that it is.
    plain = _index(value)
    return float(value) if plain is None else plain


def scaled(given: str, units: Mapping[str, int], known: str) -> int:
    """A number from a text: whole, or with a unit after it. Underscores may separate its digits.

    Raises:
        ValueError: The text is something else.
    """
    value = given.strip().lower()
    unit = next((unit for unit in units if value.endswith(unit)), None)
    try:
        if unit is not None:
            return int(float(value[: -len(unit)]) * units[unit])
        if value.replace('_', '').isdigit():
            return int(value)
    except (ValueError, OverflowError):
        pass
    # The first words are what callers look for.
    raise UsageError(
        f'Unsupported value/suffix {given!r}', 'config-value', None, f'use one of {known}'
    )


def _parsed(
    name: str, value: str, parse: Callable[[str], int], allowed: str, least: int = 0
) -> int:
    """A number from the text of an argument."""
    try:
        parsed = parse(value)
    except UsageError as error:
        text = f'`{name}` must be {allowed}, but got: {error.message}.'
        raise UsageError(text, 'config-value', name, error.hint) from None
    is_lost = parsed == 0 and any(digit in value for digit in '123456789')
    if is_lost or not least <= parsed <= _MOST:
        refuse_value(name, value, allowed)
    return parsed


def byte_size(name: str, value: Any, most: int = _MOST) -> Optional[int]:
    """A number of bytes from a number or a text such as ``'64mb'``; ``None`` stays ``None``. A fraction is dropped.

    Raises:
        TypeError: It is neither.
        ValueError: It is negative, less than one byte but not 0, more than `most`, or another text.
    """
    from shardmill.base.util import bytes_to_int

    if value is None:
        return None
    allowed = "a number of bytes or a text such as '64mb'"
    if isinstance(value, str):
        size = _parsed(name, value, bytes_to_int, allowed)
    else:
        if not _is_real(value) and _index(value) is None:
            refuse_type(name, value, allowed)
        if not math.isfinite(value) or value < 0 or 0 < value < 1:
            refuse_value(name, value, f'{allowed}, and must not be negative')
        size = int(value)
    if size > most:
        refuse_value(name, value, f'{allowed}, and less than {most + 1}')
    return size


def epoch_samples(value: Any, name: str = 'epoch_size') -> Optional[int]:
    """The samples of an epoch, from a whole number or a text such as ``'100k'``; ``None`` for ``None`` and 0.

    Raises:
        TypeError: It is neither.
        ValueError: It is negative, has a fraction, or is another text.
    """
    from shardmill.base.util import number_abbrev_to_int

    if value is None:
        return None
    if isinstance(value, str):
        if not value:
            return None
        allowed = "a number of samples or a text such as '100k'"
        return _parsed(name, value, number_abbrev_to_int, allowed) or None
    value = _without_fraction(name, value)
    integer = _index(value)
    if integer is not None and integer < 0:
        # The first words are what callers look for.
        text = f'Epoch size cannot be negative. `{name}` must be non-negative, but got: {integer}.'
        raise UsageError(text, 'config-value', name)
    return whole(name, value) or None


# Truth values, texts, places.


def flag(name: str, value: Any) -> bool:
    """A truth value: ``True``, ``False``, 0 or 1, of Python or NumPy. ``None`` is ``False``.

    Raises:
        TypeError: It is something else. A text such as ``'no'`` is, which Python takes for true.
        ValueError: It is another number.
    """
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
    """A text.

    Raises:
        TypeError: It is none.
    """
    if not isinstance(value, str):
        refuse_type(name, value, 'a text')
    return value


def path(name: str, value: Any) -> str:
    """A path or a URL: a text, or an object such as `pathlib.Path`.

    Raises:
        TypeError: It is something else, or bytes.
    """
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if not isinstance(value, str):
        refuse_type(name, value, 'a path or a URL, as a text or a `pathlib.Path`')
    if '\0' in value:
        refuse_value(name, value, 'a path or a URL without null characters')
    return value


def path_or_none(name: str, value: Any) -> Optional[str]:
    """As `path`; ``None`` stays ``None``."""
    return None if value is None else path(name, value)


def choice(name: str, value: Any, allowed: Iterable[str]) -> str:
    """One of several words.

    Raises:
        TypeError: It is no text.
        KeyError: It is another word. The error is a ValueError as well.
    """
    known = list(allowed)
    quoted = ', '.join(repr(word) for word in known)
    if not isinstance(value, str):
        refuse_type(name, value, f'one of {quoted}')
    if value not in known:
        # The first words are what callers look for.
        words = name.replace('_', ' ')
        raise UnknownNameError(
            f'Invalid {words}: {_shown(value)}. `{name}` must be one of {quoted}.',
            'config-value',
            name,
        )
    return value


def hash_name(name: str, value: Any) -> Optional[str]:
    """The name of a hash; ``None`` for ``None`` and an empty text.

    Raises:
        TypeError: It is no text.
        ValueError: There is no such hash.
    """
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
    """The names of hashes, sorted and each once.

    Raises:
        TypeError: It is no sequence of texts.
        ValueError: One is no hash, or they are in another order.
    """
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
    """Several texts, which a single text is not.

    Raises:
        TypeError: It is something else.
    """
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        refuse_type(name, value, allowed)
    found = list(value)
    for at, each in enumerate(found):
        if not isinstance(each, str):
            refuse_type(f'{name}[{at}]', each, 'a text')
    return found


def sample_number(value: Any, size: int) -> int:
    """The number of a sample, from 0.

    Raises:
        TypeError: It is no integer.
        IndexError: There is no such sample.
    """
    return place('sample_id', value, size, 'sample')


def place(name: str, value: Any, size: int, what: str) -> int:
    """The number of one of several things, from 0.

    Raises:
        TypeError: It is no integer.
        IndexError: There is no such thing.
    """
    found = _index(value)
    if found is None:
        refuse_type(name, value, 'an integer')
    if not 0 <= found < size:
        raise IndexError(f'there is no {what} {found}: the dataset has {size}')
    return found


# Objects.


def function(name: str, value: Optional[T]) -> Optional[T]:
    """A callable, or ``None``.

    Raises:
        TypeError: It is neither.
    """
    if value is not None and not callable(value):
        refuse_type(name, value, 'callable or None')
    return value


def mapping(name: str, value: Any, allowed: str = 'a dict') -> dict[str, Any]:
    """A dict with texts as its keys.

    Raises:
        TypeError: It is something else.
    """
    if not isinstance(value, Mapping):
        refuse_type(name, value, allowed)
    for key in value:
        if not isinstance(key, str):
            refuse_type(name, value, f'{allowed} with texts as keys')
    return dict(value)


def instances(name: str, value: Any, kind: type[T]) -> Sequence[T]:
    """A sequence of objects of a class.

    Raises:
        TypeError: It is something else, or has another object in it.
    """
    allowed = f'a list of {kind.__name__} objects'
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        refuse_type(name, value, allowed)
    for at, each in enumerate(value):
        if not isinstance(each, kind):
            refuse_type(f'{name}[{at}]', each, f'a {kind.__module__}.{kind.__name__}')
    return value


def place_to_write(name: str, value: Any) -> Union[str, tuple[str, str]]:
    """Where a writer writes: a folder or a URL, or a local folder and a URL.

    Raises:
        TypeError: It is something else.
        ValueError: It is empty, or not two places.
    """
    if isinstance(value, (tuple, list)):
        if len(value) != 2:
            # The first words are what callers look for.
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
    """The encodings of columns by their names, each of which has to exist.

    Raises:
        TypeError: It is no dict of texts.
        ValueError: There are no columns.
        UnknownEncodingError: There is no such encoding.
    """
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


def given_together(**given: Any) -> None:
    """Refuses one of several arguments without the others.

    Raises:
        ValueError: Some are given and some are not.
    """
    if len({value is None for value in given.values()}) > 1:
        names = ' and '.join(f'`{name}`' for name in given)
        missing = [f'`{name}`' for name, value in given.items() if value is None]
        raise UsageError(
            f'{names} go together: {", ".join(missing)} is missing',
            'config-value',
            missing[0][1:-1],
        )


def public_location(location: Union[str, os.PathLike[str]]) -> str:
    """A path, or a URL without user name, password, query and fragment, which may hold secrets."""
    shown = os.fspath(location)
    scheme, separator, rest = shown.partition('://')
    if not separator or not scheme.replace('+', '').replace('-', '').replace('.', '').isalnum():
        return shown
    rest = rest.partition('?')[0].partition('#')[0]
    host, slash, tail = rest.partition('/')
    if ':' in host and '@' not in host and '@' in tail:
        if not host.rpartition(':')[2].isdigit():
            # A secret with a `/` in it: everything to the last `@` belongs to the user.
            host, slash, tail = tail.rpartition('@')[2].partition('/')
    return f'{scheme}://{host.rpartition("@")[2]}{slash}{tail}'
