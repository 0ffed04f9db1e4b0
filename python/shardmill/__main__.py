"""``python -m shardmill`` runs the ``shardmill`` program."""

from __future__ import annotations

import os
import sys

from shardmill._program import find_program
from shardmill.errors import NotFoundError


def main() -> None:
    """Replaces this process with the program, so that signals and the exit code are the program's own."""
    try:
        program = find_program()
    except NotFoundError as error:
        hint = f'; {error.hint}' if error.hint else ''
        sys.stderr.write(f'error[{error.id}]: {error.message}{hint}\n')
        sys.exit(error.exit_code)
    os.execv(program, [str(program), *sys.argv[1:]])


if __name__ == '__main__':
    main()
