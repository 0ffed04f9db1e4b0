"""Random orders of this crate and of mosaicml-streaming 0.13.0, side by side.

    cargo build --release -p shardmill-order --example order_json
    python differential.py --bin target/release/examples/order_json --number 1000 --seed 1

Runs in an environment that has mosaicml-streaming 0.13.0 and numpy 2.1.3. Prints one line of figures; every difference
is printed with its configuration and makes the exit status 1.
"""

import argparse
import json
import subprocess
import sys
from collections import Counter

import configs
import oracle


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--number", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--large", action="store_true", help="some 10^6 samples each")
    args = parser.parse_args()
    asked = (configs.large if args.large else configs.configs)(args.seed, args.number)
    lines = "\n".join(json.dumps(one) for one in asked)
    answers = subprocess.run([args.bin], input=lines, capture_output=True, text=True, check=True).stdout
    found = {one["id"]: one for one in map(json.loads, answers.splitlines())}
    counts, seen, samples = Counter(), Counter(), 0
    for one in asked:
        try:
            expected = oracle.orders(one)
        except Exception as error:  # noqa: BLE001: whatever the original raises is a refusal
            expected, reason = None, error
        mine = found[one["id"]]
        if expected is None:
            same = "error" in mine
            counts["both refuse" if same else "we accept"] += 1
        else:
            same = mine.get("orders") == expected
            samples += sum(len(worker) for rank in expected for worker in rank)
            counts["equal" if same else "we refuse" if "error" in mine else "different"] += 1
            if same:
                shuffle = one["shuffle_algo"] if one["shuffle"] else "unshuffled"
                seen.update([shuffle, one["batching_method"], one["partition_algo"], f"nodes {one['nodes']}"])
                seen.update(["resumed"] if one["resume"] else [])
                seen.update(["replicated"] if (one["replication"] or 1) > 1 else [])
        if not same:
            print(json.dumps(one))
            print("   ours:", str(mine.get("error") or mine["orders"])[:300])
            print("   theirs:", str(reason if expected is None else expected)[:300])
    print(f"seed {args.seed}:", dict(counts), f"{samples} sample ids;", dict(sorted(seen.items())))
    return 0 if set(counts) <= {"equal", "both refuse"} else 1


if __name__ == "__main__":
    sys.exit(main())
