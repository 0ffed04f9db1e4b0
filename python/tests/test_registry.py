"""Registries, with and without catalogue."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from shardmill.base import registry_utils as installed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=['as installed', 'without catalogue', 'with catalogue'])
def utils(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module, as it is imported where catalogue is there or not."""
    if request.param == 'without catalogue':
        monkeypatch.setitem(sys.modules, 'catalogue', None)
    elif request.param == 'with catalogue':
        catalogue = ModuleType('catalogue')
        catalogue.REGISTRY = {}  # type: ignore[attr-defined]
        catalogue.RegistryError = type('RegistryError', (ValueError,), {})  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, 'catalogue', catalogue)
    if request.param == 'as installed':
        yield installed
        return
    name = installed.__name__
    monkeypatch.delitem(sys.modules, name)
    module = importlib.import_module(name)
    yield module
    # The import put it into its package, too.
    sys.modules['shardmill.base'].registry_utils = installed  # type: ignore[attr-defined]


def test_registered_entries_are_found(utils: Any) -> None:
    with utils.save_registry():
        registry = utils.create_registry('shardmill', 'tests', generic_type=int, description='some')
        assert registry.namespace == ('shardmill', 'tests')
        assert registry.description == 'some'
        assert registry.register('one', func=1) == 1
        assert registry('two', 2) == 2
        registry.register_class('three', func=3)

        @registry.register('decorated')  # type: ignore[untyped-decorator, unused-ignore]
        def decorated() -> None: ...

        @registry('called')  # type: ignore[untyped-decorator, unused-ignore]
        def called() -> None: ...

        everything = {'one': 1, 'two': 2, 'three': 3, 'decorated': decorated, 'called': called}
        assert registry.get_all() == everything
        assert all(name in registry for name in everything)
        assert registry.get('two') == 2
        registry.register('two', func=22)
        assert registry.get('two') == 22
        assert 'four' not in registry
        with pytest.raises(utils.RegistryError, match=r"no 'four' .* one, three, two"):
            registry.get('four')
        # Another of the same namespace is the same; one of a part of it is not.
        assert utils.TypedRegistry(('shardmill', 'tests')).get('one') == 1
        assert utils.TypedRegistry(('shardmill',)).get_all() == {}


def test_save_registry_discards_entries_on_error(utils: Any) -> None:
    registry = utils.TypedRegistry(('shardmill', 'tests'))
    with pytest.raises(KeyError), utils.save_registry():
        registry.register('one', func=1)
        raise KeyError
    assert 'one' not in registry


def test_duplicate_registry_namespace_is_an_error(utils: Any) -> None:
    with utils.save_registry():
        utils.TypedRegistry(('shardmill',)).register('tests', func=1)
        with pytest.raises(ValueError, match='is taken'):
            utils.create_registry('shardmill', 'tests', generic_type=int)


@pytest.mark.parametrize('is_new', [False, True])
def test_registry_loads_entry_points(
    utils: Any, is_new: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = 'shardmill_tests'
    entries = [EntryPoint('there', 'shardmill.base.world:World', group)]

    class Entries(list):  # type: ignore[type-arg]
        def select(self, group: str) -> list[EntryPoint]:
            return [entry for entry in self if entry.group == group]

    points: Any = Entries([*entries, EntryPoint('other', 'shardmill:x', 'other')])
    if not is_new:
        points = {group: entries}
    monkeypatch.setattr(importlib.metadata, 'entry_points', lambda: points)
    from shardmill.base.world import World

    registry = utils.TypedRegistry(('shardmill', 'tests'), entry_points=True)
    assert registry.get('there') is World
    assert 'there' in registry
    assert 'other' not in registry
    assert registry.get_all() == {'there': World}
    assert registry.get_entry_points() == {'there': World}
    assert registry.get_entry_point('other', World) is World
    assert 'there' not in utils.TypedRegistry(('shardmill', 'tests'))


def test_registry_finds_entries_of_another_namespace(utils: Any) -> None:
    with utils.save_registry():
        other = utils.TypedRegistry(('other', 'tests'))
        registry = utils.create_registry(
            'shardmill', 'tests', generic_type=int, also=('other', 'tests')
        )
        other.register('one', func=1)
        other.register('two', func=2)
        registry.register('two', func=22)
        assert [registry.get(name) for name in ('one', 'two')] == [1, 22]
        assert registry.get_all() == {'one': 1, 'two': 22}
        assert 'one' in registry
        # Nothing is registered there.
        assert other.get_all() == {'one': 1, 'two': 2}
        with pytest.raises(utils.RegistryError, match=r"no 'four' .* one, two"):
            registry.get('four')


class Thing:
    def __init__(self, size: int = 1) -> None:
        self.size = size


def test_construct_from_registry_builds_entries(utils: Any) -> None:
    make = utils.construct_from_registry
    with utils.save_registry():
        registry = utils.create_registry('shardmill', 'tests', generic_type=object)
        registry.register('class', func=Thing)
        registry.register('function', func=lambda x, y=0: (x, y))
        registry.register('number', func=5)
        assert make('class', registry).size == 1
        assert make('class', registry, kwargs={'size': 2}).size == 2
        assert make('class', registry, pre_validation_function=Thing).size == 1
        assert make('function', registry, kwargs={'x': 2})(y=3) == (2, 3)
        assert make('function', registry, partial_function=False, kwargs={'x': 2}) == (2, 0)
        seen: list[Any] = []
        made = make(
            'class',
            registry,
            pre_validation_function=seen.append,
            post_validation_function=seen.append,
        )
        assert seen == [Thing, made]
        for problem, arguments in [
            ('Expected class to be of type', ('class', int)),
            ('Expected function to be of type', ('function', Thing)),
            ('Expected pre_validation_function to be', ('class', 'text')),
            ('Expected number to be a class or function', ('number', None)),
            ('there is no', ('nothing', None)),
        ]:
            with pytest.raises(ValueError, match=problem):
                make(arguments[0], registry, pre_validation_function=arguments[1])


def test_import_file_runs_python_file(tmp_path: Path) -> None:
    good = tmp_path / 'good.py'
    good.write_text('number = 6 * 7\n')
    assert installed.import_file(good).number == 42
    assert installed.import_file(str(good)).__name__ == 'python_code'
    assert 'python_code' not in sys.modules
    bad = tmp_path / 'bad.py'
    bad.write_text('1 / 0\n')
    with pytest.raises(RuntimeError, match=r'Error executing .*bad\.py') as error:
        installed.import_file(bad)
    assert isinstance(error.value.__cause__, ZeroDivisionError)
    with pytest.raises(FileNotFoundError, match=r'File .* does not exist'):
        installed.import_file(tmp_path / 'none.py')
    text = tmp_path / 'text.txt'
    text.write_text('number = 1\n')
    with pytest.raises(RuntimeError, match='no Python file'):
        installed.import_file(text)
