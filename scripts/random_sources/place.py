"""Where a case runs: its folder, the commands it starts, and what they did."""

from __future__ import annotations

import json
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REFUSED = (2, 3)
"""Exit statuses of a command that refuses its input: usage, or bad data."""


class Disagreement(Exception):
    """What shardmill did and what an independent reader found are not the same."""


def require(condition: object, message: str) -> None:
    """Raises `Disagreement` unless the condition holds."""
    if not condition:
        raise Disagreement(message)


@dataclass
class Done:
    """A command that has ended."""

    command: list[str]
    status: int
    stdout: str
    stderr: str

    @property
    def refused(self) -> bool:
        """Whether the command refused its input with an error line."""
        return self.status in REFUSED and "error[" in self.stderr

    @property
    def first_error(self) -> str:
        """The first error line."""
        lines = [line for line in self.stderr.splitlines() if line.startswith("error")]
        return lines[0] if lines else self.stderr.strip()[:400]

    def __str__(self) -> str:
        return f"$ {shlex.join(self.command)}\nstatus {self.status}\n{self.stdout[-1500:]}{self.stderr[-1500:]}"


class Place:
    """The folder of one case, and the program that it tests."""

    def __init__(self, binary: Path, root: Path) -> None:
        self.binary = binary
        self.root = root
        self.commands: list[str] = []
        root.mkdir(parents=True)

    def __truediv__(self, name: str) -> Path:
        return self.root / name

    def run(self, *args: object) -> Done:
        """Runs shardmill in the folder of the case. A crash, a bug and a refusal without a named error are disagreements."""
        command = [str(self.binary), *(str(arg) for arg in args)]
        self.commands.append(shlex.join(command))
        done = subprocess.run(
            command, cwd=self.root, capture_output=True, timeout=300, encoding="utf-8", errors="replace", check=False
        )
        out = Done(command, done.returncode, done.stdout, done.stderr)
        require(out.status in (0, *REFUSED, 4), f"exit status {out.status}\n{out}")
        require(out.status == 0 or "error[" in out.stderr or "Usage" in out.stderr, f"no named error\n{out}")
        return out

    def convert(self, *args: object) -> Done:
        """Runs `shardmill convert` with one thread and without progress."""
        return self.run("convert", "--quiet", "--jobs", 1, *args)

    def done(self, *args: object) -> Done:
        """Runs shardmill; anything but success is a disagreement."""
        out = self.run(*args)
        require(out.status == 0, f"refused\n{out}")
        return out

    def index(self, folder: Path) -> dict[str, Any]:
        """The index of a dataset."""
        return json.loads((folder / "index.json").read_text())
