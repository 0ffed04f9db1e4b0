"""Registries of classes and functions by name.

A registry consists of the keys of a shared dict that begin with its namespace. If the optional package ``catalogue`` is
installed, the dict is catalogue's, so that entries registered by other programs are visible here and vice versa.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, Callable, Generic, Optional, TypeVar, Union, cast, overload

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = [
    'RegistryError',
    'TypedRegistry',
    'construct_from_registry',
    'create_registry',
    'import_file',
    'save_registry',
]

T = TypeVar('T')

_Store = dict[tuple[str, ...], Any]


class _RegistryError(ValueError):
    """A name is not registered, or is registered already."""


_catalogue: Any
try:
    import catalogue as _catalogue  # type: ignore[import-untyped, import-not-found, no-redef, unused-ignore]
except ImportError:
    # The attributes that are used of it.
    _catalogue = SimpleNamespace(REGISTRY={}, RegistryError=_RegistryError)

RegistryError: type[ValueError] = _catalogue.RegistryError


def _store() -> _Store:
    # Not cached, because programs may replace the dict.
    return cast(_Store, _catalogue.REGISTRY)


class TypedRegistry(Generic[T]):
    """A registry of objects of one type, by name.

    Args:
        namespace: The beginning of the registry's keys.
        entry_points: Whether to include entry points of installed packages. Their group is the
            namespace joined by ``_``.
        description: What the registry is for.
        also: The namespace of another package. Its entries and entry points are found if this registry has none of the
            name. Nothing is registered there.
    """

    def __init__(
        self,
        namespace: Sequence[str],
        entry_points: bool = False,
        description: str = '',
        also: Sequence[str] = (),
    ) -> None:
        self.namespace = tuple(namespace)
        self.entry_points = entry_points
        self.entry_point_namespace = '_'.join(self.namespace)
        self.description = description
        self._namespaces = [self.namespace, *filter(None, [tuple(also)])]

    def __contains__(self, name: str) -> bool:
        if any((*namespace, name) in _store() for namespace in self._namespaces):
            return True
        return self.entry_points and name in self._entry_points()

    @overload
    def __call__(self, name: str) -> Callable[[T], T]: ...

    @overload
    def __call__(self, name: str, func: T) -> T: ...

    def __call__(self, name: str, func: Optional[T] = None) -> Any:
        """Registers `func`; see `register`."""
        return self.register(name) if func is None else self.register(name, func=func)

    @overload
    def register(self, name: str) -> Callable[[T], T]: ...

    @overload
    def register(self, name: str, *, func: T) -> T: ...

    def register(self, name: str, *, func: Optional[T] = None) -> Any:
        """Registers `func` under a name, replacing an existing entry.

        Without `func` it returns a decorator.
        """

        def put(value: T) -> T:
            key = (*self.namespace, name)
            _store()[key] = value
            return value

        return put if func is None else put(func)

    register_class = register

    def get(self, name: str) -> T:
        """Returns the entry with a name.

        Raises:
            RegistryError: The name is not registered. The error is a ValueError.
        """
        found = self.get_entry_point(name) if self.entry_points else None
        if found is not None:
            return found
        for namespace in self._namespaces:
            key = (*namespace, name)
            if key in _store():
                return cast(T, _store()[key])
        known = ', '.join(sorted(self.get_all())) or 'nothing'
        registry = ' -> '.join(self.namespace)
        raise RegistryError(f'there is no {name!r} in the registry {registry}, which has {known}')

    def get_all(self) -> dict[str, T]:
        """Returns all entries by name."""
        found = self.get_entry_points() if self.entry_points else {}
        for namespace in reversed(self._namespaces):
            length = len(namespace)
            for key, value in list(_store().items()):
                if len(key) == length + 1 and key[:length] == namespace:
                    found[key[-1]] = value
        return found

    def get_entry_points(self) -> dict[str, T]:
        """Returns all entries that installed packages define as entry points, by name."""
        return {name: entry.load() for name, entry in self._entry_points().items()}

    def get_entry_point(self, name: str, default: Optional[T] = None) -> Optional[T]:
        """Returns the entry point with a name, or the default."""
        entry = self._entry_points().get(name)
        return default if entry is None else cast(T, entry.load())

    def _entry_points(self) -> dict[str, importlib.metadata.EntryPoint]:
        found: Any = importlib.metadata.entry_points()
        entries: dict[str, importlib.metadata.EntryPoint] = {}
        for group in map('_'.join, reversed(self._namespaces)):
            # Before Python 3.10 this is a dict of groups.
            own = found.select(group=group) if hasattr(found, 'select') else found.get(group, ())
            entries.update({entry.name: entry for entry in own})
        return entries


def create_registry(
    *namespace: str,
    generic_type: Any,
    entry_points: bool = False,
    description: str = '',
    also: Sequence[str] = (),
) -> TypedRegistry[Any]:
    """Creates a registry with a new namespace.

    Args:
        namespace: The beginning of the registry's keys.
        generic_type: The type of the entries, for type checkers.
        entry_points: See `TypedRegistry`.
        description: What the registry is for.
        also: See `TypedRegistry`.

    Raises:
        RegistryError: The namespace is itself a key in use. The error is a ValueError.
    """
    if namespace in _store():
        raise RegistryError(f'the namespace {namespace} is taken')
    return TypedRegistry(namespace, entry_points, description, also)


def construct_from_registry(
    name: str,
    registry: TypedRegistry[Any],
    partial_function: bool = True,
    pre_validation_function: Optional[Union[Callable[[Any], None], type]] = None,
    post_validation_function: Optional[Callable[[Any], None]] = None,
    kwargs: Optional[dict[str, Any]] = None,
) -> Any:
    """Calls the class or function that is registered under a name.

    Args:
        name: The name.
        registry: The registry.
        partial_function: Whether to return a partial function of `kwargs` instead of calling a function.
        pre_validation_function: A class that the entry must be or derive from, or a function that
            receives the entry and raises if it is invalid.
        post_validation_function: A function that receives the result and raises if it is invalid.
        kwargs: Arguments of the class or function.

    Returns:
        An instance of the class, the result of the function, or a partial function.

    Raises:
        ValueError: The name is not registered, or its entry is of another kind.
    """
    # COMPAT: programs match the beginning of the messages.
    found = registry.get(name)
    if isinstance(pre_validation_function, type):
        if not (isinstance(found, type) and issubclass(found, pre_validation_function)):
            raise ValueError(
                f'Expected {name} to be of type {pre_validation_function}, not {found}'
            )
    elif callable(pre_validation_function):
        pre_validation_function(found)
    elif pre_validation_function is not None:
        raise ValueError(
            f'Expected pre_validation_function to be a callable or a type, '
            f'not {pre_validation_function}'
        )
    if not callable(found):
        raise ValueError(f'Expected {name} to be a class or function, not {type(found)}')
    if isinstance(found, type) or not partial_function:
        made = found(**(kwargs or {}))
    else:
        made = functools.partial(found, **(kwargs or {}))
    if post_validation_function is not None:
        post_validation_function(made)
    return made


def import_file(loc: Union[str, Path]) -> ModuleType:
    """Runs a Python file as a module, without adding it to `sys.modules`.

    Raises:
        FileNotFoundError: The file does not exist.
        RuntimeError: The file raised an error, which is the cause.
    """
    # COMPAT: programs match the beginning of both messages.
    if not os.path.exists(loc):
        raise FileNotFoundError(f'File {loc} does not exist')
    spec = importlib.util.spec_from_file_location('python_code', str(loc))
    if spec is None or spec.loader is None:
        raise RuntimeError(f'Error executing {loc}: it is no Python file')
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise RuntimeError(f'Error executing {loc}') from error
    return module


@contextmanager
def save_registry() -> Iterator[None]:
    """Restores all registries when the context ends."""
    saved = dict(_store())
    try:
        yield
    finally:
        store = _store()
        store.clear()
        store.update(saved)
