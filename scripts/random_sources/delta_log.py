"""Delta tables, written by the protocol alone: JSON commits, Parquet files by pyarrow, deletion vectors in the log."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Row = tuple[int, str, float]
"""A row: an id, a text and a number."""

FIELDS = (("id", "long", pa.int64()), ("text", "string", pa.string()), ("score", "double", pa.float64()))


@dataclass
class Data:
    """A data file and the rows of it that are deleted, by number."""

    path: str
    size: int
    rows: list[Row]
    deleted: set[int] = field(default_factory=set)

    def live(self) -> list[Row]:
        return [row for number, row in enumerate(self.rows) if number not in self.deleted]

    def action(self, name: str, changes_data: bool) -> dict[str, Any]:
        """An `add` or a `remove` of the log."""
        out: dict[str, Any] = {"path": self.path, "partitionValues": {}, "size": self.size, "dataChange": changes_data}
        if name == "add":
            out |= {"modificationTime": 1_700_000_000_000, "stats": json.dumps({"numRecords": len(self.rows)})}
        else:
            out |= {"deletionTimestamp": 1_700_000_000_000, "extendedFileMetadata": True}
        if self.deleted:
            out["deletionVector"] = inline_vector(self.deleted)
        return {name: out}


class Table:
    """A Delta table in a folder. Each operation is one commit."""

    def __init__(self, root: Path, rng: random.Random) -> None:
        self.root, self.rng = root, rng
        self.files: list[Data] = []
        self.version = -1
        self.names = 0
        (root / "_delta_log").mkdir(parents=True)
        fields = [{"name": name, "type": type_, "nullable": False, "metadata": {}} for name, type_, _ in FIELDS]
        features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
        self.commit([
            {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}},
            {"metaData": {
                "id": "0d5b1c2e-6a1e-4a52-9a43-7ac3a1f0b9d1", "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}), "partitionColumns": [], "configuration": {},
                "createdTime": 1_700_000_000_000,
            }},
        ])  # fmt: skip

    def rows(self) -> list[Row]:
        """The rows of the latest version, in any order."""
        return [row for data in self.files for row in data.live()]

    def commit(self, actions: Iterable[dict[str, Any]]) -> None:
        self.version += 1
        lines = [json.dumps(action) + "\n" for action in [{"commitInfo": {}}, *actions]]
        (self.root / "_delta_log" / f"{self.version:020}.json").write_text("".join(lines))

    def write(self, rows: list[Row]) -> Data:
        """Writes a data file, whose name says nothing about its age."""
        self.names += 1
        path = f"part-{self.rng.randrange(16**6):06x}-{self.names}.parquet"
        columns = {name: pa.array([row[at] for row in rows], type_) for at, (name, _, type_) in enumerate(FIELDS)}
        pq.write_table(pa.table(columns), self.root / path)
        return Data(path, (self.root / path).stat().st_size, rows)

    def append(self, rows: list[Row]) -> None:
        cut = self.rng.randrange(len(rows) + 1)
        new = [self.write(part) for part in (rows[:cut], rows[cut:]) if part]
        self.files += new
        self.commit(data.action("add", True) for data in new)

    def delete(self, is_gone: Callable[[Row], bool]) -> None:
        """Deletes rows by deletion vectors."""
        actions = []
        for data in list(self.files):
            gone = {number for number, row in enumerate(data.rows) if is_gone(row)} - data.deleted
            if not gone:
                continue
            actions.append(data.action("remove", True))
            data.deleted = data.deleted | gone
            if data.live() or self.rng.random() < 0.5:
                actions.append(data.action("add", True))
            else:
                self.files.remove(data)
        self.commit(actions)

    def rewrite(self, change: Callable[[Row], Row | None]) -> None:
        """Writes the files anew that have rows which are changed, or deleted by `None`."""
        actions, files = [], []
        for data in self.files:
            rows = [new for row in data.live() if (new := change(row)) is not None]
            if rows == data.live():
                files.append(data)
                continue
            actions.append(data.action("remove", True))
            if rows:
                files.append(self.write(rows))
                actions.append(files[-1].action("add", True))
        self.files = files
        self.commit(actions)

    def overwrite(self, rows: list[Row]) -> None:
        actions = [data.action("remove", True) for data in self.files]
        self.files = [self.write(rows)] if rows else []
        self.commit([*actions, *(data.action("add", True) for data in self.files)])

    def optimize(self) -> None:
        """Moves the rows of some files into one, in another order."""
        moved = [data for data in self.files if self.rng.random() < 0.7]
        kept = [data for data in self.files if data not in moved]
        rows = [row for data in moved for row in data.live()]
        self.rng.shuffle(rows)
        actions = [data.action("remove", False) for data in moved]
        new = [self.write(rows)] if rows else []
        self.files = kept + new
        self.commit([*actions, *(data.action("add", False) for data in new)])

    def vacuum(self) -> None:
        """Removes the data files that the latest version does not have."""
        used = {data.path for data in self.files}
        for path in self.root.glob("*.parquet"):
            if path.name not in used:
                path.unlink()


def inline_vector(rows: set[int]) -> dict[str, Any]:
    """A deletion vector in the log itself; its rows are below 65536 and fewer than 4096, which is one container."""
    numbers = sorted(rows)
    bitmap = struct.pack("<II", 12346, 1) + struct.pack("<HHI", 0, len(numbers) - 1, 16) + struct.pack(f"<{len(numbers)}H", *numbers)
    data = struct.pack("<I", 1_681_511_377) + struct.pack("<QI", 1, 0) + bitmap
    padded = data + b"\0" * (-len(data) % 4)
    return {"storageType": "i", "pathOrInlineDv": z85(padded), "sizeInBytes": len(data), "cardinality": len(numbers)}


def z85(data: bytes) -> str:
    """Base 85 in the form of ZeroMQ."""
    digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    out = []
    for (value,) in struct.iter_unpack(">I", data):
        out += [digits[value // 85**power % 85] for power in (4, 3, 2, 1, 0)]
    return "".join(out)
