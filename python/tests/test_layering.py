"""The files of the package import each other in one direction."""

from __future__ import annotations

import ast
import subprocess
import sys
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


#: What is loaded only when it is used: the wings, other classes, and modules of Python that take long to load.
LATER = {
    *(f'shardmill.{name}' for name in 'files lineage metrics mixtures packing reports'.split()),
    *(f'shardmill.{name}' for name in 'schema stats tables videos views windows _viewer'.split()),
    *(f'shardmill.base.{name}' for name in 'batching dataloader local partition shared'.split()),
    *(f'shardmill.base.{name}' for name in 'registry_utils shuffle storage _typing'.split()),
    *(f'shardmill.base.{name}' for name in '_columns _fetching _preview'.split()),
    *(f'shardmill.base.{name}' for name in '_training_batches _which'.split()),
    *(f'shardmill.base.format.{name}' for name in 'base json mds xsv'.split()),
    *('catalogue', 'dataclasses', 'decimal', 'html', 'http', 'importlib.metadata', 'inspect'),
    *('numpy', 'subprocess', 'torch'),
}


def test_dataset_is_imported_without_its_wings() -> None:
    program = 'import sys, shardmill; shardmill.StreamingDataset; print(*sys.modules)'
    done = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert 'shardmill.base.dataset' in loaded
    assert not LATER & loaded
    files = {
        '.'.join(path.relative_to(ROOT.parent).with_suffix('').parts) for path in ROOT.rglob('*')
    }
    own = {name for name in LATER if name.startswith('shardmill.')}
    assert own <= files
