"""Checks values passed to writers, and builds the errors for invalid ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable, TypeVar

from shardmill.errors import (
    ArgumentTypeError,
    ColumnValueError,
    ShardmillError,
    UnknownNameError,
)

__all__ = ['encoded', 'missing_column', 'unfit_value', 'value_of']

T = TypeVar('T')

#: Maximum column names in an error message.
_SHOWN = 20
#: The exceptions that encoders raise for values that they cannot store.
_OF_VALUES = (AssertionError, AttributeError, OverflowError, TypeError, ValueError)


def value_of(sample: Mapping[str, Any], column: str) -> Any:
    """Returns the value of a column of a sample.

    Raises:
        KeyError: The sample does not have the column.
        TypeError: The sample is not a mapping.
    """
    try:
        return sample[column]
    except Exception as error:
        made = missing_column(sample, column, error)
        if made is error:
            raise
        raise made from error


def encoded(encode: Callable[[str, Any], T], column: str, encoding: str, value: Any) -> T:
    """Encodes the value of a column.

    Raises:
        ValueError: The encoding cannot store the value. The error names the column.
    """
    try:
        return encode(encoding, value)
    except Exception as error:
        made = unfit_value(column, encoding, value, error)
        if made is error:
            raise
        raise made from error


def missing_column(sample: Any, column: str, cause: BaseException) -> BaseException:
    """Returns the error for a sample without a value for a column: `cause` itself if it is about something else."""
    try:
        names = [str(name) for name in sample.keys()]
    except Exception:
        if isinstance(cause, (IndexError, TypeError, AttributeError)):
            kind = type(sample).__name__
            text = f'`sample` must be a dict of values by the names of columns, but got: {kind}.'
            return ArgumentTypeError(text, 'config-type', 'sample')
        return cause
    if not isinstance(cause, KeyError) or column in names:
        # The user's own mapping failed to produce the value.
        return cause
    shown = ', '.join(repr(name) for name in names[:_SHOWN])
    if len(names) > _SHOWN:
        shown += f' and {len(names) - _SHOWN} more'
    return UnknownNameError(
        f'the sample has no column {column!r}; it has {shown or "no columns"}',
        'sample-columns',
        column,
    )


def unfit_value(column: str, encoding: str, value: Any, cause: BaseException) -> BaseException:
    """Returns the error for a value that a column cannot store: `cause` itself if it is about something else."""
    if isinstance(cause, (ShardmillError, UnicodeError)) or not isinstance(cause, _OF_VALUES):
        return cause
    return ColumnValueError(
        f'column {column!r}: a value of {_kind(value)} cannot be stored as {encoding!r}: {cause}',
        'sample-value',
        column,
    )


def _kind(value: Any) -> str:
    """Returns the type of a value, with dtype and shape for arrays."""
    kind = type(value).__name__
    dtype, shape = getattr(value, 'dtype', None), getattr(value, 'shape', None)
    return kind if dtype is None or shape is None else f'{kind} ({dtype}, shape {tuple(shape)})'
