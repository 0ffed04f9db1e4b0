"""Runs the commands that files in `examples/` show."""

import os
import shutil
import subprocess

import pytest

from pages import ROOT
from support import EXAMPLES, SECONDS, built


@pytest.fixture
def run(tmp_path):
    """Runs shell commands in a folder with copies of the examples; returns what they print on standard output."""
    folder = tmp_path / "scratch"
    shutil.copytree(EXAMPLES, folder, ignore=shutil.ignore_patterns("rust"))
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "shardmill").symlink_to(built("shardmill"))
    (programs / "pip").symlink_to(ROOT / "tests/docs/installed.py")

    def commands(text, python=ROOT / ".venv", **variables):
        environment = {
            "PATH": f"{programs}:{python / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "python"),
            "HOME": str(tmp_path),
            "LANG": "C.UTF-8",
            "OMP_NUM_THREADS": "1",
            **variables,
        }
        if "JAVA_HOME" in os.environ:
            environment["JAVA_HOME"] = os.environ["JAVA_HOME"]
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{text}\nended with status {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return commands
