"""The tag of a wheel that holds a program: any Python, this platform."""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging import tags


class PlatformHook(BuildHookInterface):
    """Says which machines the wheel is for: those with at least the C library of this one."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        build_data['pure_python'] = False
        # The first of them names the newest C library that this machine has.
        platforms = [name for name in tags.platform_tags() if name.startswith('manylinux')]
        build_data['tag'] = f'py3-none-{platforms[0]}'
