"""Golden orders of mosaicml-streaming 0.13.0 with numpy 2.1.3, for the tests of this crate.

    python generate.py            writes orders.json and large.json beside this file
    python generate.py --check    fails when they are not what would be written

`orders.json`: configurations in the form of `shardmill order --json` with the ids that every worker of every rank is
given, or null where the original raises; seed below. `large.json`: one long order of each shuffle: its first ids, the
sha256 of all as little-endian 64-bit integers, and their FNV-1a over whole ids, which a test computes in three lines.
"""

import argparse
import hashlib
import json
import pathlib
import sys

import configs
import numpy as np
import oracle
from streaming.base.shuffle import get_shuffle

SEED, NUMBER, MOST_IDS = 20260101, 420, 1200


def orders():
    out = []
    for one in configs.configs(SEED, NUMBER):
        try:
            found = oracle.orders(one)
        except Exception:  # noqa: BLE001: whatever the original raises is a refusal
            found = None
        if found is None or sum(len(ids) for rank in found for ids in rank) <= MOST_IDS:
            one["orders"] = found
            out.append(json.dumps(one, separators=(",", ":")))
    return "[\n" + ",\n".join(out) + "\n]\n"


def large():
    out = []
    sizes = np.array([1000] * 50 + [377], np.int64)
    for algo in configs.ALGOS:
        ids = get_shuffle(algo, sizes, 4, 9176, 2, 5000)
        fnv = 0xCBF29CE484222325
        for one in ids.tolist():
            fnv = (fnv ^ one) * 0x100000001B3 % 2**64
        digest = hashlib.sha256(ids.astype("<i8").tobytes()).hexdigest()
        out.append({"algo": algo, "first": ids[:6].tolist(), "sha256": digest, "fnv": f"{fnv:016x}"})
    return json.dumps(out, indent=1) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    wrong = 0
    for name, text in (("orders.json", orders()), ("large.json", large())):
        path = pathlib.Path(__file__).with_name(name)
        if not check:
            path.write_text(text)
        elif path.read_text() != text:
            print(f"{name} differs")
            wrong = 1
    return wrong


if __name__ == "__main__":
    sys.exit(main())
