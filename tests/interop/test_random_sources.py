"""A short version of `make differential`: random sources beside independent readers.

Most cases have a fixed seed; the last ones have a seed that is drawn, is part of the test's name and in the header of the
report. SHARDMILL_DIFFERENTIAL_SEED repeats it.
"""

import sys

import pytest
from conftest import DRAWN_SEED, ROOT

sys.path.append(str(ROOT / "scripts"))

from random_sources.campaign import FAMILIES, run_case  # noqa: E402

FIXED = [("20261123", number) for number in range(24)]
DRAWN = [(DRAWN_SEED, number) for number in range(len(FAMILIES))]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("seed", "number"), FIXED + DRAWN)
def test_case(seed, number, pytestconfig, tmp_path):
    family = list(FAMILIES)[number % len(FAMILIES)]
    _, problem = run_case(pytestconfig.shardmill_bin, tmp_path, seed, family, number)
    assert problem is None, f"case {number} ({family}) of seed {seed}: {problem}"
