"""The exceptions of shardmill, one class for each exit code of the command line.

Every class is also a subclass of the builtin exception that a caller would catch without knowing shardmill.
"""

from __future__ import annotations

import json
import re
from typing import Optional

__all__ = [
    'AccessError',
    'ArgumentTypeError',
    'ColumnNameError',
    'ColumnValueError',
    'ConflictError',
    'DataError',
    'IndexSyntaxError',
    'InternalError',
    'MissingIndexError',
    'NotFoundError',
    'RemoteError',
    'ResourceError',
    'ShardmillError',
    'StoppedError',
    'UnknownEncodingError',
    'UnknownNameError',
    'UnsupportedError',
    'UsageError',
]


#: The address of the manual.
_DOCS = 'https://shardmill.github.io/shardmill/'
#: An option of the command line, in a hint.
_FLAG = re.compile(r'(?<![\w-])--[a-z]')


class ShardmillError(Exception):
    """The base class of all exceptions of shardmill.

    Attributes:
        id: A stable, lower-case, hyphenated name of the error, such as ``hash-mismatch``.
        object: The object of the error: a path, a shard, a column, an option.
        hint: How to fix it, if that is possible from Python.
        kind: The kind of the error, as in the JSON of the command line, such as ``corrupt``. It belongs to the class.
        exit_code: The exit code of the command line. It belongs to the class.
    """

    kind = 'bug'
    exit_code = 1

    def __init__(
        self,
        message: str,
        id: str = 'bug',
        object: Optional[str] = None,
        hint: Optional[str] = None,
    ) -> None:
        # Not `super()`: the other base class may require different arguments.
        Exception.__init__(self, message)
        self.message = message
        self.id = id
        self.object = object
        # Hints about the command line do not apply in Python.
        self.hint = None if hint and _FLAG.search(hint) else hint

    @property
    def docs(self) -> str:
        """The address of the entry of the id in the manual, with its cause and remedy."""
        return f'{_DOCS}reference/errors/#{self.id}'

    def __str__(self) -> str:
        text = f'[{self.id}] {self.message}'
        return f'{text}; {self.hint}' if self.hint else text

    def __reduce__(self) -> tuple[type, tuple[str, str, Optional[str], Optional[str]]]:
        return type(self), (self.message, self.id, self.object, self.hint)


class InternalError(ShardmillError, RuntimeError):
    """A broken invariant inside shardmill."""


class UsageError(ShardmillError, ValueError):
    """An invalid argument or configuration."""

    kind = 'invalid_input'
    exit_code = 2


class ArgumentTypeError(UsageError, TypeError):
    """An argument of the wrong type."""


class UnknownNameError(UsageError, KeyError):
    """An unknown name of a column, algorithm or method."""


class UnknownEncodingError(UnknownNameError, ArgumentTypeError, AttributeError, AssertionError):
    """An unknown encoding. Callers of ``streaming`` catch it as any of four builtin exceptions."""


class ColumnNameError(UsageError, AssertionError):
    """A column name or line ending that a text format cannot store."""


class ColumnValueError(UsageError, AttributeError, TypeError, OverflowError):
    """A value that a column cannot store. Callers of ``streaming`` catch it as any of four builtin exceptions."""


class DataError(ShardmillError, ValueError):
    """Data that contradicts itself, its index or its hash."""

    kind = 'corrupt'
    exit_code = 3


class UnsupportedError(DataError):
    """Valid data that needs a feature that shardmill does not support."""

    kind = 'unsupported'


class NotFoundError(ShardmillError, FileNotFoundError):
    """A file or object named by the caller or an index does not exist."""

    kind = 'not_found'
    exit_code = 2


class MissingIndexError(NotFoundError, RuntimeError):
    """A dataset has no index."""


class IndexSyntaxError(DataError, json.JSONDecodeError):
    """An index that is not valid JSON."""

    msg = 'the index is no JSON'
    doc = ''
    pos = lineno = colno = 0


class ConflictError(ShardmillError, FileExistsError):
    """The destination or the state belongs to another dataset or job."""

    kind = 'conflict'
    exit_code = 4


class RemoteError(ShardmillError, RuntimeError):
    """A file system, store or network operation failed."""

    kind = 'storage'
    exit_code = 6


class ResourceError(ShardmillError, OSError):
    """This machine ran out of disk space, memory or open files."""

    kind = 'resource'
    exit_code = 7


class AccessError(ShardmillError, PermissionError):
    """Access was denied."""

    kind = 'permission'
    exit_code = 8


class StoppedError(ShardmillError, RuntimeError):
    """Stopped by a signal or by the caller; the work can be resumed."""

    kind = 'interrupted'
    exit_code = 130


#: The class of an error by its kind in the JSON of the program.
CLASS_OF_KIND: dict[str, type[ShardmillError]] = {
    each.kind: each
    for each in (
        UsageError,
        NotFoundError,
        DataError,
        UnsupportedError,
        ConflictError,
        RemoteError,
        ResourceError,
        AccessError,
        StoppedError,
        InternalError,
    )
}
