"""Installs the wheel into an empty environment and tries it, without Rust and without torch.

    python scripts/check_install.py WHEEL WORK [--every-scheme]

With --every-scheme, it is also installed with `--target`, `--prefix` and `--user`, and has to find its program in each.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

TRY = Path(__file__).with_name("try_install.py")
FIND = "from shardmill._program import find_program; print(find_program())"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("wheel", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--every-scheme", action="store_true")
    given = parser.parse_args()
    work = given.work.resolve()
    home = work / "home"
    home.mkdir(parents=True)
    venv = work / "venv"
    # Neither cargo nor an installed shardmill: only the tools of the system, and of the environment.
    clean = {"HOME": str(home), "PIP_ROOT_USER_ACTION": "ignore", "PATH": f"{venv}/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
    # How pip reaches its index.
    passed = ("PIP_", "SSL_", "REQUESTS_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
    clean.update({name: value for name, value in os.environ.items() if name.upper().startswith(passed)})
    for tool in ("cargo", "rustc", "shardmill"):
        assert shutil.which(tool, path=clean["PATH"]) is None, f"this is about an environment without {tool}"

    def run(*words, **more):
        return subprocess.run([str(word) for word in words], check=True, env={**clean, **more}, cwd=work, text=True, stdout=subprocess.PIPE).stdout

    def timed(name, *words):
        started = time.monotonic()
        shown = run(*words)
        print(f"  {name:<32} {time.monotonic() - started:6.2f} s", flush=True)
        return shown

    print(f"Python {sys.version.split()[0]}:", flush=True)
    pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:")
    python = venv / "bin/python"
    timed("python -m venv", sys.executable, "-m", "venv", venv)
    timed("pip install", python, *pip, given.wheel.resolve())
    program = shutil.which("shardmill", path=clean["PATH"])
    assert program == str(venv / "bin/shardmill"), program
    timed("shardmill --version", program, "--version")
    assert run(python, "-c", FIND).strip() == program
    subprocess.run([python, "-X", "dev", TRY, program], check=True, env=clean, cwd=work)
    if given.every_scheme:
        every_scheme(work, given.wheel.resolve(), pip, run)


def every_scheme(work, wheel, pip, run):
    """Installs the wheel outside of the environment, and compares the program that the package finds."""
    for scheme in ("target", "prefix", "user"):
        folder = work / scheme
        more = {"PYTHONUSERBASE": str(folder)} if scheme == "user" else {}
        words = ["--user"] if scheme == "user" else [f"--{scheme}", folder]
        run(sys.executable, *pip, "--no-deps", "--ignore-installed", "--no-warn-script-location", *words, wheel, PIP_BREAK_SYSTEM_PACKAGES="1", **more)
        packages = [path.parent.parent for path in folder.rglob("shardmill/_program.py")]
        assert len(packages) == 1, packages
        if scheme != "user":
            more["PYTHONPATH"] = str(packages[0])
        found = Path(run(sys.executable, "-c", FIND, **more).strip())
        assert folder in found.parents, f"{scheme}: {found}"
        shown = run(sys.executable, "-m", "shardmill", "--version", **more)
        print(f"  --{scheme}: {found.relative_to(work)}, {shown.strip()}", flush=True)


main()
