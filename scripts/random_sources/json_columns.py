"""JSON in tables: what is stored is what was written, with the order of its keys and the text of its numbers."""

from __future__ import annotations

import csv
import io
import json
import random

import pyarrow as pa
import pyarrow.parquet as pq

from random_sources.place import Place, require
from random_sources.readers import exact, mds_samples, shard_names, tar_samples

NUMBERS = [
    "0", "-0", "1", "-1", "17", "1.0", "1.50", "-0.0", "0.1", "1e5", "1E+5", "1e-7", "12345678901234567890",
    "123456789012345678901234567890", "9007199254740993", "9223372036854775808", "-9223372036854775809", "1e400", "1e-400", "5e-324",
    "3.14159265358979323846264338327950288",
]  # fmt: skip
KEYS = ["a", "b", "z", "role", "content", "B", "é", "日本", "a.b", "a b", "10", "9", "", "__proto__", "id", "true", 'q"q', "back\\slash", "\U0001f600"]
STRINGS = ["", "x", "null", "1e5", "é日本", "line\nbreak", 'quote"', "back\\slash", "tab\t", "a/b", "\U0001d54f", "\u2028", "\x7f", "NaN", "{}", " "]


def string_text(rng: random.Random, text: str) -> str:
    """A string as JSON, with one of the ways to escape it."""
    out = json.dumps(text, ensure_ascii=rng.random() < 0.5)
    return out.replace("/", "\\/") if rng.random() < 0.3 else out


def value_text(rng: random.Random, depth: int) -> str:
    """A random JSON value as text."""
    pick = rng.random()
    if depth > 0 and pick < 0.2:
        return object_text(rng, depth - 1)
    if depth > 0 and pick < 0.35:
        return "[" + ", ".join(value_text(rng, depth - 1) for _ in range(rng.randrange(4))) + "]"
    if pick < 0.6:
        return rng.choice(NUMBERS)
    if pick < 0.85:
        return string_text(rng, rng.choice(STRINGS))
    return rng.choice(["null", "true", "false"])


def object_text(rng: random.Random, depth: int) -> str:
    """A random object as text, its keys in a random order."""
    keys = rng.sample(KEYS, rng.choice([0, 1, 2, 2, 3, 5]))
    colon, comma = rng.choice([(":", ","), (": ", ", "), (" : ", " , ")])
    return "{" + comma.join(string_text(rng, key) + colon + value_text(rng, depth) for key in keys) + "}"


def alike_text(rng: random.Random, kinds: dict[str, str]) -> str:
    """An object with keys of given kinds, in a random order; now and then one is missing."""
    keys = [key for key in kinds if rng.random() < 0.9]
    rng.shuffle(keys)
    makers = {
        "whole": lambda: rng.choice(["0", "1", "-5", "9007199254740993"]),
        "float": lambda: rng.choice(["1.0", "1e5", "0.5", "1.50", "-0.0"]),
        "text": lambda: string_text(rng, rng.choice(STRINGS)),
        "list": lambda: "[" + ",".join(rng.choice(["1", "2"]) for _ in range(rng.randrange(3))) + "]",
        "object": lambda: rng.choice(["{}", '{"x": 1}', '{"x": 2, "w": 1}']),
    }
    return "{" + ", ".join(string_text(rng, key) + ": " + makers[kinds[key]]() for key in keys) + "}"


def columns_text(rng: random.Random, rows: int) -> list[str]:
    """The JSON texts of a column: objects that differ in everything, objects of the same keys, or lists of objects."""
    if rng.random() < 0.4:
        return [object_text(rng, 2) for _ in range(rows)]
    kinds = {key: rng.choice(["whole", "float", "text", "list", "object"]) for key in rng.sample(KEYS, rng.randint(1, 4))}
    if rng.random() < 0.6:
        return [alike_text(rng, kinds) for _ in range(rows)]
    return ["[" + ", ".join(alike_text(rng, kinds) for _ in range(rng.randrange(4))) + "]" for _ in range(rows)]


def check(place: Place, rng: random.Random) -> str:
    """Converts a table with a column of JSON."""
    form = rng.choice(["jsonl", "jsonl", "csv", "parquet"])
    texts: list[str | None] = [*columns_text(rng, rng.randint(1, 8))]
    named = rng.random() < 0.6
    if named and rng.random() < 0.2:
        texts[rng.randrange(len(texts))] = rng.choice([None, "null"])
    if form == "jsonl" and not any(texts):
        texts[0] = "null"  # JSON lines have the columns that some line has.
    half = rng.randrange(len(texts) + 1) if rng.random() < 0.3 else len(texts)
    (place / "in").mkdir()
    for name, first, last in (("0", 0, half), ("1", half, len(texts))):
        part = [(number, texts[number]) for number in range(first, last)]
        if not part:
            continue
        path = place / "in" / f"{name}.{form}"
        if form == "jsonl":
            lines = ['{"id": %d}\n' % n if text is None else '{"id": %d, "a": %s}\n' % (n, text) for n, text in part]
            path.write_text("".join(lines), encoding="utf-8")
        elif form == "csv":
            out = io.StringIO()
            writer = csv.writer(out)
            writer.writerow(["id", "a"])
            writer.writerows([n, "" if text is None else text] for n, text in part)
            path.write_text(out.getvalue(), encoding="utf-8", newline="")
        else:
            ids, values = [n for n, _ in part], [text for _, text in part]
            pq.write_table(pa.table({"id": ids, "a": pa.array(values, pa.string())}), path)
    target = rng.choice(["mds", "mds", "webdataset"])
    args = [f"--to={target}", "--compression=none"]
    if named:
        args += ["--column=id", "--column=a:json"] if target == "mds" else ["--column=cls=id", "--column=json:json=a"]
    done = place.convert("in", "out", *args)
    shown = "\n".join(f"  {number}: {text}" for number, text in enumerate(texts))
    if done.refused:
        # Only JSON lines are refused: where the values share no type and the encoding is not named, or where a number is
        # beyond float64.
        is_huge = "out of range" in done.first_error and any("1e400" in text for text in texts if text)
        require(form == "jsonl" and (is_huge or not named), f"refused, though every value is JSON\n{shown}\n{done}")
        names = ("`a", "a:", " a ", "a.", "a[", "jsonl line ")
        require(any(name in done.first_error for name in names), f"neither column nor line is named\n{shown}\n{done}")
        return "refused"
    require(done.status == 0, f"neither converted nor refused\n{shown}\n{done}")
    stored = stored_texts(place, target)
    require(len(stored) == len(texts), f"{len(stored)} samples of {len(texts)} rows\n{shown}\n{done}")
    for number, text in enumerate(texts):
        ours = stored[number]
        same = exact(ours) == exact("null" if text is None else text)
        require(same, f"row {number}\n  written {text}\n  stored  {ours}\n{done}")
    return "equal"


def stored_texts(place: Place, target: str) -> list[str]:
    """The stored texts of column `a`, by the number of their row."""
    if target == "mds":
        found = {sample["id"].value(): sample["a"].raw.decode() for sample in mds_samples(place / "out")}
        return [found[number] for number in sorted(found)]
    texts = []
    for name in shard_names(place / "out"):
        for _, fields in tar_samples(place / "out" / name):
            own = [data.decode() for extension, data in fields.items() if extension in ("json", "a.json", "a.txt")]
            require(len(own) == 1, f"{name} has a sample with {sorted(fields)}")
            texts.append(own[0])
    return texts
