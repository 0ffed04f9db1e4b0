#!/usr/bin/env python3
"""Writes THIRD-PARTY-NOTICES: the crates that are linked into the program and the extension module, with their licences.

    scripts/notices.py OUT [--target TRIPLE]

The crates come from `cargo metadata`, the texts from the sources that cargo has downloaded, so the output depends only on
Cargo.lock and the target. A crate without a licence file gets that of another crate from the same repository, or the text of
the Apache License or the MIT License if that is its licence; any other is an error.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# The packages whose binaries are in the wheel.
SHIPPED = ("shardmill", "shardmill-python")
FILE = re.compile(r"^(un)?licen[cs]e|^copying|^notice|^copyright", re.IGNORECASE)
# Sources, and licences of documents and test data.
NOT_TEXT = {".rs", ".py", ".c", ".h", ".toml", ".json", ".html", ".yml", ".tmpl", ".template"}
# Folders of bundled sources that are not compiled into anything that is shipped.
NOT_LINKED = {"benches", "contrib", "doc", "docs", "examples", "fuzz", "programs", "target", "test", "tests", "test_data"}
# The MIT License in the words of SPDX, with its holders to be filled in.
MIT = """MIT License

Copyright (c) {holders}

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files
(the "Software"), to deal in the Software without restriction, including without limitation the rights to use, copy, modify,
merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES
OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE
LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR
IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""
HEADER = """Third-party notices of shardmill

The program `shardmill` and the Python extension module `shardmill._core` contain the software listed here. shardmill itself is
licensed under the Apache License 2.0 (the file LICENSE).

They also contain the Rust standard library (MIT OR Apache-2.0, https://github.com/rust-lang/rust), and LLVM's libunwind and
compiler-rt (Apache-2.0 WITH LLVM-exception, https://llvm.org).
"""


def metadata(target):
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", target]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def linked(found):
    """The packages from registries that the shipped ones are linked with, by name and version."""
    packages = {package["id"]: package for package in found["packages"]}
    nodes = {node["id"]: node for node in found["resolve"]["nodes"]}
    todo = [package["id"] for package in packages.values() if package["name"] in SHIPPED and package["source"] is None]
    seen = set(todo)
    while todo:
        for dependency in nodes[todo.pop()]["deps"]:
            normal = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            macro = any("proc-macro" in target["kind"] for target in packages[dependency["pkg"]]["targets"])
            if normal and not macro and dependency["pkg"] not in seen:
                seen.add(dependency["pkg"])
                todo.append(dependency["pkg"])
    foreign = [packages[package] for package in seen if packages[package]["source"] is not None]
    return sorted(foreign, key=lambda package: (package["name"], [int(part) for part in re.findall(r"\d+", package["version"])]))


def own_texts(package):
    """The licence texts in the files of a package."""
    folder = Path(package["manifest_path"]).parent
    found = []
    for path in sorted(folder.rglob("*")):
        inner = path.relative_to(folder)
        if not FILE.match(path.name) or path.suffix.lower() in NOT_TEXT or NOT_LINKED & set(inner.parts[:-1]):
            continue
        if path.is_file():
            found.append(tidy(path.read_text(encoding="utf-8", errors="replace")))
    return list(dict.fromkeys(filter(None, found)))


def borrowed_texts(package, packages):
    """The licence texts of a package without a licence file."""
    for other in packages:
        if (other["repository"], other["license"]) == (package["repository"], package["license"]) and (found := own_texts(other)):
            return found
    if "Apache-2.0" in (package["license"] or ""):
        return [tidy((ROOT / "LICENSE").read_text(encoding="utf-8"))]
    if package["license"] == "MIT" and package["authors"]:
        return [tidy(MIT.format(holders=", ".join(package["authors"])))]
    sys.exit(f"notices.py: {package['name']} {package['version']} ({package['license']}) has no licence file")


def tidy(text):
    """The text without differences that mean nothing, so that equal licences appear once."""
    lines = [line.rstrip() for line in text.replace("\r\n", "\n").replace("\f", "").strip("\ufeff \n").split("\n")]
    return "\n".join(lines).strip("\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--target", default="x86_64-unknown-linux-gnu")
    given = parser.parse_args()

    packages = linked(metadata(given.target))
    users = {}
    for package in packages:
        for text in own_texts(package) or borrowed_texts(package, packages):
            users.setdefault(text, []).append(f"{package['name']} {package['version']}")
    parts = [HEADER, "Packages\n--------\n"]
    for package in packages:
        licence = package["license"] or "see below"
        parts.append(f"{package['name']} {package['version']} ({licence}) {package['repository'] or ''}".rstrip())
    for text, names in sorted(users.items(), key=lambda item: (item[1], item[0])):
        parts.append(f"\n{'=' * 80}\nOf {', '.join(names)}:\n\n{text}")
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text("\n".join(parts) + "\n", encoding="utf-8")
    print(f"{given.out}: {len(packages)} packages, {len(users)} texts")


if __name__ == "__main__":
    main()
