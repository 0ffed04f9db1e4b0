"""The fenced examples of a Markdown page.

A page is run from top to bottom in one scratch folder (`data.py`). What becomes of a block depends on its language:

    sh       the commands run; each must succeed
    console  lines that begin with `$ ` run, and what they print is compared with the lines that follow
    python   runs in the interpreter of the page, which keeps its variables
    pycon    the same, and what the statements print is compared

A block with a title (```python title="train.py") is written to the file of that name, for the commands after it.

In expected output, `...` stands for any text within a line, and a line `...` for any number of lines. Padding counts as
one space. A command of `console` must succeed unless its output contains a line `error[…`. `pip install` only checks that
the requirements are installed (`installed.py`). Comments of the page steer the run:

    <!-- setup
    commands that run here, and that readers do not see
    -->
    <!-- alternatives -->     each command of the next block begins with the files that were there before the block;
                              only the files of the first command stay
    <!-- not run: REASON -->  the next block is only parsed
"""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUN = ("sh", "console", "python", "pycon")
# Other languages that pages use. They show files, layouts and code that other tests compile.
SHOWN = ("text", "json", "ini", "yaml", "toml", "rust", "dockerfile", "hcl", "html")

OPENING = re.compile(r"^(?P<indent> *)```(?P<language>[a-z]*)(?: title=\"(?P<title>[^\"]+)\")?.*$")
MARKER = re.compile(r"^<!-- (?:(?P<alternatives>alternatives)|not run: (?P<reason>.+)) -->$")


@dataclass
class Block:
    """A fence or a setup comment; `line` is the number of its first inner line, from 1."""

    language: str
    line: int
    lines: list[str]
    indent: int = 0
    alternatives: bool = False
    reason: str = ""
    title: str = ""

    @property
    def text(self):
        return "".join(line + "\n" for line in self.lines)


@dataclass
class Command:
    """A command of a console block: its lines as they stand there, and those that it prints."""

    prompt: list[str]
    expected: list[str]

    @property
    def text(self):
        return "\n".join(self.prompt)[2:]


def all_pages():
    """Every page with examples, except for those that are generated from the program."""
    generated = {ROOT / "docs/reference/cli.md"}
    pages = [ROOT / "README.md", ROOT / "python/README.md", ROOT / "cli/README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in pages if page not in generated]


def blocks(page):
    """The blocks of a page, in order."""
    found = []
    marker = None
    lines = iter(enumerate(page.read_text(encoding="utf-8").splitlines(), 1))
    for number, line in lines:
        if line == "<!-- setup":
            inner = take(lines, lambda line: line == "-->", page, number)
            found.append(Block("setup", number + 1, inner))
        elif match := MARKER.match(line):
            marker = match
            continue
        elif match := OPENING.match(line):
            indent = len(match["indent"])
            inner = take(lines, lambda line: line.strip() == "```", page, number)
            block = Block(match["language"], number + 1, [line[indent:] for line in inner], indent)
            block.title = match["title"] or ""
            if marker:
                block.alternatives = marker["alternatives"] is not None
                block.reason = marker["reason"] or ""
            found.append(block)
        elif marker and not line.strip():
            continue
        marker = None
    return found


def take(lines, closes, page, number):
    inner = []
    for _, line in lines:
        if closes(line):
            return inner
        inner.append(line)
    raise ValueError(f"{page}:{number}: a block without its end")


def commands(block):
    """The commands of a console block with their expected output."""
    found = []
    at = 0
    while at < len(block.lines):
        line = block.lines[at]
        if not line.startswith("$ "):
            raise ValueError(f"line {block.line + at}: a console block begins with `$ `")
        first = at
        while block.lines[at].endswith("\\"):
            at += 1
        at += 1
        output = at
        while at < len(block.lines) and not block.lines[at].startswith("$ "):
            at += 1
        found.append(Command(block.lines[first:output], block.lines[output:at]))
    return found


def split_shell(block):
    """The commands of a shell block: lines, with those that a backslash continues."""
    joined = block.text.replace("\\\n", "\\\0")
    return [line.replace("\\\0", "\\\n") for line in joined.splitlines() if line.strip() and not line.startswith("#")]


def matches(expected, found):
    """Whether the lines that a page shows stand for those that the program printed."""
    pattern = ""
    for line in trim(expected):
        if line == "...":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += ".*?".join(re.escape(part) for part in line.split("...")) + r"\n"
    return re.fullmatch(pattern, "".join(line + "\n" for line in trim(found))) is not None


def trim(lines):
    """The lines with single spaces, because the width of a number changes its padding, and no empty line at the end."""
    lines = [" ".join(line.split()) for line in lines]
    while lines and not lines[-1]:
        lines.pop()
    return lines
