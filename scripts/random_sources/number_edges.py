"""Numbers at the edges of their types: equal values, or a refusal that names the column; never another value."""

from __future__ import annotations

import csv
import io
import json
import math
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from random_sources.place import Place, require
from random_sources.readers import mds_samples

SMALL = ["0", "1", "-1", "5", "127", "128", "255", "256", "-128", "-129", "65535", "65536", "2147483647", "2147483648", "-2147483649"]
MIDDLE = [str(sign * (2**power + by)) for power in (24, 53, 62) for by in (-1, 0, 1) for sign in (1, -1)]
EDGES = [str(number) for number in (2**63 - 1, 2**63, 2**64 - 1, -(2**63), 2**64, -(2**63) - 1)]
BEYOND = [str(10**19), str(10**30), str(2**64 + 2**12), str(-(10**25))]
FLOATS = [
    "0.5", "-0.0", "0.1", "1.5", "1.0", "1e5", "1E+5", "-2.5e-3", "5e-324", "2.2250738585072011e-308", "1.7976931348623157e308", "1e16",
    "9007199254740993.0", "9007199254740993.5", "1e22", "1e23", "123456789012345680000.0", "0.30000000000000004",
]  # fmt: skip
HUGE = ["1e309", "-1e400", "1e99999", "1.8e308"]
WORDS = ["nan", "inf", "-inf"]


def texts(rng: random.Random, words: bool) -> list[str]:
    """Numbers of some profiles: small ones, edges, fractions; with words where the format has them."""
    profiles = [SMALL, MIDDLE, MIDDLE, FLOATS]
    if rng.random() < 0.25:
        profiles += [EDGES, EDGES]
    if rng.random() < 0.1:
        profiles.append(BEYOND)
    if rng.random() < 0.25:
        profiles.append(HUGE)
    if words and rng.random() < 0.3:
        profiles.append(WORDS)
    chosen = rng.sample(profiles, rng.randint(1, 2))
    return [rng.choice(rng.choice(chosen)) for _ in range(rng.randint(1, 6))]


def is_whole(text: str) -> bool:
    return text.lstrip("-").isdigit()


def same_number(text: str, stored: Any) -> bool:
    """Whether a stored value is the number that the source has as text.

    A whole number has to be exact. Any other one is the nearest float64, which is what Python reads, with its sign.
    """
    if isinstance(stored, str):
        return stored == text
    if isinstance(stored, bool) or not isinstance(stored, (int, float, Decimal)):
        return False
    if is_whole(text):
        return not (isinstance(stored, float) and not math.isfinite(stored)) and Decimal(stored) == Decimal(text)
    if isinstance(stored, int):
        return Decimal(stored) == Decimal(text) and not (stored == 0 and text.startswith("-"))
    wanted = float(text)
    if math.isinf(wanted):
        return "inf" in text and stored == wanted
    return same_float(wanted, float(stored))


def same_float(wanted: float, stored: float) -> bool:
    if math.isnan(wanted):
        return math.isnan(stored)
    return wanted == stored and math.copysign(1, wanted) == math.copysign(1, stored)


def same_value(wanted: Any, stored: Any) -> bool:
    """Whether a stored number is that of a typed source: integers exactly, floats with their sign."""
    if isinstance(wanted, int):
        return isinstance(stored, (int, float)) and math.isfinite(stored) and int(stored) == wanted and stored == int(stored)
    if isinstance(stored, int):
        return wanted == stored and not (stored == 0 and math.copysign(1, wanted) < 0)
    return isinstance(stored, float) and same_float(wanted, stored)


def write_csv(path: Path, rows: list[tuple[int, str]]) -> None:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["id", "n"])
    writer.writerows(rows)
    path.write_text(out.getvalue(), newline="")


def check(place: Place, rng: random.Random) -> str:
    """Converts a folder of one to three files with a column of numbers."""
    return rng.choice([check_text, check_text, check_typed])(place, rng)


def options(rng: random.Random) -> list[str]:
    """Options of the conversion."""
    args = ["--compression=none"]
    if rng.random() < 0.3:
        args += ["--column=id", f"--column=n:{rng.choice(['float64', 'int64', 'uint64', 'int', 'int32', 'uint8'])}"]
    return args


def stored_numbers(place: Place) -> dict[int, Any]:
    """The stored values of column `n` by that of column `id`."""
    return {sample["id"].value(): sample["n"].value() for sample in mds_samples(place / "out")}


def check_text(place: Place, rng: random.Random) -> str:
    """CSV and JSON lines: the source has the text of numbers."""
    form = rng.choice(["csv", "jsonl"])
    as_list = form == "jsonl" and rng.random() < 0.3
    rows: list[list[str]] = []
    (place / "in").mkdir()
    for file in range(rng.randint(1, 3)):
        own = texts(rng, words=form == "csv")
        first = len(rows)
        if form == "csv":
            rows += [[text] for text in own]
            write_csv(place / "in" / f"{file}.csv", [(first + at, text) for at, text in enumerate(own)])
            continue
        values = [[text] if not as_list else [text, rng.choice(own)] for text in own]
        rows += values
        lines = [
            '{"id": %d, "n": %s}\n' % (first + at, "[" + ", ".join(value) + "]" if as_list else value[0])
            for at, value in enumerate(values)
        ]
        (place / "in" / f"{file}.jsonl").write_text("".join(lines))
    args = options(rng)
    done = place.convert("in", "out", *args)
    shown = "\n".join(f"  {number}: {', '.join(row)}" for number, row in enumerate(rows))
    if done.status != 0:
        return refusal(done, shown)
    stored = stored_numbers(place)
    require(len(stored) == len(rows), f"{len(stored)} samples of {len(rows)} rows\n{shown}\n{done}")
    for number, row in enumerate(rows):
        found = stored[number]
        if as_list and isinstance(found, str):
            # A list that is stored as JSON: its numbers by their text.
            found = json.loads(found, parse_int=str, parse_float=str)
        found = list(found) if as_list else [found]
        found = [value.item() if hasattr(value, "item") else value for value in found]
        equal = len(found) == len(row) and all(map(same_number, row, found))
        require(equal, f"row {number}\n  written {row}\n  stored  {found}\n{shown}\n{done}")
    return "equal"


def refusal(done: Any, shown: str) -> str:
    require(done.refused, f"neither converted nor refused\n{shown}\n{done}")
    named = any(word in done.first_error for word in ("n:", "`n`", " n ", "n[]", "column n", "line ", "row ", ".n"))
    require(named, f"the refusal names neither column nor row\n{shown}\n{done}")
    return "refused"


TYPES = {
    "int8": (-128, 127), "int16": (-(2**15), 2**15 - 1), "int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1),
    "uint8": (0, 255), "uint16": (0, 2**16 - 1), "uint32": (0, 2**32 - 1), "uint64": (0, 2**64 - 1),
}  # fmt: skip


def typed(rng: random.Random, name: str) -> list[Any]:
    """Values of an Arrow type, most of them at its edges."""
    count = rng.randint(1, 5)
    if name in TYPES:
        low, high = TYPES[name]
        edges = [v for v in (low, high, 0, 1, 2**24 + 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1) if low <= v <= high]
        return [rng.choice(edges) for _ in range(count)]
    floats = [0.0, -0.0, 0.5, 1.0, float("nan"), float("inf"), float("-inf"), 5e-324, 1.7976931348623157e308, 0.1, 2.0**53, 1e22]
    values = [rng.choice(floats) for _ in range(count)]
    if name == "float32":
        return pa.array(values, pa.float64()).cast(pa.float32(), safe=False).to_pylist()
    return values


def check_typed(place: Place, rng: random.Random) -> str:
    """Parquet and Arrow: the files have columns of types that differ."""
    form = rng.choice(["parquet", "arrow"])
    names = [rng.choice([*TYPES, "float32", "float64"]) for _ in range(rng.randint(1, 3))]
    rows: list[Any] = []
    (place / "in").mkdir()
    for file, name in enumerate(names):
        own = typed(rng, name)
        columns = {"id": pa.array(range(len(rows), len(rows) + len(own)), pa.int64()), "n": pa.array(own, getattr(pa, name)())}
        rows += own
        path = place / "in" / f"{file}.{form}"
        if form == "parquet":
            pq.write_table(pa.table(columns), path)
        else:
            with pyarrow.ipc.new_file(path, pa.table(columns).schema) as out:
                out.write_table(pa.table(columns))
    args = options(rng)
    done = place.convert("in", "out", *args)
    shown = f"  types {names}\n" + "\n".join(f"  {number}: {value!r}" for number, value in enumerate(rows))
    if done.status != 0:
        require(len(set(names)) > 1 or "--column=id" in args, f"one type is refused\n{shown}\n{done}")
        return refusal(done, shown)
    stored = stored_numbers(place)
    require(len(stored) == len(rows), f"{len(stored)} samples of {len(rows)} rows\n{shown}\n{done}")
    for number, value in enumerate(rows):
        found = stored[number]
        require(same_value(value, found), f"row {number}: {value!r} is stored as {found!r}\n{shown}\n{done}")
    return "equal"
