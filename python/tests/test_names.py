"""The arguments of everything public: explicit, typed, and with one name for one idea."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import shardmill

PACKAGE = Path(shardmill.__file__).parent
#: Modules with public names. Those of Spark and Ray need the engines, so their source is read instead.
MODULES = ('parts', 'metrics', 'reports', 'schema', 'stats', 'errors')
#: Other words for the idea of an argument, by the word that is used everywhere.
SYNONYMS = {
    'cols': 'columns',
    'dest': 'out',
    'destination': 'out',
    'output': 'out',
    'local_dir': 'local',
    'cache_dir': 'local',
    'uri': 'remote',
    'url': 'remote',
    'hash': 'hashes',
    'hash_names': 'hashes',
    'pattern': 'shard_pattern',
    'scratch': 'temp_dir',
    'tmp_dir': 'temp_dir',
    'settings': 'storage_options',
    'bs': 'batch_size',
    'seed': 'shuffle_seed',
    'num_threads': 'threads',
    'idx': 'sample_id',
    'index': 'sample_id',
    'max_shard_size': 'size_limit',
    'limit_bytes': 'size_limit',
    'workers': 'num_workers',
}
#: What arguments of one name may be, beyond being optional. Each line is one idea in two forms.
SEVERAL_TYPES = {
    'cache_limit',  # `StreamingDataset` accepts fractions, as `streaming` does.
    'columns',  # Writers need encodings; tables need only names.
    'dataset',
    'epoch_size',
    'hashes',  # Writers of `streaming` accept only lists.
    'keys',  # `select` takes keys, `which` whether to return them.
    'like',  # One array, or one for each column.
    'location',  # `plan` accepts several.
    'names',
    'out',  # Writers accept a folder and a URL.
    'sample',  # A sample to write, or the number of one to find.
    'samples',  # `select` takes numbers, reports count.
    'samples_per_shard',
    'shards',
    'peers',  # Datasets need the addresses of the nodes; `plan` only whether they share their caches.
    'shuffle',  # `convert` takes the seed, as its option does.
    'split',  # `convert` takes the shares of the splits.
    'view',  # Datasets accept a `View` too; commands take its file.
    'window',  # Datasets accept neighbours of samples; `convert` the size of windows of a Zarr store.
}


def public() -> dict[str, Any]:
    """Everything that can be called, by its name in the package."""
    found: dict[str, Any] = {}
    homes = [
        ('', shardmill),
        *((f'{name}.', importlib.import_module(f'shardmill.{name}')) for name in MODULES),
    ]
    for prefix, home in homes:
        for name in home.__all__:
            item = getattr(home, name)
            if not callable(item) or not getattr(item, '__module__', '').startswith('shardmill'):
                continue
            found[prefix + name] = item
            if inspect.isclass(item):
                for method, function in inspect.getmembers(item, inspect.isfunction):
                    if not method.startswith('_') and function.__module__.startswith('shardmill'):
                        found[f'{prefix}{name}.{method}'] = function
    assert len(found) > 150
    return found


def parameters(item: Any) -> list[inspect.Parameter]:
    return [each for each in inspect.signature(item).parameters.values() if each.name != 'self']


def test_public_arguments_are_explicit_and_typed() -> None:
    for name, item in public().items():
        if name == 'install_as_streaming' or (
            inspect.isclass(item) and issubclass(item, Exception)
        ):
            continue
        for each in parameters(item):
            assert each.annotation is not each.empty, f'{name}: {each.name} has no type'
            is_open = each.kind in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
            # Reports are made from JSON by this package.
            if is_open and not name.endswith('.from_json'):
                pytest.fail(f'{name}: {each} is not explicit')


def test_no_public_function_takes_untyped_kwargs() -> None:
    """Also of modules that cannot be imported here. `streaming` has `merge_index` with any arguments.

    The methods of a filesystem have the signatures of fsspec.
    """
    allowed = {('base/util.py', 'merge_index'), ('ray.py', 'get_read_tasks')}
    allowed |= {('filesystem.py', name) for name in ('cp_file', 'info', 'ls', 'mkdir')}
    found = set()
    for path in PACKAGE.rglob('*.py'):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and not node.name.startswith('_'):
                kwarg = node.args.kwarg
                text = (
                    ''
                    if kwarg is None or kwarg.annotation is None
                    else ast.unparse(kwarg.annotation)
                )
                if kwarg is not None and not text.startswith('Unpack['):
                    found.add((path.relative_to(PACKAGE).as_posix(), node.name))
    private = {(path, name) for path, name in found if path.rpartition('/')[2].startswith('_')}
    nested = {('base/storage/_s3.py', 'trying'), ('reports.py', 'from_json')}
    assert found - private - nested <= allowed


def test_shared_arguments_appear_in_signatures() -> None:
    for writer in (
        shardmill.MDSWriter,
        shardmill.JSONWriter,
        shardmill.XSVWriter,
        shardmill.CSVWriter,
    ):
        listed = {each.name: each.default for each in parameters(writer)}
        assert (listed['retry'], listed['exist_ok'], listed['jobs']) == (2, False, None)
    listed = {each.name: each.default for each in parameters(shardmill.FileDataset)}
    general = inspect.signature(shardmill.StreamingDataset).parameters
    assert listed['cache_limit'] is None and listed['shuffle_algo'] == 'py1e'
    assert list(listed)[:3] == ['remote', 'local', 'split']
    for name in listed.keys() & general.keys() - {'decode'}:
        assert listed[name] == general[name].default, name


def test_argument_names_have_no_synonyms() -> None:
    for name, item in public().items():
        for each in parameters(item):
            other = SYNONYMS.get(each.name)
            assert other is None, f'{name}: {each.name} is called {other} elsewhere'
    for path in (PACKAGE / 'ray.py', PACKAGE / 'spark.py'):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name == '__init__':
                for argument in (*node.args.args, *node.args.kwonlyargs):
                    assert argument.arg not in {'dest', 'pattern', 'scratch'}, path.name


def test_equal_argument_names_have_equal_types() -> None:
    types: dict[str, dict[str, str]] = defaultdict(dict)
    for name, item in public().items():
        if dataclasses.is_dataclass(item):
            # Results, whose attributes are in their own documentation.
            continue
        for each in parameters(item):
            text = str(getattr(each.annotation, '__forward_arg__', each.annotation))
            optional = re.fullmatch(r'Optional\[(.*)\]', text)
            text = optional[1] if optional else text
            members = re.fullmatch(r'Union\[(.*)\]', text)
            parts = set(members[1].split(', ')) - {'None'} if members else {text}
            types[each.name]['|'.join(sorted(parts))] = name
    several = {name for name, found in types.items() if len(found) > 1}
    unexpected = {name: types[name] for name in several - SEVERAL_TYPES}
    assert not unexpected, unexpected
    assert not SEVERAL_TYPES - several
