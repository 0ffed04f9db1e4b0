"""Random orders of `shardmill order --json` and of mosaicml-streaming 0.13.0, side by side.

    python differential.py --bin PROGRAM [--number 1000] [--seed N|random] [--large]

Runs in an environment that has mosaicml-streaming 0.13.0 and numpy 2.1.3. Prints one line of figures; every difference
is printed with its configuration and makes the exit status 1.
"""

import argparse
import json
import random
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field

import configs
import oracle


@dataclass
class Compared:
    """What a comparison came to."""

    counts: Counter = field(default_factory=Counter)
    seen: Counter = field(default_factory=Counter)
    samples: int = 0
    differences: list = field(default_factory=list)

    def __str__(self):
        return f"{dict(self.counts)} {self.samples} sample ids; {dict(sorted(self.seen.items()))}"


def theirs(config):
    """The order of the original and None, or None and why it refuses."""
    try:
        return oracle.orders(config), None
    except Exception as error:  # noqa: BLE001: whatever the original raises is a refusal
        return None, error


def ours(program, asked):
    """The answers of the program, by id."""
    lines = "".join(json.dumps(one) + "\n" for one in asked)
    done = subprocess.run([str(program), "order", "--json"], input=lines, capture_output=True, encoding="utf-8", check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    found = {one["id"]: one for one in answers}
    assert len(found) == len(answers) == len(asked), f"{len(answers)} answers to {len(asked)} lines"
    return found


def compare(program, asked):
    """Both orders of each configuration."""
    found, out = ours(program, asked), Compared()
    for one in asked:
        mine = found[one["id"]]
        expected, reason = theirs(one)
        if expected is None:
            same = "error" in mine
            out.counts["both refuse" if same else "we accept"] += 1
        else:
            same = mine.get("orders") == expected
            out.samples += sum(len(worker) for rank in expected for worker in rank)
            out.counts["equal" if same else "we refuse" if "error" in mine else "different"] += 1
            if same:
                shuffle = one["shuffle_algo"] if one["shuffle"] else "unshuffled"
                out.seen.update([shuffle, one["batching_method"], one["partition_algo"], f"nodes {one['nodes']}"])
                out.seen.update(["resumed"] if one["resume"] else [])
                out.seen.update(["replicated"] if (one["replication"] or 1) > 1 else [])
        if not same:
            out.differences.append("\n".join([
                json.dumps(one),
                f"   ours: {str(mine.get('error') or mine['orders'])[:300]}",
                f"   theirs: {str(reason if expected is None else expected)[:300]}",
            ]))  # fmt: skip
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--number", type=int, default=1000)
    parser.add_argument("--seed", default="0", help="a number, or `random`")
    parser.add_argument("--large", action="store_true", help="some 10^6 samples each")
    args = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 32) if args.seed == "random" else int(args.seed)
    compared = compare(args.bin, (configs.large if args.large else configs.configs)(seed, args.number))
    print(*compared.differences, sep="\n", end="\n" if compared.differences else "")
    print(f"seed {seed}: {compared}")
    return 1 if compared.differences else 0


if __name__ == "__main__":
    sys.exit(main())
