"""Random shards of this crate and of webdataset 1.0.2, CPython's tarfile and GNU tar, side by side.

    cargo build --release -p shardmill-webdataset --example lines
    python differential.py --bin PROGRAM [--number 300] [--seed N|random]

PROGRAM is the example `lines`. Runs in an environment that has webdataset 1.0.2 and numpy 2.1.3. Prints one line of figures
for each comparison; every difference is printed and makes the exit status 1.
"""

import argparse
import gzip
import io
import json
import random
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import webdataset
from webdataset import tariterators
from webdataset.tenbin import encode_buffer
from webdataset.writer import TarWriter

FIELDS = ["cls", "txt", "json", "jpg", "seg.png", "npy", "bin", "B.json", "0", "a.b.c", "é", "_skip", "__url__"]
FOLDERS = ["", "", "a/", "train/n01/", "a.b/", "./", "x" * 60 + "/", "é/"]
SIZES = [0, 1, 511, 512, 513, 1024, 3000, 9000]


class Program:
    """The program under test."""

    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")

    def ask(self, op, **request):
        self.process.stdin.write(json.dumps({"op": op, **request}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the program gave up at {op}"
        return json.loads(line)


class Differences:
    def __init__(self):
        self.count = 0

    def same(self, what, ours, theirs):
        if ours != theirs:
            self.count += 1
            print(f"DIFFERENT {what}\n   ours:   {str(ours)[:400]}\n   theirs: {str(theirs)[:400]}")


def random_samples(rng):
    """Samples that the original writer writes and its reader gives back."""
    used, samples = set(), []
    for _ in range(rng.choice([0, 1, 2, 5, 17, 18, 19, 20, 40])):
        key = rng.choice(FOLDERS) + rng.choice(["", "k-", "ü"]) + f"{rng.randrange(10**6):06d}" + "y" * rng.choice([0, 0, 40, 90])
        if key in used:
            continue
        used.add(key)
        names = rng.sample(FIELDS, rng.randrange(1, len(FIELDS)))
        if not [name for name in names if not name.startswith("_")]:
            names.append("cls")
        samples.append((key, {name: rng.randbytes(rng.choice(SIZES)) for name in names}))
    return samples


def their_tar(samples, mtime):
    out = io.BytesIO()
    with TarWriter(out, encoder=False, mtime=mtime) as writer:
        for key, fields in samples:
            writer.write({"__key__": key, **fields})
    return out.getvalue()


def their_samples(path):
    """What the reader of the original gives, in its own order."""
    with open(path, "rb") as stream:
        files = tariterators.tar_file_expander([{"url": str(path), "stream": stream}])
        grouped = list(tariterators.group_by_keys(files))
    out = []
    for sample in grouped:
        fields = {name: data for name, data in sample.items() if name not in ("__key__", "__url__", "__local_path__")}
        out.append((sample["__key__"], fields))
    return out


def our_samples(program, path, data):
    answer = program.ask("read", path=str(path))
    if "error" in answer:
        return answer["error"]
    return [
        (key, {name: data[offset : offset + size] for name, _, offset, size in fields})
        for key, fields in answer["samples"]
    ]


def to_json(samples):
    return [[key, [[name, data.hex()] for name, data in fields.items()]] for key, fields in samples]


def byte_identity(program, rng, number, work, out):
    """The same samples give the same bytes as `TarWriter`, and both readers read them."""
    total = samples_total = 0
    for n in range(number):
        samples, mtime = random_samples(rng), rng.choice([0, 1, 1_700_000_000, 2**32 - 1])
        theirs = their_tar(samples, mtime)
        answer = program.ask("write", mtime=mtime, samples=to_json(samples))
        ours = bytes.fromhex(answer["tar"]) if "tar" in answer else answer
        out.same(f"shard {n} (mtime {mtime}, {len(samples)} samples)", ours, theirs)
        path = work / f"{n}.tar"
        path.write_bytes(theirs)
        out.same(f"samples of shard {n}", our_samples(program, path, theirs), their_samples(path))
        total, samples_total = total + len(theirs), samples_total + len(samples)
    print(f"TarWriter: {number} datasets, {samples_total} samples, {total} bytes")


def random_names(rng, number):
    parts = ["a", "b.c", ".h", "__m__", "__k", "..", "x.Y.z", "é.É", "", "a.", "noext", "A.JPG", "__", "_", "a__.b"]
    return ["/".join(rng.choice(parts) for _ in range(rng.randrange(1, 4))) for _ in range(number)]


def split_names(program, rng, number, out):
    """Names are split as the original splits them."""
    names = random_names(rng, number)
    ours = program.ask("split", names=names)["webdataset"]
    for name, mine in zip(names, ours):
        theirs = None
        # The reader's own skipping of metadata, then its splitting and its lower case.
        if not ("/" not in name and name.startswith("__") and name.endswith("__")):
            if tariterators.meta_prefix == "__" and not __import__("re").match(r"__[^/]*__($|/)", name):
                key, field = tariterators.base_plus_ext(name)
                if key is not None:
                    theirs = [key, field.lower()]
        out.same(f"name {name!r}", mine, theirs)
    print(f"names: {number}")


def arrays(program, rng, number, out):
    """Arrays are the bytes of `numpy.save` and of tenbin."""
    count = 0
    for _ in range(number):
        dtype = np.dtype(rng.choice(["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "b1"]))
        shape = [rng.choice([0, 1, 2, 3, 10, 99]) for _ in range(rng.choice([0, 1, 1, 2, 2, 3, 5]))]
        if np.prod(shape, dtype=object) > 100_000:
            continue
        array = np.frombuffer(rng.randbytes(int(np.prod(shape)) * dtype.itemsize), dtype)
        array = (array != 0 if dtype.kind == "b" else array).reshape(shape)
        ask = {"dtype": dtype.str[1:], "shape": shape, "data": array.tobytes().hex()}
        buffer = io.BytesIO()
        np.save(buffer, array)
        answer = program.ask("encode", field="npy", **ask)
        out.same(f"npy {dtype} {shape}", answer.get("bytes", answer), buffer.getvalue().hex())
        count += 1
        if dtype.str[1:] in ("u4", "b1"):
            continue
        answer = program.ask("encode", field="ten", **ask)
        out.same(f"ten {dtype} {shape}", answer.get("bytes", answer), bytes(encode_buffer([array])).hex())
    print(f"arrays: {count}")


def foreign_tar(rng, path, work):
    """A shard as some other program writes it."""
    names = []
    for key in range(rng.randrange(1, 8)):
        folder = rng.choice(["", "d/", "./", "long-" * 30 + "/", "é/", "l" * 180 + "/"])
        names += [f"{folder}{key:03d}.{field}" for field in rng.sample(["txt", "Cls", "bin.gz", "json"], rng.randrange(1, 4))]
    members = [(name, rng.randbytes(rng.choice(SIZES))) for name in names]
    kind = rng.choice(["gnu", "pax", "ustar", "tar-gnu", "tar-pax", "tar-v7", "tar-ustar"])
    if kind.startswith("tar-"):
        tree = work / "tree"
        shutil.rmtree(tree, ignore_errors=True)
        for name, data in members:
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_bytes(data)
        listed = [name for name, _ in members]
        if kind in ("tar-v7", "tar-ustar"):
            listed = [name for name in listed if len(name.encode()) < (100 if kind == "tar-v7" else 99)]
        if not listed:
            listed = ["only.txt"]
            (tree / "only.txt").write_bytes(b"x")
        command = ["tar", "-c", "-f", str(path), f"--format={kind[4:]}", "-C", str(tree), "--no-recursion", *listed]
        subprocess.run(command, check=True, env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"})
        return kind
    formats = {"gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT, "ustar": tarfile.USTAR_FORMAT}
    with tarfile.open(path, "w", format=formats[kind]) as tar:
        for name, data in members:
            if kind == "ustar" and len(name.encode()) > 99:
                continue
            info = tarfile.TarInfo(name)
            info.size = len(data)
            info.mtime = rng.choice([0, 1.5, 10**9])
            tar.addfile(info, io.BytesIO(data))
    return kind


def foreign(program, rng, number, work, out):
    """Shards of other writers are read as the original reads them."""
    kinds = {}
    for n in range(number):
        path = work / f"foreign-{n}.tar"
        kind = foreign_tar(rng, path, work)
        out.same(f"foreign shard {n} ({kind})", our_samples(program, path, path.read_bytes()), their_samples(path))
        kinds[kind] = kinds.get(kind, 0) + 1
        path.unlink()
    print(f"other writers: {dict(sorted(kinds.items()))}")


def mutants(program, rng, number, work, out):
    """A shard with a flipped byte: an error, or the members that tarfile sees."""
    refused = accepted = 0
    path = work / "mutant.tar"
    for n in range(number):
        data = bytearray(their_tar(random_samples(rng)[:4], 0))
        for _ in range(rng.choice([1, 1, 2])):
            # Most in the first headers, where structure is.
            data[rng.randrange(min(len(data), rng.choice([512, 4096, len(data)])))] = rng.choice([0, 0x20, 0x30, 0x78, 0xFF, rng.randrange(256)])
        if rng.random() < 0.3:
            data = data[: rng.randrange(len(data))]
        path.write_bytes(data)
        answer = program.ask("read", path=str(path))
        if "error" in answer:
            refused += 1
            continue
        accepted += 1
        try:
            with tarfile.open(path, "r:") as tar:
                theirs = [(m.name, m.offset_data, m.size) for m in tar if m.isreg()]
        except tarfile.TarError as error:
            theirs = repr(error)
        ours = [(member, offset, size) for _, fields in answer["samples"] for _, member, offset, size in fields]
        if isinstance(theirs, list):
            # Members without key are only counted.
            theirs = [one for one in theirs if one[0] in {name for name, _, _ in ours}]
        out.same(f"mutant {n}", ours, theirs)
    print(f"mutants: {accepted} accepted, {refused} refused")


def compressed(program, rng, number, work, out):
    """Plain tools read our compressed shards, and the original reads them."""
    zstd = shutil.which("zstd")
    for n in range(number):
        raw = their_tar(random_samples(rng), 0)
        path = work / "plain.tar"
        path.write_bytes(raw)
        for to in ("gz", "zst"):
            answer = program.ask("compress", path=str(path), to=to, level=rng.randrange(1, 10), group_bytes=rng.choice([1, 5000, 1 << 20]))
            packed = work / f"packed.tar.{to}"
            packed.write_bytes(bytes.fromhex(answer["bytes"]))
            if to == "gz":
                out.same(f"gzip {n}", gzip.decompress(packed.read_bytes()), raw)
                tool = subprocess.run(["gzip", "-dc", str(packed)], capture_output=True, check=False)
                out.same(f"gzip tool {n}", (tool.returncode, tool.stdout), (0, raw))
                out.same(f"webdataset on gzip {n}", their_samples(packed), their_samples(path))
            elif zstd:
                tool = subprocess.run([zstd, "-dc", str(packed)], capture_output=True, check=False)
                out.same(f"zstd tool {n}", (tool.returncode, tool.stdout), (0, raw))
    print(f"compressed: {number} shards, gzip by gzip, Python and webdataset, zstd {'by zstd' if zstd else 'NOT TRIED: no zstd here'}")


def sidecars(program, rng, number, work, out):
    """Offsets and the index of DALI, computed again with tarfile."""
    for n in range(number):
        samples = [(f"s/{key:04d}", {"cls": b"1", "jpg": rng.randbytes(rng.choice(SIZES))}) for key in range(rng.randrange(1, 9))]
        path = work / "sidecar.tar"
        path.write_bytes(their_tar(samples, 0))
        lines, begins, last, end = [], [], None, 0
        with tarfile.open(path, "r:") as tar:
            for member in tar:
                key, field = member.name.split(".", 1)
                if key != last:
                    lines.append([])
                    begins.append(member.offset)
                    last = key
                lines[-1] += [field, str(member.offset_data), str(member.size), member.name]
                end = member.offset_data + (member.size + 511) // 512 * 512
        dali = f"v1.2 {len(lines)}\n" + "".join(" ".join(line) + "\n" for line in lines)
        answer = program.ask("sidecars", path=str(path), name="sidecar.tar")
        out.same(f"dali {n}", answer["dali"].get("Ok"), dali)
        out.same(f"energon {n}", answer["offsets"], struct.pack(f"<{len(begins) + 1}Q", *begins, end).hex())
    print(f"side files: {number}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--number", type=int, default=300)
    parser.add_argument("--seed", default="1")
    args = parser.parse_args()
    if webdataset.__version__ != "1.0.2":
        sys.exit(f"webdataset 1.0.2 is needed, {webdataset.__version__} is installed")
    seed = random.SystemRandom().randrange(2**32) if args.seed == "random" else int(args.seed)
    print(f"seed {seed}")
    program, out = Program(args.bin), Differences()
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        few = max(args.number // 10, 1)
        byte_identity(program, random.Random(seed), args.number, work, out)
        split_names(program, random.Random(seed + 1), 10 * args.number, out)
        arrays(program, random.Random(seed + 2), args.number, out)
        foreign(program, random.Random(seed + 3), args.number // 2, work, out)
        mutants(program, random.Random(seed + 4), 5 * args.number, work, out)
        compressed(program, random.Random(seed + 5), few, work, out)
        sidecars(program, random.Random(seed + 6), few, work, out)
    print(f"differences: {out.count}")
    sys.exit(out.count > 0)


if __name__ == "__main__":
    main()
