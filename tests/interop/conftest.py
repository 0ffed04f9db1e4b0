"""Where the binary is, and what every test of this folder needs.

    pytest tests/interop                       # SHARDMILL_BIN, or the release build of this checkout
    SHARDMILL_CASES=2000 SHARDMILL_SEED=7 pytest tests/interop/test_byte_identity.py

The other side is the installed mosaicml-streaming (requirements.txt). Nothing here needs a network.
"""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

import streaming.base.dataset
import streaming.base.shared.prefix
import streaming.base.util
from streaming.base.util import clean_stale_shared_memory

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "fixtures" / "mosaicml-streaming-0.13.0"
SEED = int(os.environ.get("SHARDMILL_SEED", "20250717"))
CASES = int(os.environ.get("SHARDMILL_CASES", "300"))


# Thousands of small datasets, each of them synced file by file: memory is the place for them.
if os.access("/dev/shm", os.W_OK):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/dev/shm")


def find_binary():
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    path = Path(os.environ.get("SHARDMILL_BIN", target / "release" / "shardmill"))
    if not path.is_file():
        pytest.exit(f"no shardmill binary at {path}: build it, or set SHARDMILL_BIN", returncode=2)
    return path


def pytest_configure(config):
    config.shardmill_bin = find_binary()
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker:
        # Processes that run tests side by side must not find the shared memory of each other.
        for module in (streaming.base.dataset, streaming.base.shared.prefix, streaming.base.util):
            module._get_path = lambda number, name: f"{worker}_{number:06}_{name}"


def pytest_report_header(config):
    return f"shardmill: {config.shardmill_bin}, SHARDMILL_SEED={SEED} SHARDMILL_CASES={CASES}"


def not_json(constant):
    raise ValueError(f"{constant} is no JSON")


@dataclass
class Done:
    """What a command did."""

    command: list[str]
    status: int
    stdout: str
    stderr: str

    def json(self):
        return json.loads(self.stdout)

    def lines(self):
        """One JSON value a line; strictly JSON, and no line ends but \\n, whatever characters the strings hold."""
        lines = self.stdout.split("\n")
        assert lines.pop() == "", "the last line has no end"
        return [json.loads(line, parse_constant=not_json) for line in lines]

    def __str__(self):
        return f"$ {' '.join(self.command)}\nstatus {self.status}\n{self.stdout[-3000:]}{self.stderr[-3000:]}"


@pytest.fixture(scope="session")
def run(pytestconfig):
    """Runs shardmill; the status must be the expected one (None: any)."""

    def run(*args, status=0, timeout=120):
        command = [str(pytestconfig.shardmill_bin), *map(str, args)]
        done = subprocess.run(command, capture_output=True, timeout=timeout, encoding="utf-8", check=False)
        out = Done(command, done.returncode, done.stdout, done.stderr)
        assert status is None or out.status == status, f"status {status} expected\n{out}"
        return out

    return run


@pytest.fixture
def convert(run):
    """`shardmill convert` without progress."""
    return lambda *args, **options: run("convert", "--quiet", *args, **options)


@pytest.fixture(scope="session", autouse=True)
def shared_memory():
    """The original keeps named shared memory; what killed runs left behind would make its datasets collide."""
    clean_stale_shared_memory()
    yield
    clean_stale_shared_memory()


@pytest.fixture
def copy_of(tmp_path):
    """A fixture's dataset, to be changed."""

    def copy_of(name):
        return Path(shutil.copytree(FIXTURES / name, tmp_path / name))

    return copy_of
