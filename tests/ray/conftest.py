"""Ray on this machine.

    SHARDMILL_TORCH=.venv/bin/python .cache/venv-ray/bin/python -m pytest tests/ray

The environment has Ray and no torch; where that is needed it is the one of another environment with the same Python.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Workers import the tests and the package.
os.environ["PYTHONPATH"] = os.pathsep.join(
    path for path in (str(Path(__file__).parent), os.environ.get("PYTHONPATH")) if path
)
os.environ.setdefault("RAY_DATA_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
# Disks of test machines are fuller than Ray likes.
os.environ.setdefault("RAY_local_fs_capacity_threshold", "1.0")


@pytest.fixture(scope="session", autouse=True)
def ray_here():
    import ray
    import ray.data

    ray.init(
        num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False, object_store_memory=150 << 20
    )
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    # Parts are numbered in the order of the dataset.
    context.execution_options.preserve_order = True
    yield
    ray.shutdown()


@pytest.fixture(scope="session")
def torch():
    """The torch of another environment; packages that are here come first."""
    python = os.environ.get("SHARDMILL_TORCH")
    if python is None:
        pytest.exit("SHARDMILL_TORCH is to name a Python with torch", returncode=2)
    program = "import sysconfig, sys; print(sysconfig.get_path('purelib')); print(sys.version_info[:2])"
    found = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True).stdout.splitlines()
    if found[1] != str(sys.version_info[:2]):
        pytest.exit(f"{python} is Python {found[1]}, not {sys.version_info[:2]}", returncode=2)
    sys.path.append(found[0])
    import torch

    return torch
