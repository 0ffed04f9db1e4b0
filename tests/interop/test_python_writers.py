"""The writers of the Python package and the original ones, on the same Python objects: the same files.

Needs the package `shardmill` beside mosaicml-streaming. SHARDMILL_CASES and SHARDMILL_SEED choose how many random cases
there are and which, as in test_byte_identity.py.
"""

import io
import json
import random

import numpy as np
import peer
import pyarrow as pa
import pytest
from conftest import CASES, SEED
from PIL import Image
from tables import table
from streaming.base.compression import decompress, get_compressions
from streaming.base.hashing import get_hashes

shardmill = pytest.importorskip("shardmill")

WRITERS = {name: getattr(shardmill, writer.__name__) for name, writer in peer.WRITERS.items()}
HASHES = sorted(get_hashes())
COMPRESSIONS = sorted(get_compressions())
# Both use the same library. The original has it cut what is larger than half a megabyte into jobs; ours cuts by itself.
SAME_BYTES = ("zstd",)
LIMITS = [1 << 26, None, 0, "1kb", "0.5KB", "10kb", "1", 1, 300.9]


def write_both(tmp_path, format_, columns, samples, **options):
    """Writes with both, and gives the folders."""
    folders = []
    for name, writers in (("ours", WRITERS), ("theirs", peer.WRITERS)):
        with writers[format_](columns=columns, out=str(tmp_path / name), **options) as out:
            for sample in samples:
                out.write(sample)
        folders.append(tmp_path / name)
    return folders


def difference(ours, theirs, compression, same_bytes=SAME_BYTES):
    """The first way in which two folders differ; compressed files count as what they hold, where their bytes may differ."""
    if compression is None or compression.startswith(same_bytes):
        return peer.difference(ours, theirs)
    found, expected = peer.files(ours), peer.files(theirs)
    if found.keys() != expected.keys():
        return f"only ours: {sorted(found.keys() - expected.keys())}, only theirs: {sorted(expected.keys() - found.keys())}"
    for name in found.keys() - {"index.json"}:
        if decompress(compression, found[name]) != decompress(compression, expected[name]):
            return f"{name} holds other bytes"
    texts = []
    for files in (found, expected):
        index = json.loads(files["index.json"])
        for shard in index["shards"]:
            for key in ("zip_data", "zip_meta"):
                if key in shard:
                    assert shard[key]["bytes"] == len(files[shard[key]["basename"]])
                    assert shard[key]["hashes"].keys() == shard["raw_data"]["hashes"].keys()
                    shard[key]["bytes"], shard[key]["hashes"] = 0, {}
        texts.append(json.dumps(index))
    return None if texts[0] == texts[1] else f"{texts[0]}\n{texts[1]}"


@pytest.mark.parametrize("case", range(CASES), ids=lambda n: f"case[{n}]")
def test_random_samples_are_written_identically(case, tmp_path):
    rng = random.Random(f"{SEED} python {case}")
    format_ = rng.choice(["mds", "mds", "mds", "json", "csv", "tsv", "xsv"])
    separator = {"csv": ",", "tsv": "\t", "xsv": rng.choice(["|", ";", "<->", "→", "::"])}.get(format_)
    options = {"separator": separator} if format_ == "xsv" else {}
    if format_ != "mds" and rng.random() < 0.2:
        options["newline"] = "\r\n"
    data = table(rng, format_, forbidden=(separator or "") + ("\r" if separator else ""))
    options["hashes"] = sorted(rng.sample(HASHES, rng.choice([0, 0, 1, 2, 5, 17])))
    options["size_limit"] = rng.choice([*LIMITS, rng.randint(1, 100), rng.randint(100, 1000), rng.randint(1000, 20_000)])
    options["compression"] = rng.choice([None, None, rng.choice(COMPRESSIONS)])

    ours, theirs = write_both(tmp_path, format_, data.columns, data.samples, **options)

    found = difference(ours, theirs, options["compression"])
    assert found is None, f"SHARDMILL_SEED={SEED} case {case}: {data.columns} {options}\n{found}"


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_every_compression_is_written_identically(compression, tmp_path):
    rng = random.Random(compression)
    samples = [{"n": n, "text": "w" * rng.randint(0, 50)} for n in range(300)]
    for format_, encoding in (("mds", "int64"), ("json", "int")):
        columns = {"n": encoding, "text": "str"}
        options = {"compression": compression, "hashes": ["sha256"], "size_limit": 4000}
        ours, theirs = write_both(tmp_path / format_, format_, columns, samples, **options)
        assert difference(ours, theirs, compression) is None
        assert len(peer.streamed(ours)) == 300


def picture(rng, mode):
    pixels = np.frombuffer(rng.randbytes(7 * 5 * 3), np.uint8).reshape(7, 5, 3)
    return Image.fromarray(pixels).convert(mode)


def file_of(image, kind):
    out = io.BytesIO()
    image.save(out, format=kind)
    return out.getvalue()


def test_python_only_objects_are_written_identically(tmp_path):
    """Images, pickles, scalars of every type, arrays in every form and order of memory."""
    rng = random.Random(SEED)
    scalars = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]
    columns = {
        "pil": "pil", "jpeg": "jpeg", "png": "png", "pils": "list[pil]", "jpegs": "list[jpeg]", "pngs": "list[png]",
        "files": "jpeg_array", "files2": "jpegarray", "pkl": "pkl", "json": "json", "int": "int", "bytes": "bytes",
        "array": "ndarray", "f4": "ndarray:float32", "fixed": "ndarray:int16:2,3",
        **{f"np {name}": name for name in scalars}, **{f"py {name}": name for name in scalars},
    }  # fmt: skip
    samples = []
    for n in range(40):
        array = np.arange(6, dtype=np.int16).reshape(2, 3) * n
        image = picture(rng, rng.choice(["L", "RGB"]))
        sample = {
            "pil": picture(rng, rng.choice(["1", "L", "RGB", "RGBA", "I", "F"])),
            "jpeg": rng.choice([image, file_of(image, "JPEG")]),
            "png": rng.choice([image, file_of(image, "PNG")]),
            "pils": [image] * rng.randint(0, 3),
            "jpegs": [image] * rng.randint(0, 3),
            "pngs": [image] * rng.randint(0, 3),
            "files": [file_of(image, "JPEG")] * rng.randint(1, 3),
            "files2": (bytearray(b"x"),),
            "pkl": {"n": n, "set": (1, 2)},
            "json": rng.choice([None, [n, 0.1], {"z": "é", "a": [None]}, array]),
            "int": rng.choice([n, True, -(2**63)]),
            "bytes": rng.randbytes(n),
            "array": rng.choice([array, array.T, array[::-1], np.asfortranarray(array), np.ones(300, np.uint64)]),
            "f4": np.ones((1,) * rng.randint(1, 20), np.float32),
            "fixed": rng.choice([array, np.asfortranarray(array)]),
        }
        for name in scalars:
            value = rng.choice([0, 1, 99, rng.randint(0, 127), True])
            sample[f"np {name}"] = getattr(np, rng.choice([name, "int8", "float64"]))(value)
            sample[f"py {name}"] = rng.choice([value, float(value), 2.7, b"\x01" * np.dtype(name).itemsize])
        samples.append(sample)
    for limit in (1 << 26, 5000):
        ours, theirs = write_both(tmp_path / str(limit), "mds", columns, samples, size_limit=limit, hashes=HASHES)
        assert peer.difference(ours, theirs) is None


@pytest.mark.parametrize("format_", peer.WRITERS)
def test_empty_datasets_are_written_identically(format_, tmp_path):
    options = {"separator": "|"} if format_ == "xsv" else {}
    ours, theirs = write_both(tmp_path, format_, {"a": "str"}, [], **options)
    assert peer.difference(ours, theirs) is None


@pytest.mark.parametrize("compression", [None, "zstd", "zstd:15"])
def test_large_shards_are_written_identically(compression, tmp_path):
    """Several chunks, several pieces that are compressed one by one."""
    rng = np.random.default_rng(SEED)
    blob = rng.integers(0, 50, 5_000_000, np.uint8).tobytes()
    samples = [{"n": n, "b": blob[n * 997 % 1000 : n * 997 % 1000 + n * 7 % 15_000]} for n in range(4000)]
    options = {"compression": compression, "hashes": ["sha1"], "size_limit": 18 << 20}
    ours, theirs = write_both(tmp_path, "mds", {"n": "int", "b": "bytes"}, samples, **options)
    assert difference(ours, theirs, compression, same_bytes=()) is None
    assert len(peer.index(ours)["shards"]) == 2
    assert len(peer.streamed(ours)) == 4000


def test_write_batch_equals_writing_each_sample(tmp_path):
    """A record batch is the samples of its rows."""
    rng = random.Random(SEED)
    for case in range(20):
        data = table(rng, "mds")
        plain = all(not pa.types.is_nested(field.type) for field in data.arrow.schema)
        with shardmill.MDSWriter(columns=data.columns, out=str(tmp_path / f"{case}")) as writer:
            writer.write_batch(data.arrow)
        with shardmill.MDSWriter(columns=data.columns, out=str(tmp_path / f"{case}s")) as writer:
            for sample in data.samples:
                writer.write(sample)
        found = peer.difference(tmp_path / f"{case}", tmp_path / f"{case}s")
        assert found is None, f"{plain} {data.columns} {data.arrow.schema}\n{found}"
