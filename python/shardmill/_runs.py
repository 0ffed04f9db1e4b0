"""Runs the ``shardmill`` program, and turns its JSON into reports, warnings and exceptions."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import signal
import subprocess
import tempfile
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from shardmill._program import find_program
from shardmill._progress import progress_bar
from shardmill.errors import CLASS_OF_KIND, InternalError, ShardmillError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

#: The environment variable with store settings as a JSON object. Unlike arguments, other users cannot read it.
_SETTINGS = 'SHARDMILL_STORAGE_OPTIONS'

#: The options that change one column and keep the others.
_REST = re.compile(r"--column '\*' --column ('(?:[^']|'\\'')*'|[^\s,;]+)")
_FLAG = re.compile(r'(?<![\w-])--([a-z][a-z0-9-]*)')
#: Options of the command line that are not the names of the keywords.
_KEYWORDS = {
    'column': 'columns',
    'csv_no_header': 'csv_header',
    'csv_null': 'csv_nulls',
    'from': 'source_kind',
    'storage_option': 'storage_options',
    'variable': 'variables',
    'version': 'delta_version',
}
#: How many of the last lines of other output an internal error shows.
_TAIL = 20


def options_of(**given: Any) -> list[str]:
    """Formats arguments as options; flags that are off and ``None`` are left out."""
    options = []
    for name, value in given.items():
        if value is None or value is False:
            continue
        flag = f'--{name.replace("_", "-")}'
        options.append(flag if value is True else f'{flag}={value}')
    return options


def start(
    arguments: Sequence[str],
    storage_options: Optional[Mapping[str, str]],
    stdout: Any,
    stdin: int = subprocess.DEVNULL,
) -> subprocess.Popen[str]:
    """Starts the program with its errors in a pipe."""
    environment = dict(os.environ)
    if storage_options:
        environment[_SETTINGS] = json.dumps(dict(storage_options))
    return subprocess.Popen(
        [str(find_program()), *arguments],
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        env=environment,
        encoding='utf-8',
        errors='replace',
        # A terminal or a notebook sends Ctrl-C to all processes of a session: callers decide what it stops, and how.
        start_new_session=True,
    )


class Finished(NamedTuple):
    """What a run of the program printed.

    Attributes:
        reports: The objects on standard output.
        errors: The errors on standard error.
    """

    reports: list[dict[str, Any]]
    errors: list[ShardmillError]

    def only(self) -> dict[str, Any]:
        """Returns the report of a command that prints one."""
        if self.errors:
            raise self.errors[0]
        return self.reports[0]


def run(
    verb: str,
    options: Sequence[str],
    places: Sequence[str],
    *,
    storage_options: Optional[Mapping[str, str]] = None,
    progress: Optional[bool] = None,
    rows: Optional[pa.RecordBatchReader] = None,
) -> Finished:
    """Runs a command of the program and waits for its end; `rows` go to its standard input.

    If the wait is interrupted, by Ctrl-C for example, the program stops at the next point from which it can continue,
    and the exception is raised again.
    """
    arguments = [verb, *options, '--json', '--progress', 'json', '--', *places]
    with tempfile.TemporaryFile() as output:
        stdin = subprocess.DEVNULL if rows is None else subprocess.PIPE
        child = start(arguments, storage_options, output, stdin)
        try:
            if rows is not None:
                _send(rows, child)
            errors, tail = follow(child, verb, progress)
            code = child.wait()
        except BaseException:
            _stop(child)
            raise
        finally:
            for pipe in (child.stdin, child.stderr):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()
        output.seek(0)
        reports = [json.loads(line) for line in output if line.strip()]
    if code != 0 and not reports:
        if errors:
            raise errors[0]
        text = '\n'.join(tail)
        raise InternalError(f'the program {find_program()} ended with exit status {code}:\n{text}')
    return Finished(reports, errors)


def _send(rows: pa.RecordBatchReader, child: subprocess.Popen[str]) -> None:
    """Writes an Arrow stream to standard input. Until its end, the program prints nothing but the error that ends it.

    If the rows end with an exception, the stream stays open, so that the program does not take it for a whole one.
    """
    import pyarrow as pa

    assert isinstance(child.stdin, io.TextIOWrapper)
    # If the program has ended, its error says why.
    with contextlib.suppress(BrokenPipeError):
        stream = pa.ipc.new_stream(child.stdin.buffer, rows.schema)
        for batch in rows:
            stream.write_batch(batch)
        stream.close()
        child.stdin.close()


def follow(
    child: subprocess.Popen[str], verb: str, progress: Optional[bool]
) -> tuple[list[ShardmillError], list[str]]:
    """Reads standard error to its end: shows progress and warnings, returns errors and the last other lines."""
    errors: list[ShardmillError] = []
    tail: list[str] = []
    assert child.stderr is not None
    with progress_bar(verb, progress) as update:
        for line in child.stderr:
            try:
                found = json.loads(line)
            except ValueError:
                found = None
            if not isinstance(found, dict):
                tail = [*tail, line.rstrip('\n')][-_TAIL:]
            elif 'progress' in found:
                update(found['progress'])
            elif 'warning' in found:
                # The stack: here, `run`, the function of the package, its caller.
                warnings.warn(_text(found['warning']), UserWarning, stacklevel=4)
            elif 'error' in found:
                errors.append(error_of(found['error']))
    return errors, tail


def _stop(child: subprocess.Popen[str]) -> None:
    """Asks the program to stop and waits for it; a further interruption ends it at once."""
    assert child.stderr is not None
    child.send_signal(signal.SIGINT)
    try:
        child.stderr.read()
        child.wait()
    except BaseException:
        child.kill()
        child.wait()
        raise


def in_keywords(text: str) -> str:
    """Replaces options of the command line in a text by the keywords of the functions."""

    def keyword(match: re.Match[str]) -> str:
        name = match[1].replace('-', '_')
        return f'`{_KEYWORDS.get(name, name)}`'

    return _FLAG.sub(keyword, _REST.sub(_columns, text))


def _columns(match: re.Match[str]) -> str:
    """Formats the options for one column and all others as the keyword ``columns``."""
    (word,) = shlex.split(match[1])
    quoted = re.match(r'"((?:[^"]|"")*)"', word)
    name = quoted[1].replace('""', '"') if quoted else re.split('[:=]', word)[0]
    form, _, expression = word[len(quoted[0]) if quoted else len(name) :].partition('=')
    encoding = form[1:] or None
    column = f'Column({encoding!r}, {expression!r})' if expression else repr(encoding)
    return f"`columns={{'*': None, {name!r}: {column}}}`"


def error_of(found: dict[str, Any]) -> ShardmillError:
    """Returns the exception of an error line of the program."""
    hint, shown = found['hint'], found['object']
    hint = in_keywords(hint) if hint else None
    if shown and found['kind'] == 'invalid_input' and _FLAG.fullmatch(shown):
        shown = in_keywords(shown).strip('`')
    message = in_keywords(found['message'])
    message = f'{shown}: {message}' if shown else message
    return CLASS_OF_KIND[found['kind']](message, found['id'], shown, hint)


def _text(found: dict[str, Any]) -> str:
    parts = [f'[{found["id"]}] ', f'{found["object"]}: ' if found['object'] else '']
    parts += [found['message'], f'; {found["hint"]}' if found['hint'] else '']
    return in_keywords(''.join(parts))
