"""Writes the vectors of this folder: what CPython and mosaicml-streaming make of texts and bytes.

    python3 generate.py text      floats.txt, decimals.txt, strings.txt, numbers.txt, json.txt (CPython 3.11, no packages)
    python3 generate.py values    values.txt (mosaicml-streaming 0.13.0, Pillow 13.0.0, numpy 2)

The seed is fixed; a new case is a new line at the end of what makes it.
"""

import json
import math
import random
import struct
import sys
from decimal import Decimal
from pathlib import Path

HERE = Path(__file__).parent
MAX_DIGITS = 4300


def save(name, command, columns, lines):
    text = f"# python3 generate.py {command}\n# {columns}\n" + "".join(line + "\n" for line in lines)
    (HERE / name).write_text(text, encoding="ascii")
    print(name, len(lines), "lines", len(text), "bytes")


def bits(value):
    return struct.pack(">d", value).hex()


def floats(rng):
    values = [0.0, -0.0, 1.0, -1.0, 0.1, 0.2, 0.3, 1 / 3, 100.0, 123456789.0, 1.5e300, 5e-324, 2.2250738585072014e-308]
    values += [2.225073858507201e-308, 1.7976931348623157e308, 9007199254740993.0, 1.2345678901234568e17, 2.0**53, 2.0**-1074]
    for edge in (1e16, 1e-4, 1e-5, 1e15, 1e17, 1e22, 1e23, 1e100, 1e-100, 1e99, 1e-99, 1e-9, 1e-10, 1e9, 1e10):
        values += [edge, math.nextafter(edge, 0), math.nextafter(edge, math.inf), -edge]
    values += [10.0**e for e in range(-324, 309, 7)] + [2.0**e for e in range(-1074, 1024, 23)]
    values += [struct.unpack("<f", struct.pack("<f", x))[0] for x in (0.1, 1e-5, 3.4e38, 1e-45, 16777217.0)]
    values += [float("inf"), float("-inf"), float("nan")]
    # Halfway between two shortest texts.
    values += [652476908310524.25, -652476908310524.75, 2.0**54 + 20, 5e22 + 2**23]
    values += [rng.randrange(10**14, 10**15) + rng.choice((0.25, 0.75)) for _ in range(100)]
    while len(values) < 2000:
        kind = len(values) % 4
        if kind == 0:
            value = struct.unpack("<d", rng.randbytes(8))[0]
        elif kind == 1:
            value = rng.choice((-1, 1)) * rng.random() * 10.0 ** rng.randint(-8, 20)
        elif kind == 2:
            value = rng.randint(-(10**6), 10**6) / 10 ** rng.randint(0, 12)
        else:
            value = struct.unpack("<d", struct.pack("<Q", rng.getrandbits(52)))[0]
        if not math.isnan(value):
            values.append(value)
    return [f"{bits(value)} {value!s}" for value in values]


def decimals(rng):
    cases = [(0, "0", scale) for scale in (-3, -1, 0, 1, 5, 6, 7, 9)] + [(1, "0", 2), (0, "150", 2), (0, "1", -5), (0, "123", 9), (0, "123", 8)]
    cases += [(0, "1", scale) for scale in (5, 6, 7, 8, 2147483647, -2147483647, 38, 76)] + [(1, "9" * 38, 10), (0, "9" * 76, 0)]
    while len(cases) < 500:
        digits = str(rng.getrandbits(rng.choice((4, 20, 64, 127, 255))))
        cases.append((rng.getrandbits(1), digits, rng.randint(-5, 10) if len(cases) % 2 else rng.randint(-80, 80)))
    lines = []
    for sign, digits, scale in cases:
        number = Decimal((sign, tuple(map(int, digits)), -scale))
        lines.append(f"{sign} {digits} {scale} {number}")
    return lines


def strings(rng):
    cases = ["", "plain", '"\\/', "".join(map(chr, range(0x20))), "\x7e\x7f\x80\x81", "\u00e9\u00ff\u0100", "\u2028\u2029\ufeff"]
    cases += ["\ud7ff\ue000\uffff", "\U00010000\U0001f600\U0010ffff", "a" * 40 + '"' + "b" * 40, "x" * 31 + "\u00e9" + "y" * 33]
    cases += ["a" * n + c + "b" * m for c in '"\\\n\x1f\x7f\u00e9' for n in (0, 6, 7, 8, 9, 15) for m in (0, 7, 8)]
    alphabet = "ab \"\\\n\t\r\b\f\x00\x1f\x7f\u0080\u00e9\u4e2d\U0001f600"
    while len(cases) < 400:
        cases.append("".join(rng.choice(alphabet) for _ in range(rng.randint(1, 20))))
    return [f"{text.encode().hex() or '-'} {json.dumps(text)}" for text in cases]


def verdict(function, text):
    try:
        return function(text)
    except Exception:
        return None


def numbers(rng):
    """Texts without blanks, `_` and non-ASCII digits, and what CPython makes of them."""
    cases = ["", "0", "-0", "+5", "007", "5.", ".5", ".", "-", "+", "+-1", "1e5", "1E+5", "1e-05", "1e", "e5", "1e+", ".e1", "0x10", "1.2.3", "1e5.0"]
    cases += ["inf", "-inf", "+Infinity", "infinit", "nan", "-NaN", "NaN12", "sNaN", "-sNaN007", "nan1x", "True", "None", "1L", "1j", "--1"]
    cases += ["9" * 400, "1" + "0" * 310, "0." + "0" * 330 + "1", "1e999", "-1e999", "1e-999", "4.9e-324", "2.4703282292062327e-324", "2.4703282292062328e-324"]
    for exponent in ("999999999999999999", "1000000000000000000", "1000000000000000001", "99999999999999999999", "9" * 60):
        for mantissa in ("1", "0", "10", "0.1", "0.10", "00.1", "0.00", "11111"):
            cases += [f"{mantissa}e{exponent}", f"{mantissa}e-{exponent}"]
    for exponent in ("1999999999999999996", "1999999999999999997", "1999999999999999998"):
        cases += [f"{mantissa}E-{exponent}" for mantissa in ("1", "0", "1.0", "0.0", "12345")]
    while len(cases) < 500:
        cases.append("".join(rng.choice("0123456789..eE+-") for _ in range(rng.randint(1, 8))))
    lines = []
    for text in cases:
        integer, number, decimal = (verdict(kind, text) is not None for kind in (int, float, Decimal))
        value = bits(float(text)) if number and not math.isnan(float(text)) else "nan" if number else "-"
        lines.append(f"{text or '-empty-'} {int(integer)} {value} {int(decimal)}")
    return lines


SEEDS = [
    '{"a": [1, 2.5, null, "\\u00e9"], "b": NaN, "c": {"d": -Infinity}}',
    '[true, false, null, -0, 1e5, 0.1E-10, "x\\n\\"y\\"", [], {}, [[]]]',
    '  {"k" : "\\ud83d\\ude00\\/\\b" , "l":\t[ ]\r\n}  ',
    '"\u00e9\u4e2d\U0001f600 \\u0000"',
    "-12.50e+3",
    '[{"a": {}}, {"b": [{}]}, Infinity]',
]


def json_texts(rng):
    cases = [seed.encode() for seed in SEEDS]
    cases += [b"", b" ", b"1", b"01", b"-", b"-NaN", b"-Infinity", b"+1", b".5", b"1.", b"1.e5", b"1e", b"nul", b"nulll", b"[1,]", b"{,}", b"[,]"]
    cases += [b'{"a":1,}', b'{"a"}', b'{"a":}', b"{1:2}", b"[1 2]", b"[1]x", b"]", b"}", b"[}", b"{]", b'"', b'"\\', b'"\\"', b'"\\x"', b'"\\u12"', b'"\\u12g4"']
    cases += [b'"\x00"', b'"\x1f"', b'"\x7f"', b'"\xff"', b'"\xed\xa0\x80"', b"\xef\xbb\xbf1", b"\x0b1", b"\xc2\xa01", b'"\\ud800"', b"/*c*/1", b"'a'", b"{a:1}", b"TRUE", b"nan"]
    pieces = [b"[", b"]", b"{", b"}", b",", b":", b'"', b"\\", b"1", b"0", b"-", b".", b"e", b" ", b"NaN", b"null", b"\\u00", b"\xc3", b"\n", b'"a":']

    def tree(depth):
        kind = rng.randint(0, 9 if depth else 6)
        if kind < 7:
            return (None, True, rng.random() * 1e20, rng.randint(-99, 99), "a\n\u00e9\U0001f600", float("nan"), -float("inf"))[kind]
        if kind == 7:
            return {rng.choice('ab"'): tree(depth - 1) for _ in range(rng.randint(0, 3))}
        return [tree(depth - 1) for _ in range(rng.randint(0, 3))]

    while len(cases) < 250:
        text = json.dumps([tree(3)], indent=rng.choice((None, None, 1)), ensure_ascii=rng.random() < 0.5)
        cases += [text.encode()] if len(text) < 100 else []
    while len(cases) < 600:
        text = bytearray(rng.choice(SEEDS).encode())
        for _ in range(rng.randint(1, 3)):
            at = rng.randint(0, len(text))
            action = rng.randint(0, 3)
            if action == 0:
                text[at:at] = rng.choice(pieces)
            elif action == 1:
                del text[at : at + rng.randint(1, 3)]
            elif action == 2:
                text[at : at + 1] = rng.choice(pieces)
            else:
                del text[at:]
        cases.append(bytes(text))
    return [f"{text.hex() or '-'} {int(verdict(lambda t: (json.loads(t.decode()),), text) is not None)}" for text in cases]


def values(rng, count):
    """Random and damaged values of every encoding, and whether mosaicml-streaming decodes them."""
    import io
    import resource

    import numpy as np
    from PIL import Image
    from streaming.base.format.mds.encodings import mds_decode, mds_encode

    dtypes = "uint8 int8 uint16 int16 float16 uint32 int32 float32 uint64 int64 float64".split()

    def array(dtype=None, shape=None):
        shape = shape or tuple(rng.choice((1, 2, 3, 5)) for _ in range(rng.randint(1, 4)))
        size = math.prod(shape) * np.dtype(dtype or "u1").itemsize
        return np.frombuffer(rng.randbytes(size), dtype or "u1").reshape(shape)

    def image(mode=None):
        mode = mode or rng.choice("1 L P RGB RGBA CMYK YCbCr LAB HSV I F LA PA RGBX RGBa La I;16 I;16L I;16B I;16N".split())
        width, height = rng.randint(1, 5), rng.randint(1, 3)
        return Image.frombytes(mode, (width, height), rng.randbytes(width * height * 4))

    def file(format):
        out = io.BytesIO()
        image("L").save(out, format)
        return out.getvalue()

    def value(encoding):
        parts = encoding.split(":")
        if parts[0] == "ndarray":
            dtype = parts[1] if len(parts) > 1 else rng.choice(dtypes)
            return array(dtype, tuple(map(int, parts[2].split(","))) if len(parts) > 2 else None)
        if encoding in dtypes:
            return rng.randbytes(np.dtype(encoding).itemsize)
        makers = {
            "bytes": lambda: rng.randbytes(rng.randint(0, 9)),
            "str": lambda: rng.choice(("", "hi", "\u00e9\u4e2d", "\U0001f600")),
            "int": lambda: rng.randint(-(2**63), 2**63 - 1),
            "str_int": lambda: rng.randint(-(10**30), 10**30),
            "str_float": lambda: rng.choice((rng.random(), 1e300 * rng.random(), float("inf"), float("nan"))),
            "str_decimal": lambda: Decimal(rng.randint(-(10**20), 10**20)).scaleb(rng.randint(-30, 10)),
            "pil": image,
            "jpeg": lambda: file("JPEG"),
            "png": lambda: file("PNG"),
            "jpeg_array": lambda: [file("JPEG") for _ in range(rng.randint(1, 2))],
            "jpegarray": lambda: [file("JPEG")],
            "list[pil]": lambda: [image() for _ in range(rng.randint(0, 3))],
            "list[jpeg]": lambda: [image("L") for _ in range(rng.randint(0, 1))],
            "list[png]": lambda: [image("L") for _ in range(rng.randint(0, 2))],
            "json": lambda: {"a": [1, 2.5, None, "\u00e9"], "n": rng.random(), "x": float("nan")},
        }
        return makers[encoding]()

    names = ["bytes", "str", "int", *dtypes, "str_int", "str_float", "str_decimal", "pil", "jpeg", "png", "jpeg_array", "jpegarray"]
    names += ["list[pil]", "list[jpeg]", "list[png]", "json", "ndarray", "ndarray:int16", "ndarray:float64", "ndarray:uint8:3", "ndarray:int32:2,3"]

    # The original allocates what a damaged header asks for.
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))

    def decodes(encoding, datum):
        decoded = mds_decode(encoding, datum)
        for item in decoded if isinstance(decoded, list) else [decoded]:
            # An image is opened lazily; what follows its magic is not the format's business.
            _ = getattr(item, "size", None)
        return (decoded,)

    lines = []
    for index in range(count):
        encoding = names[index % len(names)]
        datum = mds_encode(encoding, value(encoding))
        whole = index % 3 == 0
        if not whole:
            mutant = bytearray(datum)
            for _ in range(rng.randint(1, 2)):
                at = rng.randint(0, min(len(mutant), 24))
                action = rng.randint(0, 4)
                if action == 0:
                    mutant[at:at] = rng.randbytes(1)
                elif action == 1:
                    del mutant[at : at + rng.randint(1, 4)]
                elif action == 2:
                    mutant[at : at + 1] = bytes([rng.choice((0, 1, 4, 8, 16, 48, 57, 101, 255))])
                elif action == 3:
                    del mutant[at:]
                else:
                    mutant += rng.randbytes(rng.randint(1, 3))
            datum = bytes(mutant)
        good = verdict(lambda d: decodes(encoding, d), datum) is not None
        # Small ones only: the file is read by people too.
        if len(datum) <= 120 or count > 1000:
            lines.append(f"{encoding} {datum.hex() or '-'} {'whole' if whole else 'damaged'} {int(good)}")
    return lines


if __name__ == "__main__":
    sys.set_int_max_str_digits(MAX_DIGITS)
    if sys.argv[1:] == ["text"]:
        save("floats.txt", "text", "bits of the f64, str(float)", floats(random.Random(1)))
        save("decimals.txt", "text", "sign, digits, scale, str(Decimal)", decimals(random.Random(2)))
        save("strings.txt", "text", "hex of UTF-8, json.dumps", strings(random.Random(3)))
        save("numbers.txt", "text", "text, accepted by int, bits from float, accepted by Decimal", numbers(random.Random(4)))
        save("json.txt", "text", "hex, accepted by json.loads", json_texts(random.Random(5)))
    elif sys.argv[1:2] == ["values"]:
        count = int(sys.argv[2]) if len(sys.argv) > 2 else 600
        name = "values.txt" if count == 600 else sys.argv[3]
        save(name, "values", "encoding, hex, whole or damaged, decoded by mosaicml-streaming", values(random.Random(6), count))
    else:
        sys.exit(__doc__)
