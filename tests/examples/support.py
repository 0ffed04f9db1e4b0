"""Where the examples and the programs are."""

import os
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
