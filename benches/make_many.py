"""Make a dataset of very many small samples: what starting a run costs, and nothing else.

    python make_many.py OUT [--shards 20000] [--samples 5000]

Every sample is one byte (column `x`, encoding `uint8`), so that 20,000 shards with 5,000 samples each are 500 MB, most
of them offsets. Standard library only.
"""

from __future__ import annotations

import argparse
import array
import json
import pathlib
import sys

CONFIG = {
    "column_encodings": ["uint8"], "column_names": ["x"], "column_sizes": [1], "compression": None, "format": "mds",
    "hashes": [], "size_limit": None, "version": 2,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--shards", type=int, default=20_000)
    parser.add_argument("--samples", type=int, default=5_000)
    args = parser.parse_args()
    config = json.dumps(CONFIG).encode()
    first = 8 + 4 * args.samples + len(config)
    header = array.array("I", [args.samples, *range(first, first + args.samples + 1)])
    if sys.byteorder == "big":
        header.byteswap()
    shard = header.tobytes() + config + bytes(number % 256 for number in range(args.samples))
    args.out.mkdir(parents=True, exist_ok=True)
    entries = []
    for number in range(args.shards):
        name = f"shard.{number:05}.mds"
        (args.out / name).write_bytes(shard)
        entry = {
            **CONFIG, "raw_data": {"basename": name, "bytes": len(shard), "hashes": {}}, "samples": args.samples,
            "zip_data": None,
        }
        entries.append(json.dumps(entry, sort_keys=True))
    index = '{"shards": [' + ", ".join(entries) + '], "version": 2}'
    (args.out / "index.json").write_text(index)
    print(f"{args.out}: {args.shards * args.samples:,} samples in {args.shards:,} shards of {len(shard):,} bytes")


if __name__ == "__main__":
    main()
