"""Folders that hold files of several kinds: every file or row is converted, or the refusal names two of the kinds."""

from __future__ import annotations

import gzip
import io
import json
import random
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
from PIL import Image

from random_sources.place import Place, require
from random_sources.readers import mds_samples, tar_bytes

WORDS = {
    "parquet": ("parquet",),
    "csv": ("csv",),
    "tsv": ("tsv",),
    "jsonl": ("jsonl", "json lines", "json-lines", "ndjson"),
    "arrow": ("arrow", "feather"),
    "tar": ("tar", "webdataset"),
    "tree": (),
}
"""Words in a refusal that name a kind. Plain files are named by a path."""

EXTENSIONS = {
    "parquet": ("parquet", "parq", "pq"),
    "csv": ("csv", "csv.gz"),
    "tsv": ("tsv", "tsv.gz"),
    "jsonl": ("jsonl", "ndjson", "jsonl.gz"),
    "arrow": ("arrow", "feather", "arrows"),
    "tar": ("tar", "tar.gz", "tgz"),
    "tree": ("jpg", "txt", "json", "bin"),
}

STEMS = ("config-nulls", "tree-collision")
"""Errors of trees whose files have no form as samples of stems: no zero for an image, extensions that differ by case."""


@dataclass
class Source:
    """What a random source holds, by paths that begin with the name of the folder."""

    files: dict[str, bytes] = field(default_factory=dict)
    """All files that count."""
    kinds: dict[str, str] = field(default_factory=dict)
    """Their kinds."""
    rows: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    """Rows of the tables among them."""
    members: dict[str, list[bytes]] = field(default_factory=dict)
    """Contents of the members of the tar files among them."""
    empty: list[str] = field(default_factory=list)
    """Files of a table kind without a byte."""


class Maker:
    """Writes random files, each of whose values is in no other file."""

    def __init__(self, root: Path, rng: random.Random) -> None:
        self.root, self.rng = root, rng
        self.source = Source()
        self.folder = "in0"
        self.tokens = 0
        self.numbers = 0

    def token(self) -> str:
        self.tokens += 1
        return f"token{self.tokens:05d}{self.rng.randrange(16**6):06x}"

    def path(self, extension: str) -> str:
        """A new path at a random depth."""
        self.numbers += 1
        names = ["a", "b", "c.d", "train", "é", "x y"]
        folders = [self.rng.choice(names) for _ in range(self.rng.choice([0, 0, 1, 1, 2, 4]))]
        if self.rng.random() < 0.15:
            extension = extension.upper()
        return "/".join([self.folder, *folders, f"f{self.numbers}.{extension}"])

    def write(self, path: str, data: bytes, kind: str | None = None) -> None:
        """Writes a file. One without a kind does not count."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        if kind:
            self.source.files[path] = data
            self.source.kinds[path] = kind

    def add(self, kind: str) -> None:
        """Adds a file of a kind; of plain files sometimes two that are one sample."""
        rng = self.rng
        path = self.path(rng.choice(EXTENSIONS[kind]))
        extension = path.rsplit("/", 1)[-1].split(".", 1)[1].lower()
        if kind == "tree":
            self.write(path, self.blob(extension), kind)
            if rng.random() < 0.4 and extension != "txt":
                self.write(path.rsplit(".", 1)[0] + ".txt", self.blob("txt"), kind)
        elif kind == "tar":
            contents = [self.token().encode() for _ in range(rng.randint(1, 3))]
            self.source.members[path] = contents
            members = [(f"{self.numbers}-{at}.txt", content) for at, content in enumerate(contents)]
            self.write(path, tar_bytes(members, "w" if extension == "tar" else "w:gz"), kind)
        else:
            rows = [(self.token(), rng.randrange(1000)) for _ in range(rng.randint(1, 4))]
            self.source.rows[path] = rows
            self.write(path, table(kind, rows, extension), kind)

    def blob(self, extension: str) -> bytes:
        token = self.token()
        if extension == "jpg":
            out = io.BytesIO()
            Image.new("RGB", (2, 2)).save(out, format="JPEG", comment=token)
            return out.getvalue()
        if extension == "json":
            return json.dumps({"token": token}).encode()
        return token.encode()

    def noise(self) -> None:
        """Adds files that a table ignores by a documented rule, and CSV files without a row."""
        rng = self.rng
        hidden = [".DS_Store", "._f1.jpg", "_SUCCESS", ".cache/x.bin", "_tmp/y.csv"]
        for name in rng.sample([*hidden, "README.md", "LICENSE", "readme.txt"], 2):
            if rng.random() < 0.5:
                self.write(f"{self.folder}/{name}", f"noise {self.token()}".encode())
        if rng.random() < 0.2:
            path = self.path("csv")
            self.source.rows[path] = []
            has_header = rng.random() < 0.5
            if not has_header:
                self.source.empty.append(path)
            self.write(path, b"id,n\n" if has_header else b"", "csv")


def table(kind: str, rows: list[tuple[str, int]], extension: str) -> bytes:
    """A file of a table with the columns `id` and `n`."""
    if kind in ("csv", "tsv"):
        comma = "," if kind == "csv" else "\t"
        data = "".join(f"{token}{comma}{n}\n" for token, n in [("id", "n"), *rows]).encode()
    elif kind == "jsonl":
        data = "".join(json.dumps({"id": token, "n": n}) + "\n" for token, n in rows).encode()
    else:
        columns = pa.table({"id": [token for token, _ in rows], "n": pa.array([n for _, n in rows], pa.int64())})
        out = io.BytesIO()
        if kind == "parquet":
            pq.write_table(columns, out)
        else:
            new = pyarrow.ipc.new_stream if extension == "arrows" else pyarrow.ipc.new_file
            with new(out, columns.schema) as writer:
                writer.write_table(columns)
        data = out.getvalue()
    return gzip.compress(data, mtime=0) if extension.endswith(".gz") else data


def make(place: Place, rng: random.Random) -> tuple[Source, list[str]]:
    """A random source of one folder or two: files of one kind, and in most cases some of others. And the folders."""
    maker = Maker(place.root, rng)
    main = rng.choice(list(WORDS))
    folders = ["in0"] if rng.random() < 0.85 else ["in0", "in1"]
    for maker.folder in folders:
        for _ in range(rng.randint(1, 4)):
            maker.add(main)
        for _ in range(rng.choice([0, 1, 1, 2])):
            maker.add(rng.choice(list(WORDS)))
        maker.noise()
    return maker.source, folders


def named_kinds(text: str, source: Source) -> set[str]:
    """The kinds of the source that a refusal names, by a word or by the name of a file."""
    text = text.lower()
    return {
        kind
        for path, kind in source.kinds.items()
        if path.rsplit("/", 1)[-1].lower() in text or any(word in text for word in WORDS[kind])
    }


def missing(source: Source, folder: Path) -> list[str]:
    """The files of a source that are in the dataset neither as a whole nor by all their rows."""
    samples = mds_samples(folder)
    stored = {value.raw for sample in samples for value in sample.values()}
    rows = {(sample["id"].raw, sample["n"].value()) for sample in samples if "id" in sample and "n" in sample}

    def is_stored(path: str) -> bool:
        if source.files[path] in stored:
            return True
        if path in source.members:
            return stored.issuperset(source.members[path])
        return path in source.rows and rows.issuperset((token.encode(), n) for token, n in source.rows[path])

    return sorted(path for path in source.files if not is_stored(path))


def check(place: Place, rng: random.Random) -> str:
    """Converts a random folder of files of one kind or of several."""
    source, folders = make(place, rng)
    listing = "\n".join(f"  {path}: {kind}" for path, kind in sorted(source.kinds.items()))
    # One sample for each file, or one for the files of a stem with a zero for those that it lacks.
    only_files = set(source.kinds.values()) == {"tree"}
    how = "--group=file" if rng.random() < (0.7 if only_files else 0.0) else "--nulls=mask"
    done = place.convert(*folders, "out", how, "--compression=none")
    if done.status == 0:
        lost = missing(source, place / "out")
        require(not lost, f"exit status 0 without {', '.join(lost)}\n{listing}\n{done}")
        return "equal"
    require(done.refused, f"neither converted nor refused\n{listing}\n{done}")
    if how == "--nulls=mask" and any(f"error[{name}]" in done.first_error for name in STEMS):
        return "refused, stems"
    kinds = set(source.kinds.values())
    names_empty = any(path.rsplit("/", 1)[-1] in done.first_error for path in source.empty)
    if len(kinds) == 1:
        require(names_empty, f"a source of one kind is refused\n{listing}\n{done}")
        return "refused, empty file"
    named = named_kinds(done.first_error, source)
    # Of several locations the refusal names the kind of two of them.
    names_two = len(named) > 1 or (len(folders) > 1 and "error[source-mixed]" in done.first_error)
    require(names_two or names_empty, f"the refusal names {sorted(named)} of {sorted(kinds)}\n{listing}\n{done}")
    return "refused"
