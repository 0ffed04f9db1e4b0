"""Names and modules of a package that are loaded on first use."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Callable, Optional


def lazy(
    package: str,
    homes: Mapping[str, Iterable[str]],
    modules: Iterable[str] = (),
    root: Optional[str] = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns the functions `__getattr__` and `__dir__` of a package with names by module and with other modules.

    Modules are named below `root`, which defaults to the package.
    """
    home_of = {name: home for home, names in homes.items() for name in names}
    members = vars(sys.modules[package])
    known = frozenset(modules)

    def load(name: str) -> Any:
        if name in home_of:
            value = getattr(importlib.import_module(f'{root or package}.{home_of[name]}'), name)
        elif name in known:
            value = importlib.import_module(f'{root or package}.{name}')
        else:
            raise AttributeError(f'module {package!r} has no attribute {name!r}')
        members[name] = value
        return value

    return load, lambda: sorted({*members, *home_of, *known})
