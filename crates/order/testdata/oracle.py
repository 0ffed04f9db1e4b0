"""The order of mosaicml-streaming 0.13.0 for a configuration in the form of `shardmill order --json`.

The dataset is built without files: a stand-in carries the attributes that the original's own functions read, and
those functions (weights, resampling, resume, batching) are called as they are.
"""

import json
import logging
import warnings
from types import SimpleNamespace

import numpy as np
import streaming
from streaming.base.batching import generate_work
from streaming.base.dataset import StreamingDataset
from streaming.base.stream import Stream
from streaming.base.world import World

assert streaming.__version__ == "0.13.0", streaming.__version__
assert np.__version__ == "2.1.3", np.__version__
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
np.seterr(all="ignore")


def world_of(config, rank, worker):
    """The world as one loader worker detects it."""
    per_rank, per_node = config["workers_per_rank"], config["ranks_per_node"]
    return World(config["nodes"], per_node, per_rank, rank * per_rank + worker)


def stand_in(config):
    """What the constructor leaves behind, as far as the order reads it."""
    if config["sampling_granularity"] <= 0 or config["shuffle_seed"] < 0:
        raise ValueError("refused by the constructor")
    if config["sampling_method"] not in ("balanced", "fixed"):
        raise ValueError("refused by the constructor")
    streams, samples, sizes = [], [], []
    for given in config["streams"]:
        weight = {name: given[name] for name in ("proportion", "repeat", "choose") if given.get(name) is not None}
        streams.append(Stream(local="/nowhere", **weight))
        samples.append(sum(given["shards"]))
        sizes += given["shards"]
        if not samples[-1]:
            raise RuntimeError("stream contains no samples")
    Stream.validate_weights(streams)
    shards = [len(given["shards"]) for given in config["streams"]]
    dataset = SimpleNamespace(
        streams=streams,
        num_streams=len(streams),
        samples_per_shard=np.array(sizes, np.int64),
        shards_per_stream=np.array(shards, np.int64),
        shard_offset_per_stream=np.array(shards, np.int64).cumsum() - np.array(shards, np.int64),
        initial_physical_nodes=None,
        epoch_seed_change=config["shuffle"] and config["sampling_method"] == "balanced",
    )
    dataset.sample_offset_per_shard = dataset.samples_per_shard.cumsum() - dataset.samples_per_shard
    for name in ("sampling_method", "sampling_granularity", "partition_algo", "num_canonical_nodes", "batch_size",
                 "shuffle", "shuffle_algo", "shuffle_seed", "shuffle_block_size", "batching_method", "replication"):
        setattr(dataset, name, config[name])
    dataset.epoch_size = Stream.apply_weights(streams, np.array(samples, np.int64), config["epoch_size"],
                                           config["shuffle_seed"])
    dataset.resample_streams = lambda *args: StreamingDataset.resample_streams(dataset, *args)
    return dataset


class Shared:
    """A named block of memory that holds a state, or none."""

    def __init__(self, state):
        self.state = state

    def __call__(self, name, create):
        if self.state is None:
            raise FileNotFoundError(name)
        return SimpleNamespace(buf=json.dumps(self.state).encode() + b"\0")


def work(config):
    """The tensor of an epoch: [node][rank of node][worker][batch][sample]."""
    import streaming.base.dataset as module

    dataset = stand_in(config)
    world = world_of(config, 0, 0)
    if config["replication"] is not None:
        world = world.replicate(config["replication"])
    dataset._set_shuffle_block_size = lambda world: StreamingDataset._set_shuffle_block_size(dataset, world)
    dataset._shm_prefix_int = 0
    before, module.SharedMemory = module.SharedMemory, Shared(config["resume"])
    try:
        epoch, sample = StreamingDataset._resume(dataset, world, config["epoch"])
    finally:
        module.SharedMemory = before
    return generate_work(config["batching_method"], dataset, world, epoch, sample)


def orders(config):
    """Sample ids of every worker of every rank, padding left out, as the original's `__iter__` yields them."""
    tensor = work(config)
    out = []
    for rank in range(config["nodes"] * config["ranks_per_node"]):
        out.append([])
        for worker in range(config["workers_per_rank"]):
            world = world_of(config, rank, worker)
            if config["replication"] is not None:
                world = world.replicate(config["replication"])
            ids = tensor[world.node, world.rank_of_node, world.worker_of_rank].flatten()
            out[-1].append(ids[ids != -1].tolist())
    return out
