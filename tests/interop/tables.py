"""Random tables with the values that the original writer has to be given to write the same samples.

A `Kind` pairs an Arrow type with an encoding: `make` draws one value, as a pair of what goes into the Arrow column
and what goes to the original writer.
"""

import io
import struct
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any, Callable

import numpy as np
import pyarrow as pa
from PIL import Image

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64"]
ARROW = {name: getattr(pa, name)() for name in INTEGERS + FLOATS}

# Blocks to draw characters from; surrogates have no UTF-8.
BLOCKS = [(0x20, 0x7E), (0x20, 0x7E), (0x61, 0x7A), (0x61, 0x7A), (0x00, 0x1F), (0x7F, 0xFF), (0x100, 0x24F), (0x400, 0x4FF),
          (0x2010, 0x2030), (0x3040, 0x30FF), (0xE000, 0xE010), (0xFFF0, 0xFFFF), (0x1F600, 0x1F64F), (0x10FFF0, 0x10FFFF)]  # fmt: skip


@dataclass
class Kind:
    """How one column is drawn. `default`: the encoding follows from the Arrow type and need not be named."""

    encoding: str
    arrow: pa.DataType
    make: Callable[[], tuple[Any, Any]]
    default: bool


@dataclass
class Table:
    """The same rows twice."""

    arrow: pa.Table
    columns: dict[str, str]
    samples: list[dict[str, Any]]
    named: bool
    order: list[str]

    def column_options(self):
        if not self.named:
            return []
        return [f"--column={quoted(name)}:{self.columns[name]}" for name in self.order]


def quoted(name):
    """A column name as `--column` takes it."""
    if any(c in name for c in ':="') or name in ('', '*'):
        return '"' + name.replace('"', '""') + '"'
    return name


def text(rng, longest=30, alphabet=None):
    count = rng.choice([0, 1, 2, 3, rng.randint(0, longest)])
    if alphabet:
        return "".join(rng.choice(alphabet) for _ in range(count))
    return "".join(chr(rng.randint(*rng.choice(BLOCKS))) for _ in range(count))


def integer(rng, dtype):
    info = np.iinfo(dtype)
    low, high = int(info.min), int(info.max)
    return rng.choice([0, 1, high, low, rng.randint(low, high), rng.randint(max(low, -100), 100)])


def floating(rng, dtype="float64"):
    """A float that the dtype holds exactly, as a Python float."""
    value = rng.choice([
        0.0, -0.0, 1.0, 0.1, 1e16, 1e-5, 1e22, 123456789.0, float("inf"), float("-inf"), float("nan"),
        rng.uniform(-1, 1), rng.uniform(-1e6, 1e6), rng.gauss(0, 1) * 10.0 ** rng.randint(-300, 300), float(rng.randint(-1000, 1000)),
        struct.unpack("<d", struct.pack("<q", rng.randint(-(2**62), 2**62)))[0],
    ])  # fmt: skip
    with np.errstate(over="ignore"):
        return float(np.dtype(dtype).type(value))


def same(value):
    return value, value


def number_kind(rng):
    dtype = rng.choice(INTEGERS + FLOATS)
    scalar = np.dtype(dtype).type
    if dtype in INTEGERS:
        return Kind(dtype, ARROW[dtype], lambda: (x := integer(rng, dtype), scalar(x)), True)
    return Kind(dtype, ARROW[dtype], lambda: (x := scalar(floating(rng, dtype)), x), True)


def int_kind(rng):
    """`int` from any integer that fits."""
    dtype = rng.choice([d for d in INTEGERS if d != "uint64"])
    return Kind("int", ARROW[dtype], lambda: same(integer(rng, dtype)), False)


def str_kind(rng):
    return Kind("str", rng.choice([pa.string(), pa.large_string()]), lambda: same(text(rng)), True)


def bytes_kind(rng):
    arrow = rng.choice([pa.binary(), pa.large_binary()])
    return Kind("bytes", arrow, lambda: same(rng.randbytes(rng.choice([0, 1, rng.randint(0, 60)]))), True)


def bool_kind(rng):
    return Kind("uint8", pa.bool_(), lambda: (x := rng.random() < 0.5, np.uint8(x)), True)


def str_int_kind(rng):
    dtype = rng.choice(INTEGERS)
    return Kind("str_int", ARROW[dtype], lambda: same(integer(rng, dtype)), False)


def str_float_kind(rng):
    dtype = rng.choice(FLOATS)
    return Kind("str_float", ARROW[dtype], lambda: same(floating(rng, dtype)), False)


def decimal_kind(rng):
    precision = rng.choice([1, 5, 9, 18, 30, 38])
    scale = rng.randint(0, precision)

    def make():
        digits = rng.choice([0, 1, 10**precision - 1, rng.randint(0, 10**precision - 1), rng.randint(0, 99) % 10**precision])
        sign = 1 if digits and rng.random() < 0.4 else 0
        return same(Decimal((sign, tuple(map(int, str(digits))), -scale)))

    return Kind("str_decimal", pa.decimal128(precision, scale), make, True)


def json_type(rng, depth=0):
    """An Arrow type for JSON, and a function that draws a value of it."""
    shape = rng.choice(["str", "int", "float", "bool"] + (["list", "struct", "map"] if depth < 3 else []))
    if shape == "str":
        return pa.string(), lambda: text(rng, 10)
    if shape == "int":
        dtype = rng.choice(INTEGERS)
        return ARROW[dtype], lambda: integer(rng, dtype)
    if shape == "float":
        return pa.float64(), lambda: floating(rng)
    if shape == "bool":
        return pa.bool_(), lambda: rng.random() < 0.5
    item, draw = json_type(rng, depth + 1)

    def maybe():
        return None if rng.random() < 0.1 else draw()

    if shape == "list":
        return pa.list_(item), lambda: [maybe() for _ in range(rng.randint(0, 4))]
    if shape == "map":
        return pa.map_(pa.string(), item), lambda: {text(rng, 5) + str(n): maybe() for n in range(rng.randint(0, 3))}
    return json_struct(rng, depth)


def json_struct(rng, depth=0):
    fields = {}
    while len(fields) < rng.randint(1, 4):
        fields[text(rng, 6) or "k"] = json_type(rng, depth + 1)
    arrow = pa.struct([(name, type_) for name, (type_, _) in fields.items()])

    def draw():
        return {name: None if rng.random() < 0.1 else make() for name, (_, make) in fields.items()}

    return arrow, draw


def to_arrow(value, type_):
    """Maps go to Arrow as lists of pairs."""
    if value is None:
        return None
    if pa.types.is_map(type_):
        return [(key, to_arrow(item, type_.item_type)) for key, item in value.items()]
    if pa.types.is_struct(type_):
        return {field.name: to_arrow(value[field.name], field.type) for field in type_}
    if pa.types.is_list(type_):
        return [to_arrow(item, type_.value_type) for item in value]
    return value


def json_kind(rng):
    """Structs, maps and lists of such: `json` in the order of their fields."""
    if rng.random() < 0.5:
        arrow, draw = json_struct(rng)
    else:
        item, make = rng.choice([(pa.string(), lambda: text(rng, 10)), json_struct(rng, 1)])
        if rng.random() < 0.5:
            arrow, draw = pa.list_(item), lambda: [make() for _ in range(rng.randint(0, 4))]
        else:
            arrow, draw = pa.map_(pa.string(), item), lambda: {f"{n}{text(rng, 5)}": make() for n in range(rng.randint(0, 3))}
    return Kind("json", arrow, lambda: (to_arrow(x := draw(), arrow), x), True)


def json_text_kind(rng):
    """JSON text in a string column is stored as it is."""
    texts = ['{"b": 1,  "a":[2.50,"é"]}', "null", "[]", '"\\ud83d\\ude00"', "12345678901234567890123", '{"b": NaN}']
    return Kind("json", pa.string(), lambda: (x := rng.choice(texts), x.encode()), False)


def array_dtype(rng):
    dtype = rng.choice(INTEGERS + FLOATS)

    def draw(count):
        if dtype in INTEGERS:
            return np.array([integer(rng, dtype) for _ in range(count)], dtype)
        return np.array([floating(rng, dtype) for _ in range(count)], dtype)

    return dtype, draw


def list_array_kind(rng):
    """Lists of numbers: an array of one dimension."""
    dtype, draw = array_dtype(rng)
    arrow = rng.choice([pa.list_, pa.large_list])(ARROW[dtype])
    encoding = rng.choice([f"ndarray:{dtype}", f"ndarray:{dtype}", "ndarray"])
    longest = rng.choice([3, 30, 300])
    return Kind(encoding, arrow, lambda: (x := list(draw(rng.randint(1, longest))), np.array(x, dtype)), encoding != "ndarray")


def fixed_array_kind(rng):
    """Fixed-size lists, nested or not: an array whose shape is known."""
    dtype, draw = array_dtype(rng)
    shape = tuple(rng.randint(1, 4) for _ in range(rng.choice([1, 1, 2, 3])))
    arrow = ARROW[dtype]
    for dim in reversed(shape):
        arrow = pa.list_(arrow, dim)
    static = f"ndarray:{dtype}:{','.join(map(str, shape))}"
    encoding = rng.choice([static, static, f"ndarray:{dtype}", "ndarray"])

    def nested(array):
        return list(array) if array.ndim == 1 else [nested(item) for item in array]

    def make():
        array = draw(int(np.prod(shape))).reshape(shape)
        return nested(array), array

    return Kind(encoding, arrow, make, encoding == static)


@cache
def image_file(kind, seed):
    image = Image.frombytes("L", (4, 3), bytes((i * seed * 11) % 256 for i in range(12)))
    out = io.BytesIO()
    image.save(out, format=kind)
    return out.getvalue()


def image_kind(rng):
    """Image files in binary columns are stored as they are."""
    kind = rng.choice(["jpeg", "png"])
    return Kind(kind, pa.binary(), lambda: same(image_file(kind, rng.randint(0, 9))), False)


def pil_kind(rng):
    def make():
        width, height = rng.randint(1, 5), rng.randint(1, 5)
        return same(struct.pack("<III", width, height, 1) + b"L" + rng.randbytes(width * height))

    return Kind("pil", pa.binary(), make, False)


def pkl_kind(rng):
    return Kind("pkl", pa.binary(), lambda: same(b"\x80\x04K" + rng.randbytes(1) + b"."), False)


def jpeg_array_kind(rng):
    encoding = rng.choice(["jpeg_array", "jpegarray"])
    return Kind(encoding, pa.list_(pa.binary()), lambda: same([image_file("jpeg", rng.randint(0, 9)) for _ in range(rng.randint(1, 4))]), False)


def image_list_kind(rng):
    """The original only takes PIL images here and encodes them again; bytes of the whole list bypass it."""
    kind = rng.choice(["jpeg", "png"])

    def make():
        items = [image_file(kind, rng.randint(0, 9)) for _ in range(rng.randint(0, 3))]
        framed = struct.pack(f"<{len(items) + 2}I", 0, len(items), *map(len, items)) + b"".join(items)
        return items, framed

    return Kind(f"list[{kind}]", pa.list_(pa.binary()), make, False)


MDS_KINDS = [number_kind, number_kind, number_kind, int_kind, str_kind, str_kind, bytes_kind, bool_kind, str_int_kind,
             str_float_kind, decimal_kind, json_kind, json_kind, json_text_kind, list_array_kind, fixed_array_kind, image_kind,
             pil_kind, pkl_kind, jpeg_array_kind, image_list_kind]  # fmt: skip


def text_kind(rng, alphabet):
    """A column of the text formats: str, int or float."""
    encoding = rng.choice(["str", "int", "float"])
    if encoding == "str":
        return Kind("str", pa.string(), lambda: same(text(rng, alphabet=alphabet)), True)
    if encoding == "int":
        dtype = rng.choice(INTEGERS)
        return Kind("int", ARROW[dtype], lambda: same(integer(rng, dtype)), True)
    dtype = rng.choice(FLOATS)
    # Half and single precision are widened, as Python widens them.
    return Kind("float", ARROW[dtype], lambda: (x := floating(rng, dtype), float(x)), True)


def names(rng, count, forbidden=""):
    """Column names of every sort, and ones that only case tells apart. NUL ends an argument."""
    out = []
    while len(out) < count:
        name = rng.choice([
            rng.choice("abcdefghijXYZ"), rng.choice(["Label", "label", "LABEL", "select", "a.b", "a b", "1", "é", "名前", "\U0001d54f",
            "\uff5e", "it's", "a:b", "a=b", "__key__", "b\\c", "(x)", "*", "a,b", "$1", "?", "a\tb"]), text(rng, 8),
        ])  # fmt: skip
        if name and name not in out and not any(c in name for c in '\0\n\r"' + forbidden):
            out.append(name)
    return out


def table(rng, format_, forbidden=""):
    """A random table of up to 8 columns and 300 rows."""
    count = rng.randint(1, 8)
    order = names(rng, count, forbidden)
    if format_ == "mds":
        kinds = {name: rng.choice(MDS_KINDS)(rng) for name in order}
    else:
        alphabet = None if format_ == "json" else [c for c in map(chr, [*range(1, 0x17F), 0x3042, 0x1F600]) if c not in forbidden + "\n"]
        kinds = {name: text_kind(rng, alphabet) for name in order}
    rows = rng.choice([0, 1, 2, 3, rng.randint(0, 30), rng.randint(0, 300)])
    pairs = {name: [kind.make() for _ in range(rows)] for name, kind in kinds.items()}
    arrays = {name: pa.array([ours for ours, _ in pairs[name]], kinds[name].arrow) for name in order}
    samples = [{name: pairs[name][row][1] for name in order} for row in range(rows)]
    named = not all(kind.default for kind in kinds.values()) or rng.random() < 0.5
    columns = {name: kind.encoding for name, kind in kinds.items()}
    return Table(pa.table(arrays), columns, samples, named, rng.sample(order, count))
