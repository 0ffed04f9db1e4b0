"""Lists the arguments that a constructor takes as keywords of a typed dict, for `help`, `inspect` and editors."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Callable, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

F = TypeVar('F', bound=Callable[..., None])


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
