"""Write one input as MDS, a sample at a time, with the writer of one package, and say how long that took.

    python dict_writer.py shardmill|streaming INPUT.parquet OUT COMPRESSION HASHES

The samples are Python objects before the clock starts: integers, floats, text, and rows of one NumPy array. Prints one
JSON object: wall and CPU seconds (user + system, all threads and children) from the first to the end of `finish()`, and
how many samples there were. Making the dict of a sample is part of it, for everybody alike.
"""

from __future__ import annotations

import importlib
import json
import sys
import time

import pyarrow.parquet as pq
from peer_columns import column_values, cpu_seconds, encoding


def main() -> None:
    package, source, out, compression, hashes = sys.argv[1:]
    writer_class = importlib.import_module(package).MDSWriter
    table = pq.read_table(source).combine_chunks()
    columns = {field.name: encoding(field) for field in table.schema}
    rows = list(zip(*(column_values(column.chunk(0)) for column in table.columns)))
    names = table.schema.names
    wall, cpu = time.perf_counter(), cpu_seconds()
    with writer_class(
        columns=columns,
        out=out,
        compression=None if compression == "none" else compression,
        hashes=[] if hashes == "none" else hashes.split(","),
    ) as writer:
        for row in rows:
            writer.write(dict(zip(names, row)))
    print(json.dumps({"wall": time.perf_counter() - wall, "cpu": cpu_seconds() - cpu, "samples": len(rows)}))


if __name__ == "__main__":
    main()
