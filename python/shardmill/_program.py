"""Finds the ``shardmill`` program, which the wheel installs beside the Python package."""

from __future__ import annotations

import os
import shutil
import sysconfig
from pathlib import Path

from shardmill.errors import NotFoundError

_NAME = 'shardmill'


def find_program() -> Path:
    """Returns the path of the ``shardmill`` program.

    The program that was installed with this package comes first, then the one that the environment variable
    ``SHARDMILL_BIN`` names, then the one on the ``PATH``.
    """
    installed = [folder / _NAME for folder in _script_folders()]
    for program in installed:
        if _is_program(program):
            return program
    named = os.environ.get('SHARDMILL_BIN')
    if named:
        if _is_program(Path(named)):
            return Path(named)
        raise NotFoundError(
            f'SHARDMILL_BIN names no executable file: {named}', 'program-missing', named
        )
    found = shutil.which(_NAME)
    if found is None:
        raise NotFoundError(
            f'no `{_NAME}` program in {", ".join(str(path.parent) for path in installed)} or on the PATH',
            'program-missing',
            _NAME,
            'run `pip install --force-reinstall shardmill`, or set SHARDMILL_BIN to the path of the program',
        )
    return Path(found)


def _script_folders() -> list[Path]:
    """Returns the folders in which installers put the programs of a wheel, without repetitions.

    Those that belong to the place of this package come first: the interpreter may have another version.
    """
    packages = Path(__file__).parent.parent
    folders = []
    if packages.name in ('dist-packages', 'site-packages'):
        # PREFIX/lib/python3.x/site-packages: environments, `pip install --user` and `--prefix`, `uv run --with`.
        folders.append(packages.parent.parent.parent / 'bin')
    # `pip install --target`.
    folders.append(packages / 'bin')
    folders.append(Path(sysconfig.get_path('scripts')))
    return list(dict.fromkeys(folders))


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
