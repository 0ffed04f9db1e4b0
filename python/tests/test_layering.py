"""The files of the package import each other in one direction."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import shardmill

ROOT = Path(shardmill.__file__).parent


def test_package_has_no_import_cycles() -> None:
    """Imports for type checkers count, too. The `__init__` files only hand names on."""
    files = {
        '.'.join(path.relative_to(ROOT.parent).with_suffix('').parts): path
        for path in ROOT.rglob('*.py')
        if path.name != '__init__.py'
    }
    graph: dict[str, set[str]] = {}
    for name, path in files.items():
        found: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                found.add(node.module)
                found.update(f'{node.module}.{each.name}' for each in node.names)
            elif isinstance(node, ast.Import):
                found.update(each.name for each in node.names)
        graph[name] = found & files.keys()
    assert sum(map(len, graph.values())) > 100
    TopologicalSorter(graph).prepare()
