"""The original reader and writer, and their values in a form that can be compared."""

import base64
import json
import math
import re
import time
from decimal import Decimal
from pathlib import Path

import numpy as np
import streaming.base.format.base.writer
from PIL import Image
from streaming import CSVWriter, JSONWriter, LocalDataset, MDSWriter, StreamingDataset, TSVWriter, XSVWriter

# Before it writes the index, the original looks once a second whether its own copies are done.
streaming.base.format.base.writer.sleep = lambda seconds: time.sleep(seconds / 1000)

WRITERS = {"mds": MDSWriter, "json": JSONWriter, "csv": CSVWriter, "tsv": TSVWriter, "xsv": XSVWriter}

# What ours writes beside the dataset.
SIDE_FILES = {"index.provenance"}


def write(folder, format_, columns, samples, **options):
    with WRITERS[format_](columns=columns, out=str(folder), **options) as out:
        for sample in samples:
            out.write(sample)


def files(folder):
    """Every file below a folder, by its relative path."""
    folder = Path(folder)
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if not p.is_dir()}


def difference(ours, theirs):
    """The first way in which two folders differ, for a person; None when they are the same."""
    ours = {name: data for name, data in files(ours).items() if name not in SIDE_FILES}
    theirs = files(theirs)
    if ours.keys() != theirs.keys():
        return f"only ours: {sorted(ours.keys() - theirs.keys())}, only theirs: {sorted(theirs.keys() - ours.keys())}"
    for name in sorted(ours):
        a, b = ours[name], theirs[name]
        if a != b:
            at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
            near = slice(max(at - 40, 0), at + 40)
            return f"{name}: {len(a)} and {len(b)} bytes, first difference at {at}\nours   {a[near]!r}\ntheirs {b[near]!r}"
    return None


def drop_empty_first_shard(folder):
    """Renumbers the shards of the original writer where its first one has no samples.

    The original writes such a shard when the first sample alone exceeds the size limit; a conversion does not.
    """
    index = json.loads((folder / "index.json").read_text())
    if not index["shards"] or index["shards"][0]["samples"]:
        return
    files_of = [[shard[key] for key in ("raw_data", "raw_meta", "zip_data", "zip_meta") if shard.get(key)] for shard in index["shards"]]
    for file in files_of[0]:
        (folder / file["basename"]).unlink(missing_ok=True)
    for file in sum(files_of[1:], []):
        old = file["basename"]
        file["basename"] = re.sub(r"\.(\d{5})\.", lambda number: f".{int(number[1]) - 1:05}.", old, count=1)
        if (folder / old).exists():
            (folder / old).rename(folder / file["basename"])
    del index["shards"][0]
    (folder / "index.json").write_text(json.dumps(index, sort_keys=True))


def plain(value):
    """A value with nothing that compares oddly: NaN, -0.0, arrays, images, floats of different widths."""
    if isinstance(value, np.generic):
        return (value.dtype.name, value.tobytes())
    if isinstance(value, np.ndarray):
        return ("ndarray", value.dtype.name, tuple(map(int, value.shape)), value.tobytes())
    if isinstance(value, Image.Image):
        encoded = value.fp.getvalue() if getattr(value, "fp", None) else None
        return ("image", value.mode, value.size, encoded or value.tobytes())
    if isinstance(value, float):
        return ("float", "nan" if math.isnan(value) else value.hex())
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, Decimal):
        return ("decimal", str(value))
    return (type(value).__name__, value)


def streamed(folder, validate_hash=None):
    """All samples by the streaming reader: in order by iteration, and by index. Decompresses into the folder."""
    dataset = StreamingDataset(local=str(folder), shuffle=False, batch_size=1, num_canonical_nodes=1,
                               validate_hash=validate_hash, allow_unsafe_types=True)
    by_index = [plain(dataset[i]) for i in range(len(dataset))]
    in_order = [plain(sample) for sample in dataset]
    assert in_order == by_index
    return by_index


def local(folder):
    """All samples by the local reader, which needs raw files."""
    dataset = LocalDataset(str(folder))
    return [plain(dataset[i]) for i in range(len(dataset))]


def index(folder):
    return json.loads((Path(folder) / "index.json").read_text())


def b64(data):
    return base64.b64encode(data).decode()
