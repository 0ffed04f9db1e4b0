"""Lets programs that ``import streaming`` run on shardmill, by giving its modules a second name.

``streaming.X.Y`` *is* ``shardmill.X.Y``, the same object, loaded on first use. Classes are therefore identical under
both names, and replacing an attribute under one name also replaces it under the other.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

_ALIAS = 'streaming'
_OURS = __name__.partition('.')[0]


def _target(name: str) -> str:
    """Returns the name of the shardmill module for an alias."""
    return _OURS + name[len(_ALIAS) :]


class _AliasLoader(Loader):
    """Replaces the module being created by the shardmill module for the alias."""

    def create_module(self, spec: ModuleSpec) -> Optional[ModuleType]:
        return None

    def exec_module(self, module: ModuleType) -> None:
        # After this call the import machinery takes the module that is in `sys.modules`.
        name = module.__name__
        sys.modules[name] = importlib.import_module(_target(name))


class _AliasFinder(MetaPathFinder):
    """Finds every ``streaming`` module that exists as a ``shardmill`` module."""

    def find_spec(
        self,
        fullname: str,
        path: Optional[Sequence[str]],
        target: Optional[ModuleType] = None,
    ) -> Optional[ModuleSpec]:
        if fullname != _ALIAS and not fullname.startswith(f'{_ALIAS}.'):
            return None
        found = importlib.util.find_spec(_target(fullname))
        if found is None:
            return None
        is_package = found.submodule_search_locations is not None
        return ModuleSpec(fullname, _AliasLoader(), is_package=is_package)


def install_as_streaming() -> None:
    """Makes ``import streaming`` and all imports below it load shardmill.

    Call it before anything imports ``streaming``; further calls do nothing. Pickles and printed names
    still refer to shardmill.

    Raises:
        ImportError: Another ``streaming`` is already imported in this process; mixing its classes with
            those of shardmill would fail.
    """
    ours = sys.modules[_OURS]
    already = sys.modules.get(_ALIAS)
    if already is not None and already is not ours:
        where = getattr(already, '__file__', None) or 'an unknown place'
        raise ImportError(
            f'another module named {_ALIAS!r} is already imported, from {where}; '
            f'call shardmill.install_as_streaming() before the first import of {_ALIAS!r}'
        )
    if not any(isinstance(finder, _AliasFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AliasFinder())
    sys.modules[_ALIAS] = ours
