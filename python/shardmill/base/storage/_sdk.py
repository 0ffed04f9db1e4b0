"""Imports the SDKs of other providers on first use."""

from __future__ import annotations

import importlib
from typing import Any, Callable


def sdk(module: str, package: str) -> Any:
    """Imports a module of a provider."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        message = f'{module} is not installed, which this needs: run `pip install {package}`'
        raise ImportError(message, name=error.name, path=error.path) from error


def increments(advance: Callable[[int], Any]) -> Callable[..., None]:
    """Returns a function of the number of bytes sent so far that calls `advance` with those since its last call."""
    through = 0

    def progress(sent: int, *_: Any) -> None:
        nonlocal through
        if sent > through:
            advance(sent - through)
            through = sent

    return progress
