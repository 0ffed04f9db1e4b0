"""Names and modules of a package that are loaded on first use."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def lazy(
    package: str, homes: Mapping[str, Iterable[str]], modules: Iterable[str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns the functions `__getattr__` and `__dir__` of a package with names by module and with other modules."""
    home_of = {name: home for home, names in homes.items() for name in names}
    members = vars(sys.modules[package])
    known = frozenset(modules)

    def load(name: str) -> Any:
        if name in home_of:
            value = getattr(importlib.import_module(f'{package}.{home_of[name]}'), name)
        elif name in known:
            value = importlib.import_module(f'{package}.{name}')
        else:
            raise AttributeError(f'module {package!r} has no attribute {name!r}')
        members[name] = value
        return value

    return load, lambda: sorted({*members, *home_of, *known})
