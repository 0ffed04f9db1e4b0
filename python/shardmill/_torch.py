"""torch, where it is installed: found late, so that importing shardmill does not wait for it.

The classes that torch has to recognise are made with a placeholder among their bases. As soon as torch is there, or the
first object is made, the real base class takes the placeholder's place.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any, Optional


class Placeholder:
    """Stands among the bases of a class for one of torch's classes until torch is imported."""

    def __class_getitem__(cls, _: Any) -> type[Placeholder]:
        # Types of samples are for type checkers.
        return cls


def is_installed() -> bool:
    """Whether torch can be imported."""
    return 'torch' in sys.modules or importlib.util.find_spec('torch') is not None


def adopt(cls: type, name: str, *, load: bool = False) -> bool:
    """Puts ``torch.utils.data.<name>`` in the place of the placeholder among the bases of ``cls``.

    Args:
        cls: The class, one of whose direct bases is ``Placeholder``.
        name: The class of ``torch.utils.data`` to derive from.
        load: Whether to import torch if nobody has; else nothing happens without it.

    Returns:
        Whether ``cls`` derives from torch's class now.
    """
    if Placeholder not in cls.__bases__:
        return True
    if 'torch.utils.data' not in sys.modules and not (load and is_installed()):
        return False
    base = getattr(importlib.import_module('torch.utils.data'), name)
    cls.__bases__ = tuple(base if old is Placeholder else old for old in cls.__bases__)
    return True


def worker_info() -> Optional[Any]:
    """torch's ``get_worker_info()`` in a worker process of a ``DataLoader``; ``None`` anywhere else."""
    module = sys.modules.get('torch.utils.data')
    return None if module is None else module.get_worker_info()
