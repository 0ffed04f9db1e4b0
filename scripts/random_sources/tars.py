"""Tar shards of random sizes, with keys that come back in another shard and samples beyond the size limit."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from random_sources.place import Place, require
from random_sources.readers import mds_samples, mds_shards, shard_names, tar_bytes, tar_samples

Content = tuple[str, tuple[tuple[str, bytes], ...]]
"""A key and the fields of a sample, sorted by name."""


def check(place: Place, rng: random.Random) -> str:
    """Checks and converts a source of samples whose sizes differ much."""
    return rng.choice([check_tars, check_tars, check_limit])(place, rng)


def size(rng: random.Random) -> int:
    return rng.choice([0, 1, 10, 511, 512, 513, 1023, 1024, 1025, 3000, 9000, 20000])


def fields(rng: random.Random) -> dict[str, bytes]:
    names = rng.sample(["txt", "cls", "bin", "json"], rng.randint(1, 4))
    values = {
        "txt": lambda: rng.choice("abcé") * size(rng),
        "cls": lambda: str(rng.randrange(1000)),
        "json": lambda: json.dumps({"n": rng.randrange(10**9), "x": "y" * size(rng)}),
    }
    return {name: values[name]().encode() if name in values else rng.randbytes(size(rng)) for name in names}


def check_tars(place: Place, rng: random.Random) -> str:
    """Tar files by Python's tarfile."""
    (place / "in").mkdir()
    shards: list[list[Content]] = []
    keys: list[str] = []
    for number in range(rng.randint(1, 4)):
        shard: list[Content] = []
        for at in range(rng.choice([1, 2, 5])):
            again = [key for key in keys if key not in [own for own, _ in shard]]
            is_again = bool(again) and rng.random() < 0.08
            key = rng.choice(again) if is_again else f"{rng.choice(['', 'a/', 'b/c/'])}{number:02}-{at:03}"
            shard.append((key, tuple(sorted(fields(rng).items()))))
        keys += [key for key, _ in shard]
        members = [(f"{key}.{name}", data) for key, own in shard for name, data in own]
        packed = rng.choice(["", "", ".gz"])
        (place / "in" / f"shard-{number:06}.tar{packed}").write_bytes(tar_bytes(members, "w:gz" if packed else "w"))
        shards.append(shard)
    samples = [sample for shard in shards for sample in shard]
    repeated = [key for key, count in Counter(key for key, _ in samples).items() if count > 1]
    shown = "\n".join(f"  {number}: {[key for key, _ in shard]}" for number, shard in enumerate(shards))
    for args in (["in"], ["in", "--deep"]):
        done = place.run("verify", *args)
        if repeated:
            named = [key for key in repeated if f"`{key}`" in done.stderr]
            require(done.status == 3 and named, f"keys that are in two shards are not reported: {repeated}\n{shown}\n{done}")
        else:
            require(done.status == 0, f"tar files without a repeated key\n{shown}\n{done}")
    target = rng.choice(["mds", "webdataset"])
    limit = rng.choice([1024, 4096, 12000, 65536])
    columns = {name for _, own in samples for name, _ in own}
    nulls = "--nulls=omit" if target == "webdataset" else "--nulls=mask"
    done = place.convert("in", "out", f"--to={target}", "--compression=none", f"--size-limit={limit}", nulls)
    if done.status != 0:
        named = any(key in done.first_error for key in repeated)
        require(done.refused and named, f"neither converted nor refused for a repeated key\n{shown}\n{done}")
        return "refused"
    check_shards(place.root / "out", target, limit)
    compare(contents(place / "out", target, columns), samples, f"{shown}\n{done}")
    done = place.run("verify", "out", "--deep")
    require(done.status == 0 or repeated, f"verify of the result\n{shown}\n{done}")
    return "equal, repeated keys" if repeated else "equal"


def compare(found: list[Content], wanted: list[Content], hint: str) -> None:
    ours, theirs = Counter(found), Counter(wanted)
    extra = [key for key, _ in (ours - theirs).elements()]
    lost = [key for key, _ in (theirs - ours).elements()]
    require(ours == theirs, f"{len(found)} samples of {len(wanted)}; differ {extra[:3]}, missing {lost[:3]}\n{hint}")


def contents(folder: Path, target: str, columns: set[str]) -> list[Content]:
    """The samples of a dataset with the fields that they have."""
    if target == "webdataset":
        found = [sample for name in shard_names(folder) for sample in tar_samples(folder / name)]
        return [(key, tuple(sorted(own.items()))) for key, own in found]
    out: list[Content] = []
    for sample in mds_samples(folder):
        present = [name for name in columns if f"{name}__is_null" not in sample or sample[f"{name}__is_null"].value() == 0]
        out.append((sample["__key__"].value(), tuple(sorted((name, sample[name].raw) for name in present))))
    return out


def check_shards(folder: Path, target: str, limit: int) -> None:
    """No shard is empty, and one beyond the limit has a single sample."""
    if target == "mds":
        counts = {name: len(samples) for name, samples in mds_shards(folder)}
    else:
        counts = {name: len(tar_samples(folder / name)) for name in shard_names(folder)}
    entries = [entry["samples"] for entry in json.loads((folder / "index.json").read_text())["shards"]]
    require(entries == list(counts.values()), f"the index says {entries}, the shards have {counts}")
    for name, count in counts.items():
        require(count > 0, f"{name} has no sample: {counts}")
        length = (folder / name).stat().st_size
        require(length <= limit or count == 1, f"{name} has {count} samples and {length} bytes, the limit is {limit}")
    on_disk = {path.name for path in folder.iterdir() if path.suffix in (".tar", ".mds")}
    require(on_disk == {Path(name).name for name in counts}, f"files {sorted(on_disk)}, the index names {sorted(counts)}")


def check_limit(place: Place, rng: random.Random) -> str:
    """A table with rows beyond the size limit, to every format."""
    rows = [(number, "y" * size(rng)) for number in range(rng.randint(1, 12))]
    pq.write_table(pa.table({"id": [n for n, _ in rows], "text": [text for _, text in rows]}), place / "in.parquet", row_group_size=4)
    target = rng.choice(["mds", "webdataset"])
    limit = rng.choice([1, 512, 1024, 2048, 4096])
    done = place.convert("in.parquet", "out", f"--to={target}", "--compression=none", f"--size-limit={limit}")
    if done.status != 0:
        require(done.refused and ("size" in done.stderr or "limit" in done.stderr), f"neither converted nor refused\n{done}")
        return "refused"
    check_shards(place / "out", target, limit)
    if target == "mds":
        found = [(sample["id"].value(), sample["text"].value()) for sample in mds_samples(place / "out")]
    else:
        own = [fields for name in shard_names(place / "out") for _, fields in tar_samples(place / "out" / name)]
        found = [(int(fields["id"]), fields["text"].decode()) for fields in own]
    require(found == rows, f"{len(found)} rows of {len(rows)}\n{done}")
    return "equal"
