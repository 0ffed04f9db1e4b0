"""python -m pytest tests/trainers                  # the trainers that are installed, one change of the world
python -m pytest tests/trainers --full           # all of them, four worlds, with and without worker processes
"""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption('--full', action='store_true', help='run all trainers, each in four worlds')
