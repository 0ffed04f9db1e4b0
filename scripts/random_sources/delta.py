"""Delta tables with a random history, converted step by step: rows that were deleted never come back."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from random_sources.delta_log import Row, Table
from random_sources.place import Place, require
from random_sources.readers import Sample, live, mds_samples, shard_names, tar_samples, tombstones


def row_of(sample: Sample) -> Row:
    return sample["id"].value(), sample["text"].value(), sample["score"].value()


def compare(what: str, found: list[Row], wanted: list[Row], hint: object = "") -> None:
    """Compares rows as multisets."""
    ours, theirs = Counter(found), Counter(wanted)
    extra, lost = list((ours - theirs).elements()), list((theirs - ours).elements())
    require(
        ours == theirs,
        f"{what}: {len(found)} rows, the table has {len(wanted)}; {len(extra)} that it does not have, such as {extra[:2]}, "
        f"and {len(lost)} are missing, such as {lost[:2]}\n{hint}",
    )


class Rows:
    """Makes rows. Some of them are the same as an earlier one."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.made: list[Row] = []

    def some(self) -> list[Row]:
        out = []
        for _ in range(self.rng.choice([1, 2, 5, 20])):
            if self.made and self.rng.random() < 0.1:
                out.append(self.rng.choice(self.made))
                continue
            number = len(self.made)
            self.made.append((number, f"row {number} " + "x" * self.rng.choice([0, 3, 300]), self.rng.choice([0.5, -1.0, 1e300, number / 7])))
            out.append(self.made[-1])
        return out


def step(table: Table, rows: Rows, rng: random.Random) -> str:
    """One random operation on a table, by its name."""
    share = rng.choice([0.1, 0.5, 1.0])
    marked = {row[0] for row in table.rows() if rng.random() < share}
    name = rng.choice(["append", "append", "delete", "delete", "rewrite", "update", "overwrite", "optimize", "vacuum"])
    if name == "append":
        table.append(rows.some())
    elif name == "delete":
        table.delete(lambda row: row[0] in marked)
    elif name == "rewrite":
        table.rewrite(lambda row: None if row[0] in marked else row)
    elif name == "update":
        table.rewrite(lambda row: (row[0], row[1] + "!", row[2]) if row[0] in marked else row)
    elif name == "overwrite":
        kept = [row for row in table.rows() if row[0] not in marked]
        table.overwrite(kept + rows.some() if rng.random() < 0.8 else [])
    elif name == "optimize":
        table.optimize()
    else:
        table.vacuum()
    return name


def check(place: Place, rng: random.Random) -> str:
    """Converts a table after each of its steps, and uses the result as readers do."""
    rows = Rows(rng)
    table = Table(place / "table", rng)
    table.append(rows.some())
    history = ["append"]
    args = ["--incremental", f"--compression={rng.choice(['none', 'zstd:1'])}"]
    if rng.random() < 0.5:
        args.append(f"--samples-per-shard={rng.choice([1, 3, 10])}")
    out = place / "out"
    for _ in range(rng.randint(2, 5)):
        for _ in range(rng.choice([1, 1, 2])):
            history.append(step(table, rows, rng))
        done = place.convert("table", "out", *args)
        require(done.status == 0, f"after {history}\n{done}")
        compare(f"after {history}", [row_of(sample) for sample in live(out)], table.rows(), done)
    done = place.run("verify", "out", "--deep")
    require(done.status == 0, f"verify --deep after {history}\n{done}")
    uses = [use_as_source, use_merged, use_streamed, use_damaged]
    for use in rng.sample(uses, rng.choice([1, 2, 4])):
        use(place, rng, out, table.rows())
    return "equal"


def use_as_source(place: Place, rng: random.Random, out: Path, wanted: list[Row]) -> None:
    """A dataset with deleted samples as the source of another one."""
    for target in rng.sample(["mds", "webdataset"], rng.choice([1, 2])):
        copy = place / f"copy-{target}"
        args = ["--column=json:json=named_struct('id', id, 'text', text, 'score', score)"] if target == "webdataset" else []
        done = place.convert(out.name, copy.name, f"--to={target}", "--compression=none", *args)
        if done.refused and not place.index(out)["shards"]:
            # A table that never had a row has become a dataset without shards, which names no columns.
            continue
        require(done.status == 0, f"as the source of {target}\n{done}")
        compare(f"as the source of {target}", copied(copy, target), wanted, done)
        checked = place.run("verify", copy.name, "--deep")
        require(checked.status == 0, f"verify --deep of a copy\n{checked}")


def copied(folder: Path, target: str) -> list[Row]:
    """The rows of a copy, as its readers find them."""
    if target == "mds":
        return [row_of(sample) for sample in mds_samples(folder)]
    values: list[dict[str, Any]] = []
    for name in shard_names(folder):
        values += [json.loads(fields["json"]) for _, fields in tar_samples(folder / name)]
    return [(value["id"], value["text"], float(value["score"])) for value in values]


def use_merged(place: Place, rng: random.Random, out: Path, wanted: list[Row]) -> None:
    """A dataset with deleted samples merged with another one."""
    more = [(10**6 + number, f"more {number}", 0.25) for number in range(rng.choice([1, 7]))]
    columns = {name: [row[at] for row in more] for at, name in enumerate(("id", "text", "score"))}
    pq.write_table(pa.table(columns), place / "more.parquet")
    root = place / "merged"
    root.mkdir()
    shutil.copytree(out, root / "table")
    require(place.convert("more.parquet", "merged/more").status == 0, "the second dataset")
    names = rng.sample(["merged/table", "merged/more"], 2)
    done = place.run("index", "merge", *names, "--out", "merged")
    if done.status != 0:
        require(done.refused and tombstones(out), f"merging is refused\n{done}")
        require("tombstone" in done.stderr or "deleted" in done.stderr, f"the refusal does not say why\n{done}")
        return
    both = wanted + more
    compare("merged", [row_of(sample) for sample in live(root)], both, done)
    checked = place.run("verify", "merged")
    require(checked.status == 0, f"verify of a merged dataset\n{checked}")
    stream(place, rng, root, both)


def use_streamed(place: Place, rng: random.Random, out: Path, wanted: list[Row]) -> None:
    """A dataset with deleted samples on one to three ranks."""
    stream(place, rng, out, wanted)


def stream(place: Place, rng: random.Random, folder: Path, wanted: list[Row]) -> None:
    """Streams a dataset by the core of shardmill. Each rank has as many samples as the others; only repeats fill up."""
    from shardmill import StreamingDataset

    if not wanted:
        return
    ranks = rng.randint(1, 3)
    shuffle = rng.random() < 0.5
    found: list[list[Row]] = []
    lengths = set()
    for rank in range(ranks):
        world = {"rank": rank, "world_size": ranks, "local_world_size": ranks}
        dataset = StreamingDataset(local=str(folder), batch_size=1, shuffle=shuffle, num_canonical_nodes=1, **world)
        lengths.add(len(dataset))
        own = [(int(sample["id"]), str(sample["text"]), float(sample["score"])) for sample in dataset]
        require(len(own) == len(dataset), f"rank {rank} of {ranks}: {len(own)} samples, its length is {len(dataset)}")
        require(dataset.num_samples == len(wanted), f"num_samples is {dataset.num_samples}, the table has {len(wanted)} rows")
        found.append(own)
    require(len(lengths) == 1, f"lengths of {ranks} ranks: {lengths}")
    every = Counter(row for own in found for row in own)
    table = Counter(wanted)
    extra, lost = every.keys() - table.keys(), table - every
    what = f"streamed on {ranks} ranks, shuffle {shuffle}"
    require(not extra, f"{what}: {len(extra)} rows that the table does not have, such as {list(extra)[:2]}")
    require(not lost, f"{what}: {sum(lost.values())} rows are missing, such as {list(lost)[:2]}")
    require(sum(every.values()) - len(wanted) < ranks, f"{what}: {sum(every.values())} samples for {len(wanted)} rows")


def use_damaged(place: Place, rng: random.Random, out: Path, wanted: list[Row]) -> None:
    """A dataset that lost its list of deleted samples, an entry of that list, or a shard of its index."""
    damages = ["shard"] if json.loads((out / "index.json").read_text())["shards"] else []
    if tombstones(out):
        damages += ["list of tombstones", "entry"]
    for damage in damages:
        copy = place / f"damaged-{damages.index(damage)}"
        shutil.copytree(out, copy)
        if damage == "list of tombstones":
            (copy / "index.tombstones").unlink()
        else:
            path = copy / ("index.tombstones" if damage == "entry" else "index.json")
            content = json.loads(path.read_text())
            entries = content["samples" if damage == "entry" else "shards"]
            gone = entries.pop(rng.randrange(len(entries)))
            if damage == "entry" and rng.random() < 0.5:
                content["count"] -= gone[1] - gone[0]
            path.write_text(json.dumps(content))
        done = place.run("verify", copy.name)
        require(done.status == 3, f"verify after a {damage} was removed\n{done}")
        shutil.rmtree(copy)
