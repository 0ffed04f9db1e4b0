"""Writes the hand-made seeds of the fuzz targets into fuzz/corpus. Needs only Python's standard library."""

import io
import json
import struct
import zipfile
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"


def npy(descr: str, shape: tuple[int, ...], data: bytes) -> bytes:
    header = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def npz(*arrays: tuple[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays:
            archive.writestr(zipfile.ZipInfo(name), array, zipfile.ZIP_DEFLATED)
    return out.getvalue()


ARRAY = npy("<f4", (2, 3), struct.pack("<6f", *range(6)))
TAR_INDEX = {
    "format": "webdataset",
    "shards": [
        {
            "compression": "gz:6",
            "fields": ["cls", "jpg"],
            "offsets": None,
            "optional_fields": ["txt"],
            "raw_data": {"basename": "a.tar", "bytes": 10240, "hashes": {"xxh32": "02cc5d05"}},
            "samples": 3,
            "zip_data": {"basename": "a.tar.gz", "bytes": 99, "hashes": {}},
        }
    ],
    "version": 1,
}
STATE = {
    "epoch": 1,
    "sample_in_epoch": 640,
    "num_canonical_nodes": 64,
    "shuffle_seed": 9176,
    "initial_physical_nodes": None,
    "shardmill": {
        "version": 1,
        "fingerprint": "00112233445566778899aabbccddeeff",
        "order": {"shuffle_algo": "py1e", "samples": 1000},
    },
}
STAGING = {"base": None, "first_part": 0, "job": "j", "mode": "error", "names": "mds", "version": 1}
MANIFEST = {
    "about": None,
    "attempt": "a",
    "form": None,
    "part": 3,
    "samples": 0,
    "shards": [],
    "staging": STAGING,
    "version": 1,
}

SEEDS: dict[str, list[bytes]] = {
    "braces": [b"s3://bucket/{train,val}-{000000..000012}.tar", b"{a,b}{1..3}", b"\\{x\\}", b"{0..}"],
    "json": [b'{"a": [1, 2.5e-3, "\\ud83d\\ude00", null, true]}', b"[[[[]]]]"],
    "location": [
        b"s3://bucket/a/b%20c",
        b"gs://bucket/x?key=v",
        b"az://account/container/path",
        b"/data/x",
        b"file:///data/x",
        b"https://host:8080/a/../b",
        b"dbfs:/Volumes/c/s/v",
    ],
    "npz": [npz(("a.npy", ARRAY)), npz(("a.npy", ARRAY), ("b.npy", ARRAY), ("note.txt", b"x"))],
    "order-state": [json.dumps(STATE).encode(), b'{"epoch": -1, "sample_in_epoch": 0, "num_canonical_nodes": 1, "shuffle_seed": 0}'],
    "part-manifest": [json.dumps(MANIFEST).encode()],
    "pending-note": [json.dumps({"index": "00" * 32, "files": {"index.provenance": "{}"}}).encode()],
    "shard-pattern": [b"train-%06d.tar", b"a%%b%d.tar.zst", b"%s.tar"],
    "tar-index": [json.dumps(TAR_INDEX).encode(), b'{"format": "webdataset", "shards": [], "version": 1}'],
    "tar-offsets": [struct.pack("<4Q", 0, 1024, 3072, 4096)],
    "tar-pattern": [b"data/{000..010}.tar", b"*.tar", b"a.tar::b.tar"],
    "tar-value": [bytes([i]) + data for i in range(16) for data in (ARRAY, b"12", b'{"a": 1}', npz(("a.npy", ARRAY)))],
}

for target, seeds in SEEDS.items():
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds):
        (folder / f"seed-{number:02}").write_bytes(seed)
