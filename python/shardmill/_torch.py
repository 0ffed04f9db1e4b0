"""Support for torch as an optional dependency that is not imported together with shardmill.

Classes that derive from a class of torch are defined with a placeholder base. When torch is imported, or the first
object is constructed, torch's class replaces the placeholder.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any, Optional


class Placeholder:
    """Replaces a base class of torch until torch is imported."""

    def __class_getitem__(cls, _: Any) -> type[Placeholder]:
        # Sample types are only for type checkers.
        return cls


def is_installed() -> bool:
    """Returns whether torch can be imported."""
    return 'torch' in sys.modules or importlib.util.find_spec('torch') is not None


def adopt(cls: type, name: str, *, load: bool = False) -> bool:
    """Replaces the placeholder among the bases of ``cls`` by ``torch.utils.data.<name>``."""
    if Placeholder not in cls.__bases__:
        return True
    if 'torch.utils.data' not in sys.modules and not (load and is_installed()):
        return False
    base = getattr(importlib.import_module('torch.utils.data'), name)
    cls.__bases__ = tuple(base if old is Placeholder else old for old in cls.__bases__)
    return True


def worker_info() -> Optional[Any]:
    """Returns torch's ``get_worker_info()`` in a ``DataLoader`` worker; ``None`` in other processes."""
    module = sys.modules.get('torch.utils.data')
    return None if module is None else module.get_worker_info()
