"""Convert one Parquet file to MDS with another package's writer, and say how long the conversion itself took.

    python peer_writer.py mosaic|neprr INPUT.parquet OUT COMPRESSION HASHES

Prints one JSON object: wall and CPU seconds (user + system, children included) from opening the Parquet file to the end
of `finish()`. Starting Python and importing the package, 2 to 10 seconds with mosaicml-streaming, are left out, in the
peers' favour. Each peer is fed the way its documentation recommends and with the fewest Python objects:

* mosaicml-streaming: `MDSWriter.write(dict)` for each sample; array columns as rows of one NumPy view (no lists),
  text and bytes through `to_pylist`.
* neprr-streaming: `MDSWriter.write_record_batch`, Arrow in, all work in Rust.
"""

from __future__ import annotations

import json
import sys
import time

import pyarrow.parquet as pq
from peer_columns import column_values, cpu_seconds, encoding
from streaming import MDSWriter

BATCH_ROWS = 1_024


def main() -> None:
    peer, source, out, compression, hashes = sys.argv[1:]
    wall, cpu = time.perf_counter(), cpu_seconds()
    file = pq.ParquetFile(source)
    columns = {field.name: encoding(field) for field in file.schema_arrow}
    with MDSWriter(
        columns=columns,
        out=out,
        compression=None if compression == "none" else compression,
        hashes=[] if hashes == "none" else hashes.split(","),
    ) as writer:
        for batch in file.iter_batches(BATCH_ROWS):
            if peer == "neprr":
                writer.write_record_batch(batch)
                continue
            names = batch.schema.names
            for row in zip(*(column_values(column) for column in batch.columns)):
                writer.write(dict(zip(names, row)))
    print(json.dumps({"wall": time.perf_counter() - wall, "cpu": cpu_seconds() - cpu}))


if __name__ == "__main__":
    main()
