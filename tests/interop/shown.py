"""Values as `shardmill cat` prints them, compared with what the original reader returned.

The expectation has the form of the fixtures' `expected.jsonl`, described in their README.
"""

import json
import math
from base64 import b64decode
from decimal import Decimal

import numpy as np
from peer import b64, plain


def same_float(found, text):
    """A float of `cat`: a JSON number, or a string for what JSON has no number for."""
    value, expected = float(found), float(text)
    return math.isnan(value) and math.isnan(expected) or value.hex() == expected.hex()


def same_number(found, tag):
    dtype = np.dtype(tag["number"])
    if dtype.kind in "ui":
        return found == int(tag["text"])
    expected = np.frombuffer(b64decode(tag["bytes"]), dtype)[0]
    with np.errstate(over="ignore"):
        value = dtype.type(float(found))
    return np.isnan(value) and np.isnan(expected) or value.tobytes() == expected.tobytes()


def flatten(data):
    return [leaf for item in data for leaf in flatten(item)] if isinstance(data, list) else [data]


def same_array(found, tag):
    data = np.frombuffer(b64decode(tag["data"]), tag["dtype"])
    leaves = flatten(found["data"])
    if found["dtype"] != tag["dtype"] or found["shape"] != tag["shape"] or len(leaves) != data.size:
        return False
    numbers = ({"number": tag["dtype"], "text": str(x), "bytes": b64(x.tobytes())} for x in data)
    return all(same_number(leaf, number) for leaf, number in zip(leaves, numbers))


def same_image(found, tag):
    if tag["kind"] != "pil":
        return b64decode(found["base64"]) == b64decode(tag["bytes"])
    raw = b64decode(tag["raw"])
    mode = tag["mode"].encode()
    stored = np.array([*tag["size"], len(mode)], "<u4").tobytes() + mode + raw
    return b64decode(found["base64"]) in (raw, stored)


def strict(value):
    """The JSON of Python with what JSON has no numbers for as strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, list):
        return [strict(item) for item in value]
    if isinstance(value, dict):
        return {key: strict(item) for key, item in value.items()}
    return value


def same(found, tag):
    """Whether a value as `cat` prints it is the one that the original reader returned."""
    kind = next(iter(tag))
    match kind:
        case "bytes":
            return found == {"bytes": len(b64decode(tag["bytes"])), "base64": tag["bytes"]}
        case "str":
            return found == tag["str"]
        case "decimal":
            # As stored; only the bypass stores a spelling of another than Python.
            return str(Decimal(found)) == tag["decimal"]
        case "int":
            return not isinstance(found, bool) and int(found) == int(tag["int"])
        case "bool":
            return found is tag["bool"]
        case "float":
            return same_float(found, tag["float"])
        case "number":
            return same_number(found, tag)
        case "json":
            return plain(strict(found)) == plain(strict(json.loads(tag["json"])))
        case "pkl":
            return found == {"pickle_bytes": len(b64decode(tag["pkl"])), "base64": tag["pkl"]}
        case "ndarray":
            return same_array(found, tag["ndarray"])
        case "image":
            return same_image(found, tag["image"])
        case "images":
            return len(found) == len(tag["images"]) and all(map(same_image, found, tag["images"]))
    raise AssertionError(kind)


def tag(value, encoding):
    """A decoded value in the form of `expected.jsonl`; only what the encodings of `test_mutants.py` give."""
    if encoding == "json":
        return {"json": json.dumps(value)}
    if isinstance(value, np.ndarray):
        return {"ndarray": {"dtype": value.dtype.name, "shape": list(map(int, value.shape)), "data": b64(value.tobytes())}}
    if isinstance(value, list):
        return {"images": [{"kind": "jpeg", "bytes": b64(image)} for image in value]}
    kinds = {str: "str", int: "int", float: "float"}
    kind = kinds.get(type(value), "decimal")
    return {kind: repr(value) if kind == "float" else str(value)}
