"""`import streaming` gives shardmill."""

from __future__ import annotations

import importlib
import importlib.metadata
import subprocess
import sys
from types import ModuleType
from typing import TYPE_CHECKING
from unittest import mock

import pytest

import shardmill

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def clean() -> Iterator[None]:
    """No module named `streaming` before and after."""
    finders = list(sys.meta_path)
    modules = {
        name: sys.modules.pop(name)
        for name in list(sys.modules)
        if name.partition('.')[0] == 'streaming'
    }
    sys.meta_path[:] = [finder for finder in finders if 'Alias' not in type(finder).__name__]
    yield
    for name in [name for name in sys.modules if name.partition('.')[0] == 'streaming']:
        del sys.modules[name]
    sys.meta_path[:] = finders
    sys.modules.update(modules)


@pytest.fixture
def installed(clean: None) -> None:
    shardmill.install_as_streaming()


@pytest.mark.usefixtures('installed')
@pytest.mark.parametrize(
    'name',
    ['', '.base', '.base.util', '.base.shared.memory', '.base.partition.orig', '.errors', '.text'],
)
def test_streaming_alias_is_the_same_module(name: str) -> None:
    alias = importlib.import_module(f'streaming{name}')
    ours = importlib.import_module(f'shardmill{name}')
    assert alias is ours
    assert sys.modules[f'streaming{name}'] is ours
    # Its own name stays, for pickles and for reloading.
    assert ours.__name__ == f'shardmill{name}'
    assert ours.__spec__ is not None
    assert ours.__spec__.name == f'shardmill{name}'


@pytest.mark.usefixtures('installed')
def test_modules_loaded_later_are_aliased() -> None:
    saved = sys.modules.pop('shardmill.base.constant', None)
    try:
        later = importlib.import_module('streaming.base.constant')
        assert later is sys.modules['shardmill.base.constant']
        assert later is not saved
    finally:
        if saved is not None:
            sys.modules['shardmill.base.constant'] = saved


@pytest.mark.usefixtures('installed')
def test_streaming_alias_supports_every_import_form() -> None:
    space: dict[str, object] = {}
    exec(
        'import streaming\n'
        'import streaming.base.world as world\n'
        'from streaming.base import distributed\n'
        'from streaming.base.world import World\n'
        'found = streaming.base.util.bytes_to_int("1kb")\n',
        space,
    )
    import shardmill.base.distributed
    import shardmill.base.world

    assert space['streaming'] is shardmill
    assert space['world'] is shardmill.base.world
    assert space['distributed'] is shardmill.base.distributed
    assert space['World'] is shardmill.base.world.World
    assert space['found'] == 1024


@pytest.mark.usefixtures('installed')
def test_patching_the_alias_patches_shardmill() -> None:
    from shardmill.base import util

    with mock.patch('streaming.base.util.sleep') as sleep, pytest.raises(RuntimeError):
        util.wait_for_file_to_exist('/there/is/no/such/file', 9, 0, 'nothing')
    assert vars(util)['sleep'] is not sleep


@pytest.mark.usefixtures('installed')
def test_missing_alias_submodule_is_an_error() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"'streaming\.base\.nothing'"):
        importlib.import_module('streaming.base.nothing')
    with pytest.raises(ModuleNotFoundError, match=r"'streaming\.base\.world\.nothing'"):
        importlib.import_module('streaming.base.world.nothing')
    assert 'streaming.base.nothing' not in sys.modules


@pytest.mark.usefixtures('clean')
def test_install_as_streaming_is_idempotent() -> None:
    shardmill.install_as_streaming()
    finders = list(sys.meta_path)
    shardmill.install_as_streaming()
    assert sys.meta_path == finders


@pytest.mark.usefixtures('clean')
def test_alias_after_other_streaming_import_is_an_error() -> None:
    other = ModuleType('streaming')
    other.__file__ = '/elsewhere/streaming/__init__.py'
    sys.modules['streaming'] = other
    finders = list(sys.meta_path)
    with pytest.raises(ImportError, match='before the first import') as error:
        shardmill.install_as_streaming()
    assert '/elsewhere/streaming' in str(error.value)
    assert sys.modules['streaming'] is other
    assert sys.meta_path == finders


def test_importing_shardmill_loads_no_large_packages() -> None:
    program = (
        'import sys, shardmill\n'
        'shardmill.install_as_streaming()\n'
        'import streaming\n'
        'large = {"torch", "numpy", "pyarrow", "PIL", "transformers", "torchvision"}\n'
        'sys.exit(",".join(sorted(large & set(sys.modules))) or None)\n'
    )
    done = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, '')


def test_public_names_are_loaded_lazily() -> None:
    import shardmill.base as base

    assert set(shardmill.__all__) <= set(dir(shardmill))
    assert set(base.__all__) <= set(dir(base))
    with pytest.raises(AttributeError, match='nothing'):
        _ = shardmill.nothing
    with pytest.raises(AttributeError, match='nothing'):
        _ = base.nothing


@pytest.mark.usefixtures('installed')
@pytest.mark.parametrize(
    ('module', 'names'),
    [
        ('_version', ['__version__']),
        ('base.util', ['get_local_rank', 'get_index_basename', 'maybe_init_dist']),
        ('base.shuffle.py1s', ['divide_spans']),
        ('base.shuffle.py1e', ['divide_spans']),
        ('base.shuffle.py1br', ['divide_spans']),
        ('base.dataset', ['generate_work', 'get_shm_prefix', 'get_sampling', 'World', 'Stream']),
        ('base.stream', ['CloudDownloader', 'World']),
    ],
)
def test_streaming_names_exist_in_expected_modules(module: str, names: list[str]) -> None:
    found = importlib.import_module(f'streaming.{module}')
    assert all(getattr(found, name) is not None for name in names)


def test_missing_attribute_is_an_error() -> None:
    from shardmill.base import stream

    with pytest.raises(AttributeError, match='no attribute'):
        stream.NoSuchName  # noqa: B018


#: Writes and reads a dataset with every class, after the imports of a test.
_READS_BOTH = """
import os, sys, tempfile
import shardmill
from shardmill.base.stream import streams_registry

out = os.path.join(tempfile.mkdtemp(), 'data')
with shardmill.MDSWriter(out=out, columns={'id': 'int'}) as writer:
    for number in range(9):
        writer.write({'id': number})

def ids(dataset):
    return sorted(sample['id'] for sample in dataset)

def read(module, **options):
    dataset = module.StreamingDataset(local=out, batch_size=1, num_canonical_nodes=1, **options)
    assert ids(dataset) == list(range(9))
    return type(dataset.streams[0])

ours, theirs = shardmill.Stream, sys.modules.get('streaming', shardmill).Stream
assert read(shardmill) is ours
assert streams_registry.get('stream') is ours

class Mine(ours):
    pass

class Foreign(theirs):
    pass

streams_registry.register('mine', func=Mine)
assert read(shardmill, stream_name='mine') is Mine
if theirs is not ours:
    from streaming.base.stream import streams_registry as other

    # The dataset of the other package asks its registry.
    assert other.get('stream') is theirs and 'mine' not in other.get_all()
    # Classes that programs register there are found, too.
    other.register('shared', func=Mine)
    assert read(shardmill, stream_name='shared') is Mine
    other.register('foreign', func=Foreign)
    assert other.get('foreign') is Foreign
    for options in ({'stream_name': 'foreign', 'local': out}, {'streams': [Foreign(local=out)]}):
        try:
            shardmill.StreamingDataset(batch_size=1, **options)
        except TypeError as error:
            assert 'Foreign' in str(error) and 'Stream' in str(error), error
        else:
            raise AssertionError(options)
"""

_IMPORTS = {
    'alone': 'import shardmill',
    'ours first': 'from shardmill import StreamingDataset; import streaming',
    'ours first, unused': 'import shardmill; import streaming',
    'theirs first': 'import streaming; from shardmill import StreamingDataset',
    'ours first, whole': 'import shardmill.base.dataset; from streaming import MDSWriter, Stream',
    'theirs first, whole': 'from streaming import Stream; import shardmill.base.stream',
    'alias': 'import shardmill; shardmill.install_as_streaming(); import streaming',
    'alias, late': (
        'from shardmill import StreamingDataset; StreamingDataset.mro(); shardmill.install_as_streaming(); '
        'from streaming import StreamingDataset as Other; assert Other is StreamingDataset'
    ),
}


@pytest.mark.parametrize(
    'order',
    [
        pytest.param(order, marks=[pytest.mark.slow] if 'whole' in order else [])
        for order in _IMPORTS
    ],
)
def test_each_package_makes_its_own_streams(order: str, tmp_path: Path) -> None:
    imports = f'import shardmill; {_IMPORTS[order]}' if 'late' in order else _IMPORTS[order]
    # In a child, because packages of the name exist once in a process.
    program = f'import importlib.util, sys\n{imports}\n{_READS_BOTH}'
    if 'alias' not in order and order != 'alone' and not _is_streaming_installed():
        pytest.skip('mosaicml-streaming is not installed')
    done = subprocess.run(
        [sys.executable, '-c', program], capture_output=True, text=True, timeout=1200, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr


def _is_streaming_installed() -> bool:
    try:
        importlib.metadata.distribution('mosaicml-streaming')
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
