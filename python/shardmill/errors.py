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


#: An option of the command line, in a hint.
_FLAG = re.compile(r'(?<![\w-])--[a-z]')


class ShardmillError(Exception):
    """What all of them have in common.

    Attributes:
        id: A stable, lower-case, hyphenated name of the failure, such as ``hash-mismatch``.
        object: What it is about: a path, a shard, a column, an option.
        hint: What to do about it, where there is something to do in Python.
    """

    exit_code = 1

    def __init__(
        self,
        message: str,
        id: str = 'bug',
        object: Optional[str] = None,
        hint: Optional[str] = None,
    ) -> None:
        # Not the other base class, which may want other arguments.
        Exception.__init__(self, message)
        self.message = message
        self.id = id
        self.object = object
        # There is no command line here.
        self.hint = None if hint and _FLAG.search(hint) else hint

    def __str__(self) -> str:
        text = f'[{self.id}] {self.message}'
        return f'{text}; {self.hint}' if self.hint else text

    def __reduce__(self) -> tuple[type, tuple[str, str, Optional[str], Optional[str]]]:
        return type(self), (self.message, self.id, self.object, self.hint)


class InternalError(ShardmillError, RuntimeError):
    """A broken invariant inside shardmill."""


class UsageError(ShardmillError, ValueError):
    """An argument or a configuration that cannot be carried out."""

    exit_code = 2


class ArgumentTypeError(UsageError, TypeError):
    """An argument of a type that it cannot have."""


class UnknownNameError(UsageError, KeyError):
    """A name that does not exist: of a column, an algorithm or a method."""


class UnknownEncodingError(UnknownNameError, ArgumentTypeError, AttributeError, AssertionError):
    """An encoding that does not exist. Callers of ``streaming`` catch it as any of four builtin exceptions."""


class ColumnNameError(UsageError, AssertionError):
    """A name of a column, or an end of a line, that a text format cannot hold."""


class ColumnValueError(UsageError, AttributeError, TypeError, OverflowError):
    """A value that a column cannot store. Callers of ``streaming`` catch it as any of four builtin exceptions."""


class DataError(ShardmillError, ValueError):
    """Data that contradicts itself, its index or its hash."""

    exit_code = 3


class UnsupportedError(DataError):
    """Well-formed data that asks for something that shardmill does not do."""


class NotFoundError(ShardmillError, FileNotFoundError):
    """Something that the caller or an index named does not exist."""

    exit_code = 2


class MissingIndexError(NotFoundError, RuntimeError):
    """There is no index where a dataset was said to be."""


class IndexSyntaxError(DataError, json.JSONDecodeError):
    """An index that is no JSON."""

    msg = 'the index is no JSON'
    doc = ''
    pos = lineno = colno = 0


class ConflictError(ShardmillError, FileExistsError):
    """The destination or the state belongs to something else."""

    exit_code = 4


class RemoteError(ShardmillError, RuntimeError):
    """A file system, a store or the network gave up."""

    exit_code = 6


class ResourceError(ShardmillError, OSError):
    """This machine ran out of disk, memory or open files."""

    exit_code = 7


class AccessError(ShardmillError, PermissionError):
    """Access was denied."""

    exit_code = 8


class StoppedError(ShardmillError, RuntimeError):
    """Stopped by a signal or by the caller; the work can be resumed."""

    exit_code = 130
