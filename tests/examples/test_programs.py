"""Runs each program of `examples/` with the commands of its header, and compares what it prints with its header."""

import ast
import re
import textwrap

import pytest

import pages
from support import EXAMPLES, built

PYTHON = sorted(EXAMPLES.glob("*.py"))
#: What a program needs beside `.venv`.
ENVIRONMENTS = {
    "convert_ray.py": (".cache/venv-ray", {"RAY_local_fs_capacity_threshold": "1.0", "RAY_USAGE_STATS_ENABLED": "0"}),
    "convert_spark.py": (".cache/venv-spark-4", {"SPARK_LOCAL_IP": "127.0.0.1"}),
}


def indented_blocks(text):
    """The two indented blocks of a header: the commands, and what they print."""
    found = re.findall(r"(?:^(?: {4}.*)?\n)+", text + "\n", re.MULTILINE)
    commands, printed = (textwrap.dedent(block).strip() for block in found if block.strip())
    return commands, printed


def compare(expected, found):
    assert pages.matches(expected.splitlines(), found.splitlines()), f"expected\n{expected}\n\nfound\n{found}"


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: path.name)
def test_python_example_prints_output_in_its_header(path, run):
    commands, printed = indented_blocks(ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))))
    assert f"python {path.name}" in commands or f" {path.name}" in commands
    folder, variables = ENVIRONMENTS.get(path.name, (".venv", {}))
    python = pages.ROOT / folder
    assert (python / "bin/python").exists(), f"{python} is missing: make test-examples sets it up"
    compare(printed, run(commands, python=python, **variables))


def test_rust_example_prints_output_in_its_header(run):
    source = (EXAMPLES / "rust/src/main.rs").read_text(encoding="utf-8")
    header = "\n".join(re.findall(r"^//! ?(.*)$", source, re.MULTILINE))
    commands, printed = re.findall(r"```\w+\n(.*?)```", header, re.DOTALL)
    command = "cargo run --package shardmill-example --"
    assert command in commands
    compare(printed, run("\n".join(commands.replace(command, str(built("shardmill-example"))).splitlines())))


def test_rust_quickstart_shows_the_rust_example():
    shown = {block.title: block.text for block in pages.blocks(pages.ROOT / "docs/quickstart/rust.md")}
    source = (EXAMPLES / "rust/src/main.rs").read_text(encoding="utf-8")
    assert shown["src/main.rs"] == re.sub(r"^//!.*\n", "", source, flags=re.MULTILINE).lstrip()
    manifest = (EXAMPLES / "rust/Cargo.toml").read_text(encoding="utf-8")
    crates = re.findall(r"^([\w-]+)\.workspace = true$", manifest.rsplit("[dependencies]", 1)[1], re.MULTILINE)
    assert re.findall(r"^([\w-]+) = \{ git", shown["Cargo.toml"], re.MULTILINE) == crates


def test_examples_readme_lists_every_example():
    links = re.findall(r"\]\(([^)#:]+)\)", (EXAMPLES / "README.md").read_text(encoding="utf-8"))
    listed = {link for link in links if not link.startswith("../")}
    files = {path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.rglob("*.*") if path.suffix != ".pyc"}
    files.add("ci/Containerfile")
    parts = {"README.md", "rust/Cargo.toml", "rust/src/main.rs"}
    assert files - parts <= listed, sorted(files - parts - listed)
    assert listed <= files | {"rust"}, sorted(listed - files)
