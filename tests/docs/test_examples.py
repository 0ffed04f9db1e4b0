"""Runs every example of the documentation and compares what it prints.

    make docs-test
    pytest tests/docs -k convert                  # the pages whose paths contain `convert`
    UPDATE_DOCS=1 pytest tests/docs -k convert    # writes what console blocks print into the pages
"""

import ast
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

import pages

UPDATE = os.environ.get("UPDATE_DOCS") == "1"
SECONDS = 60
# Blocks that only a reader can run. A new one needs a good reason: most examples have a stand-in (data.py, S3 by moto).
MOST_NOT_RUN = 40

# What differs between two runs: durations, speeds, temporary folders, random names.
VARIES = [
    (re.compile(r"\b\d+(\.\d+)? (ns|µs|ms|s|seconds)( at [\d.,]+ ([KMGT]i?)?B/s)?(?!\w)"), "..."),
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z"), "..."),
    (re.compile(r"http://127\.0\.0\.1:\d+"), "..."),
]

PAGES = [page for page in pages.all_pages() if any(block.language in pages.RUN for block in pages.blocks(page))]


def name(page):
    return page.relative_to(pages.ROOT).as_posix()


class Session:
    """The shell and the interpreter of one page."""

    def __init__(self, page, scratch, environment):
        self.page, self.scratch, self.environment = page, scratch, environment
        self.interpreter = None

    def shell(self, text, folder):
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SECONDS,
            text=True,
            check=False,
        )

    def must_succeed(self, text, place, folder):
        done = self.shell(text, folder)
        assert done.returncode == 0, f"{place}: `{text}` ended with status {done.returncode}:\n{done.stdout}"

    def python(self, block, place):
        if self.interpreter is None:
            self.interpreter = subprocess.Popen(
                [sys.executable, Path(__file__).with_name("interpreter.py")],
                cwd=self.scratch,
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        # Empty lines in front make the line numbers of a traceback those of the page.
        session = block.language == "pycon"
        text = block.text if session else "\n" * (block.line - 1) + block.text
        request = {"text": text, "name": name(self.page), "session": session}
        self.interpreter.stdin.write(json.dumps(request) + "\n")
        self.interpreter.stdin.flush()
        answer = self.interpreter.stdout.readline()
        assert answer, f"{place}: the interpreter ended with status {self.interpreter.wait()}"
        error = json.loads(answer)["error"]
        assert error is None, f"{place}:\n{error}"

    def close(self):
        if self.interpreter is not None:
            self.interpreter.kill()
            self.interpreter.communicate()

    @contextmanager
    def folders(self, block):
        """Returns an iterator over the folders that the commands of a block run in."""
        if not block.alternatives:
            yield itertools.repeat(self.scratch)
            return
        before, copy = self.scratch.with_name("before"), self.scratch.with_name("alternative")
        shutil.copytree(self.scratch, before, symlinks=True)

        def copies():
            yield self.scratch
            while True:
                shutil.rmtree(copy, ignore_errors=True)
                shutil.copytree(before, copy, symlinks=True)
                yield copy

        yield copies()
        shutil.rmtree(before)
        shutil.rmtree(copy, ignore_errors=True)

    def run_shell(self, block, place):
        if not block.alternatives:
            self.must_succeed(block.text, place, self.scratch)
            return
        with self.folders(block) as folders:
            for command in pages.split_shell(block):
                self.must_succeed(command, place, next(folders))

    def run_console(self, block, place):
        """Runs the commands; returns the lines that the block would have to have."""
        lines = []
        failures = []
        with self.folders(block) as folders:
            for command in pages.commands(block):
                lines += [*command.prompt, *self.run_command(command, next(folders), place, failures)]
        assert UPDATE or not failures, "\n".join(failures)
        return lines

    def run_command(self, command, folder, place, failures):
        """Runs a command; returns the output that the page would have to show."""
        done = self.shell(command.text, folder)
        found = done.stdout.splitlines()
        refused = any(line.startswith("error[") for line in (*command.expected, *(found if UPDATE else ())))
        assert done.returncode == 0 or refused, (
            f"{place}: `{command.text}` ended with status {done.returncode}:\n{done.stdout}"
        )
        if pages.matches(command.expected, found):
            return command.expected
        expected = "\n".join(command.expected)
        failures.append(f"{place}: `{command.text}` printed\n{done.stdout}\nand the page shows\n{expected}")
        return [placeholders(line, self.scratch) for line in found]

def placeholders(line, scratch):
    line = line.rstrip().replace(str(scratch), "...")
    for pattern, replacement in VARIES:
        line = pattern.sub(replacement, line)
    return line


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_page_examples_run_as_shown(page, scratch, environment):
    session = Session(page, scratch, environment)
    changes = []
    try:
        for block in pages.blocks(page):
            place = f"{name(page)}:{block.line}"
            if block.reason:
                must_parse(block, place)
            elif block.title:
                must_parse(block, place)
                file = scratch / block.title
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(block.text, encoding="utf-8")
            elif block.language in ("sh", "setup"):
                session.run_shell(block, place)
            elif block.language == "console":
                changes.append((block, session.run_console(block, place)))
            elif block.language in ("python", "pycon"):
                session.python(block, place)
    finally:
        session.close()
        if UPDATE:
            write_back(page, changes)


def write_back(page, changes):
    lines = page.read_text(encoding="utf-8").splitlines()
    for block, new in reversed(changes):
        at = block.line - 1
        lines[at : at + len(block.lines)] = [" " * block.indent + line if line else "" for line in new]
    page.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def must_parse(block, place):
    """Checks a block that is not run."""
    if block.language == "python":
        ast.parse(block.text, place)
    elif block.language in ("sh", "console"):
        text = block.text if block.language == "sh" else "\n".join(command.text for command in pages.commands(block))
        done = subprocess.run(["bash", "-n", "-c", text], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{place}: {done.stderr}"


def test_every_code_block_has_a_known_language():
    unknown = [
        f"{name(page)}:{block.line}: {block.language or 'no language'}"
        for page in pages.all_pages()
        for block in pages.blocks(page)
        if block.language not in (*pages.RUN, *pages.SHOWN, "setup")
    ]
    assert not unknown, "\n".join(unknown)


def test_reference_lists_every_public_name():
    tree = ast.parse((pages.ROOT / "python/shardmill/__init__.py").read_text(encoding="utf-8"))
    lists = [node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"]
    public = {name for name in ast.literal_eval(lists[0]) if not name.startswith("_")}
    reference = "".join(path.read_text(encoding="utf-8") for path in (pages.ROOT / "docs/reference/python").glob("*.md"))
    shown = set(re.findall(r"^::: shardmill\.(\w+)$", reference, re.MULTILINE))
    assert not public - shown, "add them to docs/reference/python"


def test_number_of_skipped_blocks_is_limited():
    reasons = [
        f"{name(page)}:{block.line}: {block.reason}"
        for page in pages.all_pages()
        for block in pages.blocks(page)
        if block.reason
    ]
    assert len(reasons) <= MOST_NOT_RUN, "\n".join(reasons)


@pytest.mark.parametrize(
    ("expected", "found", "same"),
    [
        (["a 12 b"], ["a 12 b"], True),
        (["a ... b"], ["a 12 b"], True),
        (["a ... b"], ["a 12 c"], False),
        (["a", "...", "d"], ["a", "b", "c", "d"], True),
        (["a", "...", "d"], ["a", "b", "c"], False),
        (["a.b"], ["axb"], False),
        ([], ["a"], False),
        (["..."], [], True),
        (["a", ""], ["a "], True),
        (["a   1 ms"], ["a  1 ms"], True),
    ],
)
def test_ellipsis_matches_any_output(expected, found, same):
    assert pages.matches(expected, found) == same


def test_titled_block_becomes_a_file(tmp_path):
    page = tmp_path / "page.md"
    page.write_text('```python title="a/b.py"\nprint(1)\n```\n')
    (block,) = pages.blocks(page)
    assert (block.language, block.title, block.text) == ("python", "a/b.py", "print(1)\n")


def test_block_has_line_number_and_skip_reason(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- setup\ntouch a\n-->\n<!-- not run: needs a cluster -->\n```sh\nrun\n```\n\n```console\n$ a \\\n  b\nout\n$ c\n```\n"
    )
    setup, marked, console = pages.blocks(page)
    assert (setup.language, setup.lines, setup.line) == ("setup", ["touch a"], 2)
    assert (marked.reason, marked.line) == ("needs a cluster", 6)
    assert (console.reason, console.line) == ("", 10)
    assert [(command.text, command.expected) for command in pages.commands(console)] == [("a \\\n  b", ["out"]), ("c", [])]
