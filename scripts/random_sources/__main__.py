"""Runs the campaign: `python scripts/random_sources --help`."""

import sys
from pathlib import Path

# Python puts the folder of this file first, where modules have plain names.
sys.path[0] = str(Path(__file__).resolve().parents[1])

from random_sources.campaign import main

sys.exit(main())
