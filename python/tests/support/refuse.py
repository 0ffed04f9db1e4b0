"""Runs a program to which the system refuses some calls, as file systems and container runtimes do.

    python refuse.py RULE... -- PROGRAM ARGUMENT...

A rule is the name of a call or of a part of it in `CALLS`, `=`, and the name of an error: `chmod=EPERM`.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from typing import Optional

#: Numbers of the calls on x86-64 and on 64-bit ARM.
NUMBERS = {
    'chmod': (90, None),
    'fchmod': (91, 52),
    'fchmodat': (268, 53),
    'fchmodat2': (452, 452),
    'link': (86, None),
    'linkat': (265, 37),
    'renameat2': (316, 276),
    'flock': (73, 32),
    'fcntl': (72, 25),
    'statx': (332, 291),
    'openat': (257, 56),
    'openat2': (437, 437),
    'mmap': (9, 222),
}
_SET, _EQUAL, _OTHER = range(3)
#: What can be refused: calls, each with conditions on its arguments.
CALLS: dict[str, list[tuple[str, list[tuple[int, int, int]]]]] = {
    'chmod': [(name, []) for name in ('chmod', 'fchmod', 'fchmodat', 'fchmodat2')],
    'link': [('link', []), ('linkat', [])],
    'exclusive-rename': [('renameat2', [(4, _SET, 1)])],
    'flock': [('flock', [])],
    # F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW
    'range-lock': [('fcntl', [(1, _EQUAL, command)]) for command in (36, 37, 38)],
    'statx': [('statx', [])],
    'openat2': [('openat2', [])],
    'nameless': [('openat', [(2, _SET, 0o20000000)])],
    # A file, mapped for reading only.
    'shared-map': [('mmap', [(2, _EQUAL, 1), (3, _SET, 1), (4, _OTHER, 0xFFFF_FFFF)])],
}
_LOAD, _JUMP_EQUAL, _JUMP_SET, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000


def _number(call: str) -> Optional[int]:
    machine = {'x86_64': 0, 'aarch64': 1}[platform.machine()]
    return NUMBERS[call][machine]


def _program(rules: list[str]) -> bytes:
    """The filter, as instructions of the classic BPF."""
    steps: list[tuple[int, int, int, int]] = []
    for rule in rules:
        name, _, error = rule.partition('=')
        for call, conditions in CALLS[name]:
            number = _number(call)
            if number is None:
                continue
            # Each test of a rule is a load and a jump; the last step of all returns the error.
            left = 2 * len(conditions) + 1
            steps += [(_LOAD, 0, 0, 0), (_JUMP_EQUAL, 0, left, number)]
            for argument, test, value in conditions:
                left -= 2
                jump = _JUMP_SET if test == _SET else _JUMP_EQUAL
                hit, miss = (left, 0) if test == _OTHER else (0, left)
                steps += [(_LOAD, 0, 0, 16 + 8 * argument), (jump, hit, miss, value)]
            steps.append((_RETURN, 0, 0, _ERROR | getattr(errno, error)))
    steps.append((_RETURN, 0, 0, _ALLOW))
    return b''.join(struct.pack('=HBBI', *step) for step in steps)


def refuse(rules: list[str]) -> None:
    """Refuses calls to this process and all that it starts.

    Raises:
        OSError: The system has no such filters.
    """
    code = ctypes.create_string_buffer(_program(rules))
    program = struct.pack('@HP', len(code.raw) // 8, ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    no_new_privileges, set_filter = 38, 22
    for arguments in (
        (no_new_privileges, 1, 0, 0, 0),
        (set_filter, 2, ctypes.create_string_buffer(program), 0, 0),
    ):
        if libc.prctl(*arguments):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


if __name__ == '__main__':
    end = sys.argv.index('--')
    refuse(sys.argv[1:end])
    os.execvp(sys.argv[end + 1], sys.argv[end + 1 :])
