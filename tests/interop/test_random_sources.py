"""A short version of `make differential`: random sources beside independent readers.

The seed is fixed, so that a change fails only for what it did; `make differential` draws new ones.
"""

import sys

import pytest
from conftest import ROOT

sys.path.append(str(ROOT / "scripts"))

from random_sources.campaign import FAMILIES, run_case  # noqa: E402

SEED = "20261123"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", range(30))
def test_random_source_matches_independent_reader(number, pytestconfig, tmp_path):
    family = list(FAMILIES)[number % len(FAMILIES)]
    _, problem = run_case(pytestconfig.shardmill_bin, tmp_path, SEED, family, number)
    assert problem is None, f"case {number} ({family}) of seed {SEED}: {problem}"
