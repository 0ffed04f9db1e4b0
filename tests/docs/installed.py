#!/usr/bin/env python
"""Stands in for `pip` when examples run: checks that what they install is installed, and installs nothing.

    pip install REQUIREMENT...

Of shardmill, which is not installed from a wheel here, only the extras are compared with those of its pyproject.toml.
"""

import re
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
PROJECT = ROOT / "python/pyproject.toml"


def problem(requirement):
    """Says what is missing, or nothing."""
    if requirement.name == "shardmill":
        section = PROJECT.read_text(encoding="utf-8").split("[project.optional-dependencies]")[1].split("\n[")[0]
        unknown = requirement.extras - set(re.findall(r"^(\w+) *=", section, re.MULTILINE))
        if unknown:
            return f"{PROJECT} has no extra {', '.join(sorted(unknown))}"
        found = re.search(r'^version = "(.+)"', (ROOT / "Cargo.toml").read_text(encoding="utf-8"), re.MULTILINE)[1]
    else:
        try:
            found = version(requirement.name)
        except PackageNotFoundError:
            return f"{requirement.name} is not installed"
    return None if requirement.specifier.contains(found, prereleases=True) else f"{requirement} is {found} here"


def main():
    command, *words = sys.argv[1:]
    problems = [problem(Requirement(word)) for word in words]
    if command != "install" or not words or any(problems):
        sys.exit("\n".join(filter(None, problems)) or "usage: pip install REQUIREMENT...")


main()
