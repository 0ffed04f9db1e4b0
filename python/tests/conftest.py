"""Datasets and a store that test files share.

python -m pytest python/tests                 # without what takes minutes
python -m pytest python/tests --slow          # everything
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.hub import Hub
    from support.store import Store


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption('--slow', action='store_true', help='run the tests that take minutes, too')


def pytest_configure(config: pytest.Config) -> None:
    # A shell that runs this in the background may have turned it off.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line('markers', 'slow: takes minutes with others of its kind; see --slow')


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption('--slow'):
        return
    slow = [item for item in items if item.get_closest_marker('slow')]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]


@pytest.fixture(scope='session')
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the store serves."""
    return tmp_path_factory.mktemp('served')


@pytest.fixture(scope='session')
def data(served: Path) -> Path:
    """The dataset of `support.samples`; `s3://bucket/data` in the store."""
    from support.samples import write

    return write(served / 'data')


@pytest.fixture(scope='session')
def store(served: Path) -> Iterator[Store]:
    """An S3 on the loopback interface."""
    from support.store import Store

    store = Store(served)
    yield store
    store.close()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """A Hugging Face Hub on the loopback interface, with a home directory of its own."""
    from support.hub import configured_hub

    with configured_hub(monkeypatch, tmp_path / 'home') as hub:
        yield hub
