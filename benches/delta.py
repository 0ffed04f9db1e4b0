"""How much do deletion vectors cost, beside the same rows in plain Parquet?

    python delta.py --bin shardmill --work DIR [--rows 2000000] [--rounds 5]

Makes two sources of the same rows in DIR, which is kept for the next time: a Delta table in whose files every tenth row
is deleted (scattered, or in runs of a thousand), and Parquet files that hold only the rows that are left. Both are
converted to MDS in turn; medians of the rounds are shown, and the shards must be the same. Making needs pyarrow.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import statistics
import struct
import subprocess
import sys
import zlib

import measure

FILES = 4
MAGIC = 1681511377
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def z85(data: bytes) -> str:
    text = ""
    for at in range(0, len(data), 4):
        value, digits = int.from_bytes(data[at : at + 4], "big"), []
        for _ in range(5):
            value, digit = divmod(value, 85)
            digits.append(DIGITS[digit])
        text += "".join(reversed(digits))
    return text


def roaring(rows: list[int]) -> bytes:
    """A 64-bit roaring bitmap of rows below 2**32: containers are arrays up to 4096 rows, else bitmaps."""
    containers: dict[int, list[int]] = {}
    for row in rows:
        containers.setdefault(row >> 16, []).append(row & 0xFFFF)
    head, bodies = struct.pack("<II", 12346, len(containers)), []
    for key, values in containers.items():
        head += struct.pack("<HH", key, len(values) - 1)
        if len(values) <= 4096:
            bodies.append(struct.pack(f"<{len(values)}H", *values))
        else:
            bits = bytearray(8192)
            for value in values:
                bits[value >> 3] |= 1 << (value & 7)
            bodies.append(bytes(bits))
    offset = len(head) + 4 * len(bodies)
    for body in bodies:
        head += struct.pack("<I", offset)
        offset += len(body)
    return struct.pack("<I", MAGIC) + struct.pack("<QI", 1, 0) + head + b"".join(bodies)


def make(work: pathlib.Path, rows: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {"id": "long", "weight": "double", "text": "string"}
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in types.items()]
    each = rows // FILES
    for kind in ("scattered", "runs"):
        table, plain = work / kind, work / f"{kind}-plain"
        if table.exists():
            continue
        (table / "_delta_log").mkdir(parents=True)
        plain.mkdir()
        features = ["deletionVectors"]
        actions = [
            {
                "protocol": {
                    "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features,
                }
            },
            {
                "metaData": {
                    "id": "bench", "format": {"provider": "parquet", "options": {}}, "partitionColumns": [],
                    "schemaString": json.dumps({"type": "struct", "fields": fields}), "configuration": {},
                }
            },
        ]
        for number in range(FILES):
            ids = range(number * each, (number + 1) * each)
            data = pa.table({
                "id": pa.array(ids, pa.int64()),
                "weight": pa.array([(n * 7919 % 1000) / 8 for n in ids], pa.float64()),
                "text": [f"sample {n} " + "lorem ipsum dolor sit amet " * (n % 5) for n in ids],
            })
            if kind == "scattered":
                gone = [row for row in range(each) if row % 10 == row // 10 % 10]
            else:
                gone = [row for row in range(each) if row // 1000 % 10 == 3]
            name = f"part-{number}.parquet"
            pq.write_table(data, table / name, row_group_size=each // 2)
            keep = bytearray(b"\x01" * each)
            for row in gone:
                keep[row] = 0
            left = data.filter(pa.array([bool(kept) for kept in keep]))
            pq.write_table(left, plain / name, row_group_size=each // 2)
            vector, identity = roaring(gone), number.to_bytes(16, "big")
            digits = identity.hex()
            uuid = "-".join([digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]])
            stored = b"\x01" + struct.pack(">I", len(vector)) + vector + struct.pack(">I", zlib.crc32(vector))
            (table / f"deletion_vector_{uuid}.bin").write_bytes(stored)
            actions.append({
                "add": {
                    "path": name, "partitionValues": {}, "size": (table / name).stat().st_size, "modificationTime": 0,
                    "dataChange": True, "stats": json.dumps({"numRecords": each}),
                    "deletionVector": {
                        "storageType": "u", "pathOrInlineDv": z85(identity), "offset": 1,
                        "sizeInBytes": len(vector), "cardinality": len(gone),
                    },
                }
            })
        log = table / "_delta_log" / f"{0:020}.json"
        log.write_text("".join(json.dumps(action) + "\n" for action in actions))


def shards(dataset: pathlib.Path) -> list[tuple[str, str]]:
    index = json.loads((dataset / "index.json").read_text())
    return [(shard["raw_data"]["basename"], shard["zip_data"]["hashes"]["sha256"]) for shard in index["shards"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--make", action="store_true", help="make the sources and end")
    options = parser.parse_args()
    if options.make:
        make(options.work, options.rows)
        return
    # pyarrow stays out of the process that measures.
    again = [sys.executable, __file__, "--make", "--bin", "-", "--work", str(options.work), "--rows", str(options.rows)]
    subprocess.run(again, check=True)
    for kind in ("scattered", "runs"):
        walls: dict[str, list[float]] = {"delta": [], "parquet": []}
        for _ in range(options.rounds):
            for name, source in (("parquet", f"{kind}-plain"), ("delta", kind)):
                out = options.work / f"out-{name}"
                shutil.rmtree(out, ignore_errors=True)
                command = [str(options.bin), "--progress", "none", "convert", str(options.work / source), str(out)]
                walls[name].append(measure.run(command, options.work / "log").wall)
        if shards(options.work / "out-delta") != shards(options.work / "out-parquet"):
            sys.exit(f"{kind}: the shards differ")
        delta, parquet = (statistics.median(walls[name]) for name in ("delta", "parquet"))
        print(f"{kind}: Delta {delta:.2f} s, Parquet {parquet:.2f} s, ratio {delta / parquet:.2f}")


if __name__ == "__main__":
    main()
