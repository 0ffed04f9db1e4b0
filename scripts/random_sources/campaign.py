"""Random conversions beside independent readers.

    python scripts/random_sources --bin PROGRAM --work DIR [--number 500] [--seed S] [--family NAME ...] [--only N]

Each case makes a random source, converts it, and compares the result with what Python's json, csv and tarfile, pyarrow and
mosaicml-streaming read. A case either agrees value by value or ends with a refusal that names what is wrong. The folder of
a case that disagrees is kept, and the command that repeats this case alone is printed.
"""

from __future__ import annotations

import argparse
import random
import shlex
import shutil
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from random_sources import delta, json_columns, mixed, number_edges, tars, unions
from random_sources.place import Disagreement, Place

FAMILIES: dict[str, Callable[[Place, random.Random], str]] = {
    "mixed": mixed.check,
    "json": json_columns.check,
    "numbers": number_edges.check,
    "delta": delta.check,
    "tars": tars.check,
    "unions": unions.check,
}
"""What is tested. A family checks one case and returns its outcome, such as `equal` or `refused`."""


def run_case(binary: Path, work: Path, seed: str, family: str, number: int) -> tuple[str, str | None]:
    """Runs one case: its outcome, and what disagrees. The folder of a case that agrees is removed."""
    root = work / f"{family}-{number}"
    shutil.rmtree(root, ignore_errors=True)
    place = Place(binary, root)
    rng = random.Random(f"{seed} {family} {number}")
    try:
        outcome = FAMILIES[family](place, rng)
    except Disagreement as found:
        problem = str(found)
    except Exception:
        problem = f"the case did not end:\n{traceback.format_exc()}"
    else:
        shutil.rmtree(root)
        return outcome, None
    (root / "commands.txt").write_text("\n".join(place.commands) + f"\n\n{problem}\n")
    return "failed", problem


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True, help="the shardmill program")
    parser.add_argument("--work", type=Path, required=True, help="folder for the cases; those that fail are kept in it")
    parser.add_argument("--number", type=int, default=500, help="how many cases (default 500)")
    parser.add_argument("--seed", default="random", help="a number or any text; `random` draws one (default)")
    parser.add_argument("--family", choices=list(FAMILIES), action="append", help="run this family only; may be repeated")
    parser.add_argument("--only", type=int, metavar="N", help="run case N only")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="begin with case N (default 0)")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Runs a campaign: 0 when every case agrees, 1 when one does not."""
    args = arguments(argv)
    seed = str(random.randrange(10**9)) if args.seed == "random" else args.seed
    binary, work = args.bin.resolve(), args.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    chosen = args.family or list(FAMILIES)
    print(f"seed {seed}, families {', '.join(chosen)}", flush=True)
    wanted = [args.only] if args.only is not None else range(args.first, args.first + args.number)
    outcomes: Counter[tuple[str, str]] = Counter()
    begun = time.monotonic()
    for number in wanted:
        family = chosen[number % len(chosen)]
        outcome, problem = run_case(binary, work, seed, family, number)
        outcomes[family, outcome] += 1
        if problem is not None:
            again = ["scripts/random_sources", "--bin", args.bin, "--work", args.work, "--seed", seed, "--only", number]
            again += [word for name in args.family or [] for word in ("--family", name)]
            print(f"FAILED case {number} ({family})\n  {problem.replace(chr(10), chr(10) + '  ')}")
            print(f"  kept in {work / f'{family}-{number}'}")
            print(f"  again: {sys.executable} {shlex.join(map(str, again))}", flush=True)
    for family in chosen:
        found = [f"{count} {outcome}" for (name, outcome), count in sorted(outcomes.items()) if name == family]
        print(f"{family}: {', '.join(found) or 'no case'}")
    failed = sum(count for (_, outcome), count in outcomes.items() if outcome == "failed")
    print(f"{time.monotonic() - begun:.0f} s")
    print(f"{sum(outcomes.values()) - failed} passed, {failed} failed")
    return 1 if failed else 0
