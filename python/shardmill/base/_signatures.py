"""Signatures with the arguments that a constructor takes as keywords of a typed dict, and errors for earlier names."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import wraps
from typing import Any, Callable, TypeVar, cast

from shardmill.errors import ArgumentTypeError

F = TypeVar('F', bound=Callable[..., Any])


def defaults_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Returns the defaults of the arguments of a function."""
    parameters = inspect.signature(function).parameters.values()
    return {each.name: each.default for each in parameters if each.default is not each.empty}


def lists_arguments(
    options: type, defaults: Mapping[str, Any], *, first: bool = False
) -> Callable[[F], F]:
    """Returns a decorator that lists arguments in the signature of a constructor with ``**options: Unpack[...]``."""

    def decorate(init: F) -> F:
        signature = inspect.signature(init)
        own = [each for each in signature.parameters.values() if each.kind != each.VAR_KEYWORD]
        listed = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=defaults[name],
                # Text, as the annotations of the constructor.
                annotation=getattr(annotation, '__forward_arg__', annotation),
            )
            for name, annotation in options.__annotations__.items()
        ]
        at = 1 if first else len(own)
        parameters = [*own[:at], *listed, *own[at:]]
        vars(init)['__signature__'] = signature.replace(parameters=parameters)
        return init

    return decorate


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
