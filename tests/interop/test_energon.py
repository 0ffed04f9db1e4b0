"""Megatron-Energon prepares and reads the tar shards that shardmill writes."""

import json
import os
import random

import pytest

from conftest import SEED
from megatron.energon import Cooker, CrudeSample, DefaultTaskEncoder, WorkerConfig, get_loader, get_train_dataset, stateless
from megatron.energon.epathlib import EPath
from megatron.energon.flavors.webdataset.prepare import WebdatasetPreparator


@stateless
def as_it_is(sample):
    return sample


class AsTheyAre(DefaultTaskEncoder):
    cookers = [Cooker(as_it_is)]
    decoder = None


@pytest.mark.filterwarnings("ignore:.pin_memory. argument")
def test_energon_reads_the_dataset(run, tmp_path):
    """Its loader, without a shuffle, returns every sample with the bytes of its files. Keys end at the first dot."""
    draw = random.Random(SEED)
    wanted = {}
    for number in range(400):
        folder = tmp_path / "tree" / f"{number % 7}"
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{number:04}" if number != 77 else "n" * 80
        fields = {
            "txt": f"sample {number}".encode(),
            "seg.bin": draw.randbytes(draw.randrange(3000)),
            "json": json.dumps({"number": number}).encode(),
        }
        for field, content in fields.items():
            (folder / f"{name}.{field}").write_bytes(content)
        wanted[f"{number % 7}/{name}"] = fields
    out = tmp_path / "out"
    run("convert", tmp_path / "tree", out, "--to", "webdataset", "--samples-per-shard", "64", "--group", "key")
    tars = sorted(name for name in os.listdir(out) if name.endswith(".tar"))
    assert WebdatasetPreparator.prepare_dataset(out, tars, split_parts_ratio=[("train", 1.0)], workers=1)
    (out / ".nv-meta" / "dataset.yaml").write_text("__module__: megatron.energon\n__class__: CrudeWebdataset\n")
    dataset = get_train_dataset(
        EPath(out),
        worker_config=WorkerConfig(rank=0, world_size=1, num_workers=0),
        batch_size=None,
        shuffle_buffer_size=None,
        max_samples_per_sequence=None,
        repeat=False,
        task_encoder=AsTheyAre(),
    )
    found = {sample["__key__"]: sample for sample in get_loader(dataset)}
    assert found.keys() == wanted.keys()
    for key, fields in wanted.items():
        assert isinstance(found[key], CrudeSample)
        assert {field: found[key][field] for field in fields} == fields
