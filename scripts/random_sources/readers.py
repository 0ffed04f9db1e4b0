"""Independent readers: mosaicml-streaming for MDS, Python's json and tarfile for the rest."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from streaming.base.compression import decompress
from streaming.base.format import reader_from_json
from streaming.base.format.mds.encodings import mds_decode

Sample = dict[str, "Field"]


@dataclass(frozen=True)
class Field:
    """A stored value: its encoding, and its bytes as they are in the shard."""

    encoding: str
    raw: bytes

    def value(self) -> Any:
        """The value as mosaicml-streaming decodes it, scalars as Python's own; JSON stays text."""
        if self.encoding == "json":
            return self.raw.decode()
        found = mds_decode(self.encoding, self.raw)
        return found.item() if isinstance(found, np.generic) else found


def mds_shards(folder: Path) -> Iterator[tuple[str, list[Sample]]]:
    """The samples of each shard of an MDS dataset, by the reader of mosaicml-streaming."""
    index = json.loads((folder / "index.json").read_text())
    for entry in index["shards"]:
        packed = entry.get("zip_data")
        if packed:
            data = (folder / packed["basename"]).read_bytes()
            (folder / entry["raw_data"]["basename"]).write_bytes(decompress(entry["compression"], data))
        reader = reader_from_json(str(folder), None, entry)
        yield entry["raw_data"]["basename"], [split(reader, reader.get_sample_data(at)) for at in range(len(reader))]
        if packed:
            (folder / entry["raw_data"]["basename"]).unlink()


def split(reader: Any, data: bytes) -> Sample:
    """The stored fields of a sample: sizes of the columns that vary, then the values."""
    sizes, at = [], 0
    for size in reader.column_sizes:
        if size:
            sizes.append(size)
        else:
            sizes.append(int(np.frombuffer(data[at : at + 4], np.uint32)[0]))
            at += 4
    fields = {}
    for name, encoding, size in zip(reader.column_names, reader.column_encodings, sizes):
        fields[name] = Field(encoding, data[at : at + size])
        at += size
    return fields


def mds_samples(folder: Path) -> list[Sample]:
    """All samples of an MDS dataset, those that are listed as deleted too."""
    return [sample for _, samples in mds_shards(folder) for sample in samples]


def tombstones(folder: Path) -> set[int]:
    """The numbers of the samples that `index.tombstones` lists."""
    path = folder / "index.tombstones"
    if not path.exists():
        return set()
    listed = json.loads(path.read_text())
    return {number for first, end in listed["samples"] for number in range(first, end)}


def live(folder: Path) -> list[Sample]:
    """The samples of an MDS dataset that are not listed as deleted."""
    gone = tombstones(folder)
    return [sample for number, sample in enumerate(mds_samples(folder)) if number not in gone]


def shard_names(folder: Path) -> list[str]:
    """The files of the shards in the order of the index, whatever their format."""
    index = json.loads((folder / "index.json").read_text())
    names = []
    for entry in index["shards"]:
        data = entry.get("zip_data") or entry.get("raw_data") or entry
        names.append(data["basename"] if "basename" in data else data["name"])
    return names


def tar_samples(path: Path) -> list[tuple[str, dict[str, bytes]]]:
    """The samples of a tar file: neighbours with the same name up to the first dot of its last part."""
    found: list[tuple[str, dict[str, bytes]]] = []
    with tarfile.open(path) as tar:
        for member in tar:
            folder, slash, name = member.name.rpartition("/")
            stem, _, extension = name.partition(".")
            key = folder + slash + stem
            stream = tar.extractfile(member)
            data = stream.read() if stream else b""
            if not found or found[-1][0] != key or extension in found[-1][1]:
                found.append((key, {}))
            found[-1][1][extension] = data
    return found


def exact(text: str | bytes) -> Any:
    """JSON with everything that two texts can differ in but white space and escapes: the order of keys, the text of numbers."""
    return json.loads(
        text,
        object_pairs_hook=lambda pairs: ("object", pairs),
        parse_int=lambda number: ("number", number),
        parse_float=lambda number: ("number", number),
        parse_constant=lambda word: ("word", word),
    )


def tar_bytes(members: list[tuple[str, bytes]], mode: str = "w") -> bytes:
    """A tar file of these members, by Python's tarfile."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode, format=tarfile.USTAR_FORMAT) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()
