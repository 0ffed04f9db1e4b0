"""Read a dataset as a training job does, with one of several packages, and say what the epochs cost.

    python peer_reader.py mosaic|neprr|shardmill|litdata|hf|memmap

A line of JSON on standard input is an order, a line on standard output its answer; the end of the input ends it:

* `{"do": "open", "path": P, "case": C, "workers": W, "batch_size": B, "seed": S, "block": K}` opens a dataset. `case` is
  `columns` (batches of torch's default collation) or `dicts` (batches are lists of dicts, by a `collate_fn` that
  returns its argument).
* `{"do": "digest"}` reads an epoch and says which samples came, in which order and as which types.
* `{"do": "epochs", "seconds": T}` reads whole epochs for at least so long and says what they cost: nothing is done with
  the batches. Import and opening are left out; starting and joining workers, once an epoch, is part of it.

`mosaic` and `neprr` are imported as `streaming`, so each has an environment of its own. `litdata` and `hf` (Hugging Face
datasets, map style) read copies in their own formats (see `convert`), and `memmap` a matrix of tokens: NumPy's `take`
into a new array for each batch, with no format, no check and no resuming.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import pathlib
import resource
import sys
import time
from typing import Any, Callable, Iterator

Settings = dict[str, Any]


def as_given(samples: list[Any]) -> list[Any]:
    """A `collate_fn` for batches that are lists of dicts."""
    return samples


# Opening: each returns an iterable that begins a new epoch every time.


def open_streaming(package: str) -> Callable[[Settings], Any]:
    """mosaicml-streaming, neprr-streaming and shardmill: one program for all three."""

    def opened(settings: Settings) -> Any:
        module = importlib.import_module(package)
        dataset = module.StreamingDataset(
            local=settings["path"],
            batch_size=settings["batch_size"],
            shuffle=True,
            shuffle_algo="py1e",
            shuffle_seed=settings["seed"],
            shuffle_block_size=settings["block"],
            num_canonical_nodes=1,
        )
        return module.StreamingDataLoader(dataset, **loading(settings))

    return opened


def loading(settings: Settings) -> Settings:
    """The arguments of torch's DataLoader."""
    arguments: Settings = {"batch_size": settings["batch_size"], "num_workers": settings["workers"]}
    if settings["case"] == "dicts":
        arguments["collate_fn"] = as_given
    return arguments


def open_litdata(settings: Settings) -> Any:
    import litdata

    dataset = litdata.StreamingDataset(settings["path"], shuffle=True, seed=settings["seed"])
    return litdata.StreamingDataLoader(dataset, **loading(settings))


def open_hf(settings: Settings) -> Any:
    import datasets
    import torch.utils.data

    dataset = datasets.load_from_disk(settings["path"])
    if settings["case"] == "columns":
        dataset = dataset.with_format("torch")
    return torch.utils.data.DataLoader(dataset, shuffle=True, **loading(settings))


class Memmap:
    """Batches of a file of fixed-size samples, the shortest way that Python has."""

    def __init__(self, settings: Settings) -> None:
        import numpy as np

        folder = pathlib.Path(settings["path"])
        # The whole file by copies of whole rows: `take` of a structured type is slow, of bytes it is memcpy.
        self.rows = np.load(folder / "rows.npy", mmap_mode="r")
        self.size = settings["batch_size"]
        self.seed = settings["seed"]

    def __iter__(self) -> Iterator[Any]:
        import numpy as np
        import torch

        order = np.random.default_rng(self.seed).permutation(len(self.rows))
        for begin in range(0, len(order), self.size):
            rows = self.rows.take(order[begin : begin + self.size], axis=0)
            yield {"id": torch.from_numpy(rows[:, :2].copy().view(np.int64)[:, 0]), "tokens": torch.from_numpy(rows[:, 2:])}


READERS: dict[str, Callable[[Settings], Any]] = {
    "mosaic": open_streaming("streaming"),
    "neprr": open_streaming("streaming"),
    "shardmill": open_streaming("shardmill"),
    "litdata": open_litdata,
    "hf": open_hf,
    "memmap": Memmap,
}


# Converting: the packages that do not read MDS get the same samples in their own format.


def parquet_rows(source: str) -> Iterator[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for batch in pq.ParquetFile(source).iter_batches(1_024):
        columns = []
        for column in batch.columns:
            if pa.types.is_fixed_size_list(column.type):
                columns.append(column.flatten().to_numpy().reshape(len(column), column.type.list_size))
            else:
                columns.append(column.to_pylist())
        for row in zip(*columns):
            yield dict(zip(batch.schema.names, row))


def convert(name: str, source: str, out: str) -> None:
    """Writes `source`, a Parquet file, as the package reads it."""
    if name == "litdata":
        from litdata.streaming.cache import Cache

        cache = Cache(input_dir=out, chunk_bytes="64MB")
        for number, row in enumerate(parquet_rows(source)):
            cache[number] = row
        cache.done()
        cache.merge()
    elif name == "hf":
        import datasets

        datasets.Dataset.from_parquet(source, cache_dir=out + ".cache").save_to_disk(out)
    elif name == "memmap":
        import numpy as np

        rows = list(parquet_rows(source))
        ids = np.array([row["id"] for row in rows], np.int64)
        tokens = np.stack([row["tokens"] for row in rows])
        os.makedirs(out)
        np.save(os.path.join(out, "rows.npy"), np.hstack([ids.view(np.int32).reshape(-1, 2), tokens]))
    else:
        sys.exit(f"{name} reads MDS")


# What came.


def canonical(value: Any) -> bytes:
    """The same bytes for a value, whether a tensor, a NumPy value or a Python one holds it."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    if hasattr(value, "numpy"):
        value = value.numpy()
    import numpy as np

    array = np.asarray(value)
    kind = {"i": np.int64, "u": np.int64, "b": np.int64, "f": np.float64}[array.dtype.kind]
    return array.astype(kind).tobytes()


def type_of(value: Any) -> str:
    """The type of a value, its dtype and shape too."""
    kind = type(value)
    text = f"{kind.__module__.split('.')[0]}.{kind.__qualname__}"
    if hasattr(value, "dtype"):
        text += f" {value.dtype} {list(value.shape)}"
    return text


def rows_of(batch: Any) -> Iterator[dict[str, Any]]:
    """The samples of a batch."""
    if isinstance(batch, list):
        yield from batch
        return
    for values in zip(*batch.values()):
        yield dict(zip(batch, values))


def types_of(batch: Any) -> dict[str, str]:
    first = batch[0] if isinstance(batch, list) else batch
    types = {name: type_of(value) for name, value in sorted(first.items())}
    for name, value in first.items():
        if isinstance(value, list):
            types[name] += f" of {type_of(value[0])}"
    return types


def status(key: str) -> int:
    """A number of /proc/self/status; 0 where there is none."""
    try:
        lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{key}:")), 0)


def digest(epoch: Any) -> dict[str, Any]:
    """One epoch, looked at value by value."""
    order, every = hashlib.blake2b(digest_size=16), 0
    samples = batches = threads = 0
    types: dict[str, str] = {}
    for batch in epoch:
        if not batches:
            types = types_of(batch)
        batches += 1
        if batches == 8:
            threads = status("Threads")
        for row in rows_of(batch):
            found = hashlib.blake2b(digest_size=16)
            for name in sorted(row):
                value = canonical(row[name])
                found.update(f"{name} {len(value)} ".encode())
                found.update(value)
            order.update(found.digest())
            every = (every + int.from_bytes(found.digest(), "little")) % (1 << 128)
            samples += 1
    return {
        "samples": samples,
        "batches": batches,
        "every": f"{every:032x}",
        "order": order.hexdigest(),
        "types": types,
        "threads": threads,
    }


def used() -> tuple[float, int, int]:
    """CPU seconds and context switches (voluntary, forced) of this process and of the children that it has waited for."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return (
        sum(usage.ru_utime + usage.ru_stime for usage in both),
        sum(usage.ru_nvcsw for usage in both),
        sum(usage.ru_nivcsw for usage in both),
    )


def epochs(loader: Any, seconds: float) -> dict[str, Any]:
    """Whole epochs, as many as fill the time, at least one."""
    number = batches = 0
    first = 0.0
    cpu, waits, forced = used()
    start = time.perf_counter()
    while True:
        begun = time.perf_counter()
        iterator = iter(loader)
        for _ in iterator:
            batches += 1
            first += time.perf_counter() - begun
            break
        for _ in iterator:
            batches += 1
        del iterator
        number += 1
        wall = time.perf_counter() - start
        if wall >= seconds:
            break
    after = used()
    return {
        "epochs": number,
        "batches": batches,
        "wall": wall,
        "first_batch": first / number,
        "cpu": after[0] - cpu,
        "waits": after[1] - waits,
        "forced": after[2] - forced,
    }


def peak_bytes() -> int:
    """The largest resident size of this process or of any child; pages of mapped files count."""
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def main() -> None:
    name = sys.argv[1]
    if len(sys.argv) == 4:
        convert(name, *sys.argv[2:])
        return
    # Some packages print: answers go where standard output was, everything else to standard error.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    importlib.import_module("torch.utils.data")
    loader: Any = None
    for line in sys.stdin:
        order = json.loads(line)
        answer: dict[str, Any] = {}
        if order["do"] == "open":
            loader = None
            loader = READERS[name](order)
            answer = {"threads": status("Threads"), "bytes": 1024 * status("VmRSS")}
        elif order["do"] == "digest":
            answer = digest(loader)
        elif order["do"] == "epochs":
            answer = {**epochs(loader, order["seconds"]), "peak_bytes": peak_bytes()}
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
