"""The `shardmill` program is found, and `python -m shardmill` runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import shardmill
from shardmill import _program
from shardmill.errors import NotFoundError


def program(folder: Path, name: str = 'shardmill', mode: int = 0o755) -> Path:
    """Returns a program that prints its arguments and fails with status 3."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text('#!/bin/sh\necho "$@"\nexit 3\n')
    path.chmod(mode)
    return path


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment without the program: `scripts`, `named` and `path` are the places for it."""
    monkeypatch.setattr(_program, '_script_folders', lambda: [tmp_path / 'scripts'])
    monkeypatch.delenv('SHARDMILL_BIN', raising=False)
    monkeypatch.setenv('PATH', str(tmp_path / 'path'))
    return tmp_path


def test_installed_program_has_priority(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path = program(places / 'path')
    assert _program.find_program() == on_path
    named = program(places, 'named')
    monkeypatch.setenv('SHARDMILL_BIN', str(named))
    assert _program.find_program() == named
    # A file that cannot be executed is no program.
    program(places / 'scripts', mode=0o644)
    assert _program.find_program() == named
    installed = program(places / 'scripts')
    assert _program.find_program() == installed


def test_invalid_shardmill_bin_is_an_error(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(places / 'path')
    monkeypatch.setenv('SHARDMILL_BIN', str(places / 'nothing'))
    with pytest.raises(NotFoundError, match=r'SHARDMILL_BIN names no executable file: .*nothing'):
        _program.find_program()


def test_missing_program_error_lists_search_paths(places: Path) -> None:
    with pytest.raises(NotFoundError, match=r'no `shardmill` program in .*scripts or on the PATH'):
        _program.find_program()


@pytest.mark.parametrize(
    ('packages', 'folder'),
    [
        ('lib/python3.12/site-packages', 'bin'),
        ('lib64/python3.12/site-packages', 'bin'),
        ('local/lib/python3.12/dist-packages', 'local/bin'),
        ('target', 'target/bin'),
    ],
)
def test_installer_script_folders_are_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packages: str, folder: str
) -> None:
    module = tmp_path / packages / 'shardmill' / '_program.py'
    monkeypatch.setattr(_program, '__file__', str(module))
    # Another version, in the environment of the interpreter.
    program(tmp_path / 'elsewhere')
    installed = program(tmp_path / folder)
    monkeypatch.setattr('sysconfig.get_path', lambda name: str(tmp_path / 'elsewhere'))
    assert _program.find_program() == installed


def run(variable: Path) -> subprocess.CompletedProcess[str]:
    packages = str(Path(shardmill.__file__).parent.parent)
    return subprocess.run(
        [sys.executable, '-m', 'shardmill', 'verify', 'a b'],
        env={**os.environ, 'SHARDMILL_BIN': str(variable), 'PYTHONPATH': packages},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(
    any((folder / 'shardmill').exists() for folder in _program._script_folders()),
    reason='the program is installed, and comes first',
)
def test_python_m_shardmill_runs_the_program(tmp_path: Path) -> None:
    done = run(program(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (3, 'verify a b\n', '')
    done = run(tmp_path / 'nothing')
    assert done.returncode == 2
    assert done.stdout == ''
    assert done.stderr.startswith('error[program-missing]: SHARDMILL_BIN names no executable file')
