"""Functions of the package that run the program: their options, reports, errors, progress and interruption."""

from __future__ import annotations

import inspect
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Union

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import shardmill
from shardmill import Column, LocalDataset, _commands, _runs
from shardmill._program import find_program
from shardmill.errors import ConflictError, DataError, InternalError, NotFoundError, UsageError
from shardmill.reports import DatasetGroupReport, DatasetReport, SourceReport

if TYPE_CHECKING:
    from support.store import Store


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / 'source.csv'
    path.write_text('id,text\n1,one\n2,<b>two</b>\n3,\n')
    return path


def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Makes a shell script take the place of the program."""
    program = tmp_path / 'program'
    program.write_text(f'#!/bin/sh\n{script}')
    program.chmod(0o755)
    monkeypatch.setattr(_runs, 'find_program', lambda: program)


def options(verb: str) -> set[str]:
    """The options of a command, as its help lists them."""
    text = subprocess.run(
        [find_program(), verb, '--help'], capture_output=True, text=True, check=True
    ).stdout
    own = text.partition('Global options:')[0]
    return set(re.findall(r'^ +(?:-\w, )?--([a-z-]+)', own, re.M)) - {'help'}


def test_convert_returns_a_report(source: Path, tmp_path: Path) -> None:
    out = tmp_path / 'out'
    columns: dict[str, Union[str, Column, None]] = {'id': 'int32'}
    columns['a "b": ='] = Column('str', 'upper(text)')
    report = shardmill.convert(source, out, columns=columns, null_as={'a "b": =': 'none'})
    assert (report.outcome, report.samples, report.shards) == ('converted', 3, 1)
    assert report.out == str(out)
    assert report.stored_bytes == sum(path.stat().st_size for path in out.glob('shard*'))
    assert LocalDataset(out)[2] == {'id': 3, 'a "b": =': 'none'}
    again = shardmill.convert(source, out, columns=columns, null_as={'a "b": =': 'none'})
    assert again.outcome == 'already_done'
    assert pickle.loads(pickle.dumps(report)) == report
    with pytest.raises(AttributeError):
        report.samples = 4  # type: ignore[misc]


def test_convert_reports_splits(source: Path, tmp_path: Path) -> None:
    out = tmp_path / 'out'
    second = tmp_path / 'second.csv'
    second.write_bytes(source.read_bytes())
    split = {'train': 0.5, 'val': 0.5}
    report = shardmill.convert([source, second], out, split=split, nulls='drop', hashes=())
    assert report.dropped_rows == 2
    assert [each.name for each in report.splits] == ['train', 'val']
    assert sum(each.samples for each in report.splits) == report.samples == 4
    group = shardmill.inspect(out)
    assert isinstance(group, DatasetGroupReport)
    assert (group.samples, group.errors) == (4, ())
    assert group.datasets['train'].hashes == ()
    assert '<td>train</td>' in group._repr_html_()


def test_inspect_reports_sources_and_datasets(source: Path, tmp_path: Path) -> None:
    table = shardmill.inspect(source)
    assert isinstance(table, SourceReport)
    assert (table.kind, table.rows) == ('csv', 3)
    assert [(each.name, each.encoding) for each in table.columns] == [
        ('id', 'int64'),
        ('text', 'str'),
    ]
    out = tmp_path / 'out'
    shardmill.convert(source, out, columns=['id'], compression='gz:9', size_limit=None)
    found = shardmill.inspect(out)
    assert isinstance(found, DatasetReport)
    assert (found.compression, found.size_limit) == ('gz:9', None)
    assert [(each.name, each.bytes) for each in found.columns] == [('id', 8)]
    assert found.json['provenance']['samples'] == 3


def test_verify_reports_and_raises_damage(source: Path, tmp_path: Path) -> None:
    out = tmp_path / 'out'
    shardmill.convert(source, out, nulls='drop', split={'a': 0.5, 'b': 0.5})
    sound = shardmill.verify(out, deep=True)
    assert sound.ok and sound.datasets[0].deep
    sound.raise_for_problems()
    with (out / 'a' / 'shard.00000.mds.zstd').open('ab') as shard:
        shard.write(b'x')
    damaged = shardmill.verify(out)
    assert not damaged.ok
    assert [each.ok for each in damaged.datasets] == [False, True]
    assert damaged.problems[0].id == 'shard-length'
    assert 'shard-length' in damaged._repr_html_()
    with pytest.raises(DataError, match='bytes') as caught:
        damaged.raise_for_problems()
    assert caught.value.id == 'shard-length'
    (out / 'b' / 'index.json').write_text('{')
    unreadable = shardmill.verify(out)
    assert not unreadable.ok and len(unreadable.errors) == 1
    with pytest.raises(DataError):
        unreadable.raise_for_problems()


def test_plan_reports_epochs_and_nodes(source: Path, tmp_path: Path) -> None:
    out = tmp_path / 'out'
    shardmill.convert(source, out, nulls='drop')
    report = shardmill.plan([out, out], epochs=2, num_nodes=2, batch_size=2, latency=0.5)
    assert (report.samples, report.global_batch) == (4, 4)
    assert [each.epoch for each in report.epochs] == [0, 1]
    assert [len(node.epochs) for node in report.nodes] == [2, 2]
    assert report.nodes[0].first_batch_seconds == pytest.approx(0.5, rel=0.01)
    assert '`cache_limit`' in report.advice[0] and '--' not in ''.join(report.advice)
    assert report.advice[0] in report._repr_html_()


def test_program_errors_become_exceptions(source: Path, tmp_path: Path) -> None:
    out = tmp_path / 'out'
    shardmill.convert(source, out, nulls='drop')
    with pytest.raises(ConflictError) as conflict:
        shardmill.convert(source, out, nulls='mask')
    assert conflict.value.id == 'dest-conflict'
    assert conflict.value.object == str(out)
    assert conflict.value.hint is not None and '`overwrite`' in conflict.value.hint
    with pytest.raises(NotFoundError) as missing:
        shardmill.inspect(tmp_path / 'nowhere')
    assert missing.value.id == 'source-not-found'
    with pytest.raises(UsageError) as usage:
        shardmill.convert(source, out, size_limit='much')
    assert usage.value.object == 'size_limit'
    with pytest.raises(NotFoundError) as dash:
        shardmill.inspect('--with-a-dash')
    assert dash.value.object == '--with-a-dash'
    with pytest.raises(TypeError):
        shardmill.convert(source, 5)  # type: ignore[arg-type]


def test_secrets_are_not_passed_as_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = 'echo "{\\"seen\\": \\"$*\\", \\"settings\\": $SHARDMILL_STORAGE_OPTIONS}"'
    fake(tmp_path, monkeypatch, script)
    done = _runs.run('inspect', [], ['x'], storage_options={'AWS_SECRET_ACCESS_KEY': 'geheim'})
    assert done.reports[0]['settings'] == {'AWS_SECRET_ACCESS_KEY': 'geheim'}
    assert 'geheim' not in done.reports[0]['seen']
    monkeypatch.undo()
    with pytest.raises(UsageError) as wrong:
        shardmill.inspect('s3://bucket/x', storage_options={'AWS_SECRET': 'geheim'})
    assert (wrong.value.id, wrong.value.object) == ('url-setting', 'storage_options')
    assert 'geheim' not in str(wrong.value)


def test_storage_options_reach_the_program(store: Store, data: Path) -> None:
    found = shardmill.inspect('s3://bucket/data', storage_options=store.environment)
    assert isinstance(found, DatasetReport)
    assert found.samples == len(LocalDataset(data))


def test_program_warnings_become_python_warnings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warning = {'id': 'lease-wait', 'object': 's3://x', 'message': 'waits', 'hint': '--jobs 2'}
    fake(tmp_path, monkeypatch, f"echo '{json.dumps({'warning': warning})}' >&2; exit 3")
    with pytest.warns(UserWarning, match=r'\[lease-wait\] s3://x: waits; `jobs` 2') as caught:
        with pytest.raises(InternalError, match='exit status 3'):
            shardmill.verify('x')
    assert caught[0].filename == __file__


def test_crash_error_shows_last_output_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(tmp_path, monkeypatch, 'seq 100 >&2; exit 101')
    with pytest.raises(InternalError, match='exit status 101:\n81\n82') as caught:
        shardmill.inspect('x')
    assert caught.value.id == 'bug'


PROGRESS = {'input_bytes': 512, 'input_bytes_total': 2048, 'samples': 1000, 'shards': 3}


@pytest.mark.parametrize('has_tqdm', [True, False])
def test_progress_is_shown_on_request(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    has_tqdm: bool,
) -> None:
    if not has_tqdm:
        monkeypatch.setitem(sys.modules, 'tqdm.auto', None)
    line = json.dumps({'progress': PROGRESS})
    fake(tmp_path, monkeypatch, f"echo '{line}' >&2; echo '{{}}'")
    _runs.run('convert', [], [], progress=True)
    shown = capfd.readouterr().err
    assert shown.startswith('\rconverting') and shown.endswith('\r')
    assert '25%' in shown
    assert ('1,000 samples, 3 shards' in shown) != has_tqdm
    _runs.run('convert', [], [])
    assert capfd.readouterr().err == '', 'standard error is not a terminal'


CONVERT = """
import sys, shardmill
try:
    report = shardmill.convert(sys.argv[1], sys.argv[2], compression='br:11', samples_per_shard=1, jobs=1)
except KeyboardInterrupt:
    sys.exit('interrupted')
print(report.outcome, report.reused_shards)
"""


def write_files(folder: Path, files: int) -> None:
    """Writes files that take a while to compress with brotli."""
    for number in range(files):
        text = '\n'.join(str(number * at**2) for at in range(6000))
        (folder / f'{number:03}.txt').write_text(text)


def test_interrupted_conversion_resumes(tmp_path: Path) -> None:
    source, out = tmp_path / 'files', tmp_path / 'out'
    source.mkdir()
    write_files(source, 8)
    command = [sys.executable, '-c', CONVERT, str(source), str(out)]
    first = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while len(list(out.glob('shard.*'))) < 2:
        assert first.poll() is None, 'it ended before it was interrupted'
        time.sleep(0.01)
    # Only Python receives the signal, as in a notebook.
    os.kill(first.pid, signal.SIGINT)
    assert first.communicate()[1].strip() == 'interrupted'
    assert not (out / 'index.json').exists()
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    outcome, reused = again.stdout.split()
    assert outcome == 'resumed' and int(reused) >= 2
    assert len(LocalDataset(out)) == 8


def test_conversion_stops_when_progress_pipe_closes(tmp_path: Path) -> None:
    """A program whose progress output is closed stops at a point from which it continues."""
    source, out = tmp_path / 'files', tmp_path / 'out'
    source.mkdir()
    write_files(source, 24)
    options = ['--compression', 'br:11', '--samples-per-shard', '1', '--jobs', '1']
    command = [
        str(find_program()),
        'convert',
        str(source),
        str(out),
        *options,
        '--json',
        '--progress',
        'json',
    ]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    child.stderr.close()
    assert child.wait(timeout=60) == 130
    assert not (out / 'index.json').exists()


def test_every_command_line_option_has_a_keyword() -> None:
    """And every keyword has an option: what a guide says about one of them is true for both."""
    # `storage_options` takes the settings of these.
    store = {'storage-option', 'profile', 'region', 'endpoint-url'}
    others = {
        # Of programs that run on several machines, and of shells.
        'convert': {'dry-run', 'part', 'config', 'print-config', *store},
        # The report has the shards.
        'inspect': {'shards', *store},
        'verify': store,
        'plan': {'stream', 'no-shuffle', *store},
    }
    renamed = {
        'columns': 'column',
        'source_kind': 'from',
        'key': 'key-column',
        'csv_nulls': 'csv-null',
        'csv_header': 'csv-no-header',
        'variables': 'variable',
        'num_nodes': 'nodes',
        'num_workers': 'workers-per-rank',
        'readers': 'for',
    }
    for verb, ignored in others.items():
        parameters = inspect.signature(getattr(_commands, verb)).parameters
        keywords = {
            renamed.get(name, name.replace('_', '-'))
            for name, each in parameters.items()
            if each.kind is each.KEYWORD_ONLY and name not in ('storage_options', 'progress')
        }
        assert keywords == options(verb) - ignored, verb


@pytest.mark.parametrize('nulls', ['mask', 'error'])
def test_converted_table_round_trips(tmp_path: Path, nulls: str) -> None:
    pa = pytest.importorskip('pyarrow')
    pq = pytest.importorskip('pyarrow.parquet')
    absent = nulls == 'mask'
    numbers = list(range(500))
    table = pa.table(
        {
            'id': pa.array(numbers, pa.int64()),
            'score': pa.array([None if absent and n % 7 == 0 else n / 4 for n in numbers]),
            'text': pa.array([None if absent and n % 5 == 0 else f'ä{n}' for n in numbers]),
            'list': pa.array([list(range(n % 4 + 1)) for n in numbers], pa.list_(pa.int16())),
            'fixed': pa.array([[n, n / 2] for n in numbers], pa.list_(pa.float32(), 2)),
            'data': pa.array([bytes([n % 256]) * (n % 9) for n in numbers]),
        }
    )
    pq.write_table(table, tmp_path / 'rows.parquet')
    shardmill.convert(tmp_path / 'rows.parquet', tmp_path / 'out', nulls=nulls, size_limit='8KiB')
    dataset = LocalDataset(tmp_path / 'out')
    assert ('score__is_null' in dataset.columns) == absent
    found = dataset.to_arrow()
    assert (
        found.select(sorted(table.column_names)).to_pydict()
        == table.select(sorted(table.column_names)).to_pydict()
    )
    for name in ('id', 'text', 'data', 'list'):
        assert found.schema.field(name).type == table.schema.field(name).type
    assert found['score'].null_count == table['score'].null_count


def test_include_and_exclude_select_tree_files(tmp_path: Path) -> None:
    source = tmp_path / 'files'
    for name in ('a/1.txt', 'a/2.txt', 'b/3.txt'):
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    report = shardmill.convert(
        source, tmp_path / 'out', include=['a/*', 'b/*'], exclude=['*/2.txt']
    )
    assert report.samples == 2


def test_zarr_windows_become_samples(tmp_path: Path) -> None:
    values = np.arange(6 * 4, dtype='<f4').reshape(6, 4)
    store, out = tmp_path / 'store', tmp_path / 'out'
    (store / 'wind').mkdir(parents=True)
    metadata = {'zarr_format': 2, 'shape': [6, 4], 'chunks': [6, 4], 'dtype': '<f4', 'order': 'C'}
    metadata.update(compressor=None, filters=None, fill_value=0)
    (store / 'wind' / '.zarray').write_text(json.dumps(metadata))
    (store / 'wind' / '.zattrs').write_text(json.dumps({'_ARRAY_DIMENSIONS': ['time', 'site']}))
    (store / 'wind' / '0.0').write_bytes(values.tobytes())
    report = shardmill.convert(
        store,
        out,
        source_kind='zarr',
        variables=['wind'],
        window={'time': 3},
        stride={'time': 2},
        raw_values=True,
    )
    assert report.samples == 2
    dataset = LocalDataset(str(out))
    found = [dataset[number]['wind'] for number in range(len(dataset))]
    assert np.array_equal(found, [values[0:3], values[2:5]])
    # By default, the fill value of version 2 is a missing value, as with xarray.
    shardmill.convert(
        store, tmp_path / 'decoded', source_kind='zarr', variables=['wind'], window={'time': 3}
    )
    found = LocalDataset(str(tmp_path / 'decoded'))[0]['wind']
    assert np.isnan(found[0, 0])
    assert np.array_equal(found.ravel()[1:], values.ravel()[1:12])
    with pytest.raises(UsageError, match='does not fit'):
        shardmill.convert(
            store,
            tmp_path / 'none',
            source_kind='zarr',
            variables=['wind'],
            window={'time': 7},
        )


def test_star_keeps_all_other_columns(tmp_path: Path) -> None:
    rows = [{'id': 1, 'e': 1, '*': 'a'}, {'id': 2, 'e': 'x', '*': 'b'}]
    source = tmp_path / 'rows.jsonl'
    source.write_text(''.join(json.dumps(row) + '\n' for row in rows))
    with pytest.raises(DataError) as caught:
        shardmill.convert(source, tmp_path / 'out')
    columns: dict[str, Union[str, None]] = {'*': None, 'e': 'json'}
    assert caught.value.hint is not None and f'`columns={columns}`' in caught.value.hint
    shardmill.convert(source, tmp_path / 'out', columns=columns)
    written = LocalDataset(str(tmp_path / 'out'))
    assert [written[number] for number in range(len(written))] == rows
    more: dict[str, Union[str, Column, None]] = {
        '"*"': 'bytes',
        '*': None,
        'e': 'json',
        'half': Column('float32', 'id / 2.0'),
    }
    shardmill.convert(source, tmp_path / 'more', columns=more)
    first = LocalDataset(str(tmp_path / 'more'))[0]
    assert first == {'*': b'a', 'e': 1, 'half': 0.5, 'id': 1}


@pytest.mark.parametrize(
    ('hint', 'shown'),
    [
        ("--column '*' --column e:json", "`columns={'*': None, 'e': 'json'}`"),
        (
            "with --column '*' --column '\"a:b\":int=a + 1', or --nulls drop",
            "with `columns={'*': None, 'a:b': Column('int', 'a + 1')}`, or `nulls` drop",
        ),
        ("--column '*' --column v.json=v", "`columns={'*': None, 'v.json': Column(None, 'v')}`"),
    ],
)
def test_hints_name_columns_as_python_does(hint: str, shown: str) -> None:
    assert _runs.in_keywords(hint) == shown


def test_null_value_that_a_column_does_not_have_is_an_error(tmp_path: Path) -> None:
    types = {
        'price': pa.decimal128(5, 2),
        'half': pa.float16(),
        'real': pa.float64(),
        'day': pa.date32(),
        'at': pa.timestamp('ms'),
        'n': pa.int16(),
    }
    (tmp_path / 'in').mkdir()
    table = pa.table({name: pa.array([None], data_type) for name, data_type in types.items()})
    pq.write_table(table, tmp_path / 'in' / 'a.parquet')
    exact = {
        'price': '0.010',
        'half': 0.1,
        'real': float('-inf'),
        'day': '2024-02-29',
        'at': '2024-02-29 12:00:00.5',
        'n': -32768,
    }
    shardmill.convert(tmp_path / 'in', tmp_path / 'exact', null_as=exact)
    sample = LocalDataset(str(tmp_path / 'exact'))[0]
    assert sample['price'] == '0.01' or str(sample['price']) == '0.01'
    assert (sample['real'], sample['n'], sample['day']) == (float('-inf'), -32768, '2024-02-29')
    assert (sample['half'], sample['at']) == (np.float16(0.1), '2024-02-29T12:00:00.500')
    others = [
        ('price', '0.001'),
        ('price', '1000'),
        ('half', 70000),
        ('real', '1e400'),
        ('real', 9007199254740993),
        ('day', '2024-02-29 12:00:00'),
        ('at', '2024-02-29 12:00:00.0005'),
        ('n', 32768),
    ]
    for number, (name, value) in enumerate(others):
        with pytest.raises(
            UsageError, match=f'`{value}` is not a value of column {name}'
        ) as raised:
            shardmill.convert(
                tmp_path / 'in', tmp_path / str(number), null_as={**exact, name: value}
            )
        assert raised.value.id == 'config-null-as'
    # A value of the column that the encoding does not have.
    with pytest.raises(
        UsageError, match='`300` cannot be stored in column n: 300 does not fit'
    ) as raised:
        shardmill.convert(
            tmp_path / 'in', tmp_path / 'out', columns={'n': 'int8'}, null_as={'n': 300}
        )
    assert raised.value.id == 'config-null-as'
