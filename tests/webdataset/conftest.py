"""Where the binary is, and places to work in.

    pytest tests/webdataset                   # SHARDMILL_BIN, or the release build of this checkout

The other side is webdataset 1.0.2, tarfile, GNU tar and Hugging Face datasets (requirements.txt). Nothing here needs a network.
"""

import os
import subprocess
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
ROOT = Path(__file__).resolve().parents[2]


def find_binary():
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    path = Path(os.environ.get("SHARDMILL_BIN", target / "release" / "shardmill"))
    if not path.is_file():
        pytest.exit(f"no shardmill binary at {path}: build it, or set SHARDMILL_BIN", returncode=2)
    return path


def pytest_configure(config):
    config.shardmill_bin = find_binary()


class Place:
    """A directory of its own in which commands run."""

    def __init__(self, binary, path):
        self.binary, self.path = binary, path

    def run(self, *args):
        command = [str(self.binary), "--progress", "none", *map(str, args)]
        return subprocess.run(command, cwd=self.path, capture_output=True, text=True, timeout=120)

    def ok(self, *args):
        done = self.run(*args)
        assert done.returncode == 0, f"{args}: {done.stderr}"
        return done.stdout

    def shards(self, folder, pattern="*.tar"):
        return sorted(str(path) for path in (self.path / folder).glob(pattern))


@pytest.fixture
def place(request, tmp_path):
    return Place(request.config.shardmill_bin, tmp_path)
