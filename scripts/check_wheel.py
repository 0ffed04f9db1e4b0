"""Checks the contents of the wheel: its tag, metadata, licence, notices, binaries and size.

    python scripts/check_wheel.py WHEEL

Runs in the environment of requirements-wheel.txt.
"""

import base64
import hashlib
import io
import json
import re
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

from elftools.elf.elffile import ELFFile
from packaging.utils import parse_wheel_filename

ROOT = Path(__file__).resolve().parents[1]
# PyPI refuses files above 100 MB, unless it is asked for more.
MOST_BYTES = 60_000_000
OLDEST_GLIBC = (2, 28)
EXTRAS = {"arrow", "fsspec", "hf", "images", "otlp", "ray", "spark", "torch", "video"}
URLS = {"Changelog", "Documentation", "Homepage", "Issues", "Repository"}


def main():
    path = Path(sys.argv[1])
    name, version, _, tags = parse_wheel_filename(path.name)
    workspace = re.search(r'^version = "(.+)"', (ROOT / "Cargo.toml").read_text(encoding="utf-8"), re.MULTILINE)[1]
    assert (name, str(version)) == ("shardmill", workspace), path.name
    [(interpreter, abi)] = {(tag.interpreter, tag.abi) for tag in tags}
    is_free_threaded = re.fullmatch(r"cp3\d+t", abi) is not None
    assert (interpreter, abi) == (abi[:-1], abi) if is_free_threaded else ("cp39", "abi3"), tags
    for tag in tags:
        major, minor, arch = re.fullmatch(r"manylinux_(\d+)_(\d+)_(\w+)", tag.platform).groups()
        assert (int(major), int(minor)) <= OLDEST_GLIBC, tag
    size = path.stat().st_size
    assert size <= MOST_BYTES, f"{size / 1e6:.1f} MB"

    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        check_record(wheel)
        inside = f"shardmill-{version}.dist-info"
        metadata(Parser().parsestr(wheel.read(f"{inside}/METADATA").decode()))
        assert wheel.read(f"{inside}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
        crates = notices(wheel.read(f"{inside}/licenses/THIRD-PARTY-NOTICES.txt").decode(), arch)
        program = f"shardmill-{version}.data/scripts/shardmill"
        suffix = f"cpython-{abi[2:]}-{arch}-linux-gnu" if is_free_threaded else "abi3"
        module = f"shardmill/_core.{suffix}.so"
        for binary in (program, module):
            elf = ELFFile(io.BytesIO(wheel.read(binary)))
            assert newest_glibc(elf) <= OLDEST_GLIBC, f"{binary} needs glibc {newest_glibc(elf)}"
            assert elf.get_section_by_name(".symtab") is None, f"{binary} is not stripped"
            assert not [section.name for section in elf.iter_sections() if section.name.startswith(".debug")], binary
        assert wheel.getinfo(program).external_attr >> 16 & 0o111 == 0o111, "the program is not executable"
        sources = {f"shardmill/{file.relative_to(ROOT / 'python/shardmill')}" for file in sources_of_package()}
        assert not sources - set(names), sorted(sources - set(names))
        extra = {file for file in names if not file.startswith(inside)} - sources - {program, module}
        assert not extra, sorted(extra)

    print(f"{path.name}: {size / 1e6:.1f} MB, {len(names)} files, notices of {crates} crates; auditwheel: {audit(path)}")


def sources_of_package():
    listed = subprocess.run(["git", "ls-files", "-z", "."], cwd=ROOT / "python/shardmill", check=True, capture_output=True, text=True)
    return [ROOT / "python/shardmill" / name for name in listed.stdout.split("\0") if name]


def check_record(wheel):
    """Each file is listed in RECORD, with its hash."""
    [record] = [name for name in wheel.namelist() if name.endswith(".dist-info/RECORD")]
    listed = {}
    for line in wheel.read(record).decode().splitlines():
        name, digest, _ = line.rsplit(",", 2)
        listed[name] = digest
    assert set(listed) == set(wheel.namelist())
    for name, digest in listed.items():
        found = base64.urlsafe_b64encode(hashlib.sha256(wheel.read(name)).digest()).decode().rstrip("=")
        assert name == record or digest == f"sha256={found}", name


def metadata(found):
    assert found["License-Expression"] == "Apache-2.0"
    assert set(found.get_all("License-File")) == {"LICENSE", "THIRD-PARTY-NOTICES.txt"}
    assert {url.split(",")[0] for url in found.get_all("Project-URL")} == URLS, found.get_all("Project-URL")
    assert set(found.get_all("Provides-Extra")) == EXTRAS
    assert [line for line in found.get_all("Requires-Dist") if "extra ==" not in line] == ["numpy>=1.21"]
    assert found["Requires-Python"] == ">=3.9"
    assert len(found.get_all("Classifier")) >= 10
    assert found["Summary"] and "pip install shardmill" in found.get_payload()


def notices(text, arch):
    """Compares the notices with what cargo links, and returns the number of crates."""
    command = ["cargo", "tree", "--locked", "--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}"]
    command += ["--package", "shardmill", "--package", "shardmill-python", "--target", f"{arch}-unknown-linux-gnu"]
    tree = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    crates = {tuple(line.split()[:2]) for line in tree.splitlines() if line}
    foreign = {f"{name} {version[1:]}" for name, version in crates if not name.startswith("shardmill")}
    assert len(foreign) > 100
    listed = set(re.findall(r"^(\S+ \S+) \(", text.split("\n====")[0], re.MULTILINE))
    assert not foreign - listed, sorted(foreign - listed)
    covered = {name for line in re.findall(r"^Of (.*):$", text, re.MULTILINE) for name in line.split(", ")}
    assert not listed - covered, sorted(listed - covered)
    return len(listed)


def newest_glibc(elf):
    """The newest version of glibc whose symbols a binary needs."""
    needs = [version.name for section in elf.iter_sections("SHT_GNU_verneed") for _, versions in section.iter_versions() for version in versions]
    found = [re.fullmatch(r"GLIBC_(\d+)\.(\d+)(?:\.\d+)?", name) for name in needs]
    return max((int(match[1]), int(match[2])) for match in found if match)


def audit(path):
    """The oldest platform that auditwheel finds for all binaries of the wheel."""
    command = [sys.executable, "-m", "auditwheel", "show", "--json", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert not found["external_libs"] and not found["unsupported_isa"], found
    match = re.fullmatch(r"manylinux_(\d+)_(\d+)_\w+", found["overall_tag"])
    assert match and (int(match[1]), int(match[2])) <= OLDEST_GLIBC, found
    return found["overall_tag"]


main()
