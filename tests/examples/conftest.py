"""Runs the commands that files in `examples/` show."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from pages import ROOT

EXAMPLES = ROOT / "examples"
SECONDS = 300


def built(name):
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    program = Path(os.environ["SHARDMILL_BIN"]) if "SHARDMILL_BIN" in os.environ else target / "release/shardmill"
    path = program.with_name(name)
    if not path.is_file():
        pytest.exit(f"no program at {path}: build it, or set SHARDMILL_BIN", returncode=2)
    return path


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
