"""Encodings that a program registers, and samples with different columns: both packages write and read the same.

Needs the package `shardmill` beside mosaicml-streaming. SHARDMILL_CASES and SHARDMILL_SEED choose how many random cases
there are and which, as in test_byte_identity.py.
"""

import json
import random

import numpy as np
import peer
import pytest
import torch
from conftest import CASES, SEED
from streaming import LocalDataset
from streaming.base.format.mds import encodings as theirs
from torch.utils.data import DataLoader, default_collate

shardmill = pytest.importorskip("shardmill")
from shardmill.base.format.mds import encodings as ours  # noqa: E402


class Rev:
    """Text from right to left."""

    size = None

    def encode(self, obj):
        return obj[::-1].encode()

    def decode(self, data):
        return data.decode()[::-1]


class Latent:
    """Fractions as bytes."""

    size = None

    def encode(self, obj):
        return np.round(obj * 255).astype(np.uint8).tobytes()

    def decode(self, data):
        return np.frombuffer(data, np.uint8).astype(np.float32) / 255


class Pair:
    """Two numbers, in as many bytes in every sample."""

    size = 16

    def encode(self, obj):
        return np.array(obj, np.int64).tobytes()

    def decode(self, data):
        return np.frombuffer(data, np.int64).copy()


class Shifted:
    """A number beside the parameter of the encoding."""

    size = None

    def __init__(self, shift=0):
        self.shift = shift

    @classmethod
    def from_str(cls, text):
        return cls(int(text))

    def encode(self, obj):
        return str(obj + self.shift).encode()

    def decode(self, data):
        return int(data) - self.shift


class Sizeless(Shifted):
    """No bytes at all, for a size of 0, which means none."""

    size = 0


def texts(rng):
    return "".join(rng.choice("abcé→😀") for _ in range(rng.randint(0, 9)))


def latents(rng):
    return np.array([rng.randint(0, 255) for _ in range(rng.randint(0, 5))], np.float32) / 255


def pairs(rng):
    return (rng.randint(-(2**40), 2**40), rng.randint(0, 9))


def numbers(rng):
    return rng.randint(-(10**rng.choice([9, 20])), 10**9)


OWN = {Rev: texts, Latent: latents, Pair: pairs, Shifted: numbers, Sizeless: numbers}
# Names of the format that are replaced, and others.
NAMES = ["str", "uint8", "int", "bytes", "int64", "json", "float32", "pil", "own", "x/y", "é", "list[own]"]
STOCK = {
    "str": texts,
    "int": lambda rng: rng.randint(-9, 9),
    "float32": lambda rng: np.float32(rng.random()),
    "json": lambda rng: {"a": rng.random(), "b": [texts(rng)]},
    "ndarray": lambda rng: np.arange(rng.randint(1, 5), dtype=np.int16),
    "ndarray:uint8:2": lambda rng: np.array([rng.randint(0, 9), 1], np.uint8),
}


def register(rng, monkeypatch):
    """Registers some classes in both packages, and returns the encodings that columns can have, with their values."""
    known = dict(STOCK)
    for name in rng.sample(NAMES, rng.randint(1, 5)):
        cls = rng.choice(list(OWN))
        for module in (ours, theirs):
            monkeypatch.setitem(module._encodings, name, cls)
        known.pop(name, None)
        known[name] = OWN[cls]
        if cls in (Shifted, Sizeless) and rng.random() < 0.5:
            known[f"{name}:{rng.randint(-5, 5)}"] = OWN[cls]
    return known


def alike(ours, theirs):
    assert list(ours) == list(theirs)
    for name, value in theirs.items():
        assert peer.plain(ours[name]) == peer.plain(value), name


def same_batch(found, expected):
    """Whether batches of torch are the same, with all that is inside of them."""
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name in expected:
            same_batch(found[name], expected[name])
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected):
            same_batch(one, other)
    elif isinstance(expected, torch.Tensor):
        assert found.dtype == expected.dtype and torch.equal(found, expected)
    else:
        assert found == expected


def same_column(found, expected):
    """Whether an array has these values, which are numbers or objects."""
    if found.dtype == object:
        assert [peer.plain(value) for value in found] == [peer.plain(value) for value in expected]
    else:
        np.testing.assert_array_equal(found, np.array(expected))


def collated(samples):
    """What torch makes of samples, or nothing where it cannot."""
    try:
        return default_collate(samples)
    except (RuntimeError, TypeError, ValueError):
        return None


@pytest.mark.parametrize("case", range(CASES), ids=lambda n: f"case[{n}]")
def test_registered_encodings_are_written_and_read_alike(case, tmp_path, monkeypatch):
    rng = random.Random(f"{SEED} registered {case}")
    known = register(rng, monkeypatch)
    columns = {f"c{n}": rng.choice(list(known)) for n in range(rng.randint(1, 5))}
    # A class of no size and the same column of size 0 are one.
    samples = [{name: known[encoding](rng) for name, encoding in columns.items()} for _ in range(rng.randint(1, 30))]
    options = {"size_limit": rng.choice([None, 100, 1000]), "compression": rng.choice([None, None, "zstd"])}
    folders = []
    for name, writer in (("ours", shardmill.MDSWriter), ("theirs", peer.MDSWriter)):
        folders.append(tmp_path / name)
        problem = None
        try:
            with writer(columns=columns, out=str(folders[-1]), **options) as out:
                for sample in samples:
                    out.write(sample)
        except Exception as error:  # noqa: BLE001
            problem = error
        folders[-1] = (folders[-1], problem)
    (own, failed), (other, fails) = folders
    # The original refuses values whose bytes do not have the size of the class, and so does ours.
    assert (failed is None) == (fails is None), f"{columns}: {failed!r} and {fails!r}"
    if failed is not None:
        return
    found = peer.difference(own, other)
    assert found is None, f"SHARDMILL_SEED={SEED} case {case}: {columns} {options}\n{found}"
    if options["compression"]:
        peer.streamed(other)
    expected = LocalDataset(str(other))
    expected = [expected[n] for n in range(len(expected))]
    size = rng.randint(1, 5)
    for folder in (own, other):
        local = {"local": str(folder), "batch_size": size, "num_canonical_nodes": 1}
        for dataset in (shardmill.LocalDataset(str(folder)), shardmill.StreamingDataset(**local)):
            for n, sample in enumerate(expected):
                alike(dataset[n], sample)
        dataset = shardmill.StreamingDataset(**local)
        for sample, wanted in zip(dataset, expected, strict=True):
            alike(sample, wanted)
        batches = [expected[n : n + size] for n in range(0, len(expected), size)]
        for batch, samples in zip(dataset.batches(), batches, strict=True):
            for name in columns:
                same_column(batch[name], [sample[name] for sample in samples])
        if all(collated(samples) is not None for samples in batches):
            for batch, samples in zip(shardmill.StreamingDataLoader(dataset, batch_size=size), batches, strict=True):
                same_batch(batch, collated(samples))


@pytest.mark.parametrize("case", range(max(CASES // 10, 5)), ids=lambda n: f"case[{n}]")
def test_mixtures_of_different_columns_lose_no_value(case, tmp_path):
    rng = random.Random(f"{SEED} partial {case}")
    names = {"a": "int", "b": "str", "c": "json", "d": "ndarray:uint8:2"}
    folders = []
    for stream in range(rng.randint(2, 3)):
        columns = {name: names[name] for name in sorted(rng.sample(list(names), rng.randint(1, 4)))}
        folders.append(tmp_path / str(stream))
        with peer.MDSWriter(columns=columns, out=str(folders[-1]), size_limit=200) as out:
            for _ in range(rng.randint(2, 12)):
                out.write({name: STOCK[encoding](rng) for name, encoding in columns.items()})
    expected = [dataset[n] for dataset in (LocalDataset(str(folder)) for folder in folders) for n in range(len(dataset))]
    size = rng.randint(2, 6)
    options = {"batch_size": size, "num_canonical_nodes": 1, "shuffle": True}

    def dataset():
        return shardmill.StreamingDataset(streams=[shardmill.Stream(local=str(folder)) for folder in folders], **options)

    order = [json.dumps(peer.plain(sample), default=repr) for sample in dataset()]
    assert sorted(order) == sorted(json.dumps(peer.plain(sample), default=repr) for sample in expected)
    samples = list(dataset())
    for made in (shardmill.StreamingDataLoader(dataset(), batch_size=size), DataLoader(dataset(), batch_size=size), dataset().batches()):
        for start, batch in zip(range(0, len(samples), size), made, strict=True):
            part = samples[start : start + size]
            assert set(batch) == {name for sample in part for name in sample}
            for name, values in batch.items():
                wanted = [sample.get(name) for sample in part]
                if isinstance(values, np.ndarray):
                    same_column(values, wanted)
                elif any(value is None for value in wanted):
                    assert [peer.plain(value) for value in values] == [peer.plain(value) for value in wanted]
                else:
                    same_batch(values, default_collate(wanted))
