"""Errors for earlier names of arguments."""

from __future__ import annotations

from functools import wraps
from typing import Any, Callable, TypeVar, cast

from shardmill.errors import ArgumentTypeError

__all__ = ['renamed']

F = TypeVar('F', bound=Callable[..., Any])


def renamed(**names: str) -> Callable[[F], F]:
    """Returns a decorator for a function whose arguments have new names: an earlier name is an error that names the new
    one.

    Args:
        **names: The new names by the earlier ones.
    """

    def decorate(function: F) -> F:
        @wraps(function)
        def checked(*args: Any, **given: Any) -> Any:
            for old in given.keys() & names.keys():
                text = f'`{old}` has another name now: `{names[old]}`'
                raise ArgumentTypeError(text, 'config-argument', old, f'write `{names[old]}=...`')
            return function(*args, **given)

        return cast(F, checked)

    return decorate
