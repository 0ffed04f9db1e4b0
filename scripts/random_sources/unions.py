"""Folders of Parquet and Arrow files whose schemas differ, and columns with nulls at every place."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from random_sources.place import Place, require
from random_sources.readers import Field, Sample, mds_samples

PLAIN = {
    "whole": (["int32", "int64"], [0, 1, -1, 2**31 - 1, -(2**31)]),
    "small": (["int8", "int16", "int32"], [0, 1, -1, 127, -128]),
    "float": (["float32", "float64"], [0.0, 0.5, -1.5, 2.0**100]),
    "text": (["string", "large_string", "dictionary"], ["", "a", "é日本", "x" * 40]),
    "bytes": (["binary", "large_binary"], [b"", b"\0\xff", b"abc"]),
    "flag": (["bool"], [True, False]),
}
"""Kinds of columns: the types that the files may have, and their values."""

NESTED: dict[str, tuple[pa.DataType, list[Any]]] = {
    "numbers": (pa.list_(pa.int64()), [[], [1], [1, 2, 3]]),
    "holes": (pa.list_(pa.int64()), [[1, None], [None], [2]]),
    "tags": (pa.list_(pa.string()), [[], ["a", None], ["b"]]),
    "record": (pa.struct([("a", pa.int64()), ("b", pa.string())]), [{"a": 1, "b": "x"}, {"a": None, "b": "y"}]),
    "bytes_in": (pa.struct([("a", pa.int64()), ("raw", pa.binary())]), [{"a": 1, "raw": b"\0\xff"}, {"a": 2, "raw": b""}, {"a": 3, "raw": None}]),
    "nothing": (pa.null(), [None]),
}
MAY_BE_REFUSED = ("holes", "bytes_in", "numbers")
"""Kinds that MDS has no form for, or not for all their values (empty arrays): a refusal that names the column is right, too."""


def arrow_type(name: str) -> pa.DataType:
    return pa.dictionary(pa.int32(), pa.string()) if name == "dictionary" else pa.type_for_alias(name)


def make_files(place: Place, rng: random.Random, columns: dict[str, str], form: str) -> tuple[list[dict[str, Any]], bool, list[str]]:
    """Writes the files: the rows by pyarrow, whether the files differ in their columns, and the schemas for a report."""
    rows: list[dict[str, Any]] = []
    sets = set()
    schemas = []
    (place / "in").mkdir()
    for number in range(rng.randint(1, 4)):
        names = [name for name in columns if rng.random() < 0.85]
        if rng.random() < 0.5:
            names = list(columns)
        rng.shuffle(names)
        sets.add(frozenset(names))
        count = rng.choice([0, 1, 2, 5])
        arrays = {"id": pa.array(range(len(rows), len(rows) + count), pa.int64())}
        for name in names:
            kind = columns[name]
            types, values = PLAIN.get(kind, ([None], None))
            type_ = NESTED[kind][0] if values is None else arrow_type(rng.choice(types))
            values = NESTED[kind][1] if values is None else values
            holes = rng.choice([0, 0, 0.3, 1])
            own = [None if rng.random() < holes else rng.choice(values) for _ in range(count)]
            if pa.types.is_dictionary(type_):
                arrays[name] = pa.array(own, pa.string()).dictionary_encode().cast(type_)
            else:
                arrays[name] = pa.array(own, type_)
        order = list(arrays)
        rng.shuffle(order)
        table = pa.table({name: arrays[name] for name in order})
        schemas.append(f"{number}: " + ", ".join(f"{field.name} {field.type}" for field in table.schema) + f"; {count} rows")
        path = place / "in" / f"{number}.{form}"
        if form == "parquet":
            pq.write_table(table, path)
            back = pq.read_table(path)
        else:
            with pyarrow.ipc.new_file(path, table.schema) as out:
                out.write_table(table)
            back = pyarrow.ipc.open_file(path).read_all()
        rows += back.to_pylist()
    return rows, len(sets) > 1, schemas


# What `NAME__is_null` has for a list whose inner nulls became 0.
NULL_INSIDE = 2


def plain(value: Any) -> Any:
    """A value of pyarrow as JSON has it; bytes are base64."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def is_same(wanted: Any, stored: Field) -> bool:
    """Whether a stored value is that of pyarrow."""
    found = stored.value()
    if stored.encoding == "json":
        return json.loads(found) == plain(wanted)
    if isinstance(found, np.ndarray):
        return isinstance(wanted, list) and found.tolist() == wanted
    if isinstance(wanted, bool):
        return found == int(wanted)
    return type(found) is type(wanted) and found == wanted


def problem(name: str, wanted: Any, sample: Sample) -> str | None:
    """What is wrong with a column of a sample."""
    if name not in sample:
        return f"{name} is not stored"
    mask = sample.get(f"{name}__is_null")
    stored = sample[name]
    if wanted is None:
        is_null = mask is not None and mask.value() == 1 or stored.encoding == "json" and stored.raw == b"null"
        return None if is_null else f"{name} is null in the source, and {stored} here"
    if mask is not None and mask.value() == NULL_INSIDE and isinstance(wanted, list) and None in wanted:
        wanted = [item or 0 for item in wanted]
    elif mask is not None and mask.value() != 0:
        return f"{name} is {wanted!r} in the source, and marked as a null"
    return None if is_same(wanted, stored) else f"{name} is {wanted!r} in the source, and {stored} here"


def check(place: Place, rng: random.Random) -> str:
    """Converts a folder of files that differ in types, columns and order."""
    form = rng.choice(["parquet", "parquet", "arrow"])
    kinds = [*PLAIN, *NESTED] if rng.random() < 0.4 else [*PLAIN]
    columns = {f"c{number}": rng.choice(kinds) for number in range(rng.randint(1, 5))}
    rows, differ, schemas = make_files(place, rng, columns, form)
    union = differ and rng.random() < 0.8 or rng.random() < 0.1
    args = ["--nulls=mask", "--compression=none", *(["--schema=union"] if union else [])]
    done = place.convert("in", "out", *args)
    shown = "\n".join(f"  {line}" for line in schemas) + f"\n  {columns}"
    require("usage-unknown-option" not in done.stderr, f"there is no such option\n{done}")
    if done.status != 0:
        require(done.refused, f"neither converted nor refused\n{shown}\n{done}")
        names = [name for name in columns if name in done.first_error]
        excused = [name for name in names if columns[name] in MAY_BE_REFUSED]
        allowed = differ and not union and (names or ".parquet" in done.first_error or ".arrow" in done.first_error)
        require(allowed or excused, f"refused, though there is a type for all files\n{shown}\n{done}")
        return "refused"
    samples = mds_samples(place / "out") if Path(place / "out" / "index.json").exists() else []
    require(len(samples) == len(rows), f"{len(samples)} samples of {len(rows)} rows\n{shown}\n{done}")
    present = [name for name in columns if any(name in row for row in rows)]
    for number, (row, sample) in enumerate(zip(rows, samples)):
        require(sample["id"].value() == row["id"], f"row {number} has the id {sample['id'].value()}\n{shown}\n{done}")
        wrong = [found for name in present if (found := problem(name, row.get(name), sample))]
        require(not wrong, f"row {number}: {'; '.join(wrong)}\n{shown}\n{done}")
    return "equal, union" if union else "equal"
