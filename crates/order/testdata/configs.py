"""Random configurations of an epoch's order, from a seed: every option, valid and invalid combinations."""

import random

ALGOS = ["naive", "py1s", "py2s", "py1br", "py1e"]
METHODS = ["random", "stratified", "per_stream", "device_per_stream"]


def sizes(rng, most):
    kind = rng.randrange(5)
    if kind == 0:
        count, top = rng.randint(1, 3), 8
    elif kind == 1:
        count, top = rng.randint(1, 60), 12
    else:
        count, top = rng.randint(1, 20), most
    found = [rng.randint(1, top) for _ in range(count)]
    if rng.random() < 0.3:
        found = [found[0]] * count
    if rng.random() < 0.2:
        for _ in range(rng.randint(1, 3)):
            found.insert(rng.randint(0, len(found)), 0)
    return found


def stream(rng, kind, most):
    found = {"shards": sizes(rng, most)}
    total = sum(found["shards"])
    if kind == "proportion":
        found["proportion"] = rng.choice([rng.random(), rng.randint(1, 4), 0.25, 1 / 3])
    elif kind == "absolute":
        pick = rng.randrange(4)
        if pick == 0:
            found["repeat"] = rng.choice([rng.random() * 3, 1.0, 2, 0.5])
        elif pick == 1:
            found["choose"] = rng.randint(0 if rng.random() < 0.1 else 1, total * 3)
    return found


def config(rng, number):
    most = rng.choice([20, 150, 700])
    kind = rng.choice(["none", "none", "proportion", "absolute"])
    method = rng.choice(METHODS + ["random"] * 2)
    count = rng.choice([1, 2, 2, 3] if method != "random" else [1, 1, 2, 3, 9])
    streams = [stream(rng, kind, most) for _ in range(count)]
    total = sum(sum(one["shards"]) for one in streams)
    nodes, ranks, workers = rng.randint(1, 3), rng.choice([1, 2, 3, 4, 8]), rng.choice([1, 1, 2, 3])
    canonical = rng.choice([None, 1, nodes, 2 * nodes, 4 * nodes, 6, rng.randint(1, 12)])
    batch = rng.choice([1, 2, 3, 4, 8, rng.randint(1, 32)])
    found = {
        "id": number,
        "streams": streams,
        "epoch_size": rng.choice([None, 0, rng.randint(1, 2 * total)]) if kind != "absolute" or rng.random() < 0.05
        else None,
        "num_canonical_nodes": canonical,
        "shuffle_block_size": rng.choice([None, rng.randint(1, 20), rng.randint(20, 1000), rng.randint(1000, 20000)]),
        "replication": rng.choice([None] * 6 + [1, 2, nodes * ranks, rng.randint(1, 4)]),
        "batch_size": batch,
        "shuffle": rng.random() < 0.85,
        "shuffle_algo": rng.choice(ALGOS),
        "shuffle_seed": rng.choice([9176, 0, rng.randrange(1 << 20), rng.randrange(1 << 40)]),
        "sampling_method": rng.choice(["balanced", "fixed"]),
        "sampling_granularity": rng.choice([1, 1, 1, 3, rng.randint(1, 50)]),
        "partition_algo": rng.choice(["orig", "relaxed", "relaxed"]),
        "batching_method": method,
        "nodes": nodes,
        "ranks_per_node": ranks,
        "workers_per_rank": workers,
        "epoch": rng.choice([0, 0, 1, 2, rng.randint(0, 1000)]),
        "resume": None,
    }
    if rng.random() < 0.4:
        step = nodes * ranks * batch
        done = rng.choice([0, step * rng.randint(0, total // step + 2), rng.randint(0, total)])
        found["resume"] = {
            "epoch": max(0, found["epoch"] + rng.choice([0, 0, 0, 1, -1])),
            "sample_in_epoch": done,
            "num_canonical_nodes": canonical or rng.choice([1, 2, 4, nodes]),
            "shuffle_seed": rng.choice([found["shuffle_seed"], 77]),
            "initial_physical_nodes": rng.choice([None, nodes, 1, 2, 3, 4]),
        }
    return found


def tied(found):
    """Whether a stratified batch has equal remainders, which the original's unstable sort orders as the CPU likes."""
    return found["batching_method"] == "stratified" and len(found["streams"]) >= 4


def configs(seed, number):
    rng = random.Random(seed)
    out = []
    while len(out) < number:
        found = config(rng, len(out))
        if not tied(found):
            out.append(found)
    return out


def weighted(seed, number):
    """Weights that come to whole samples, or to a hair less: a double that is read one unit off takes another sample."""
    rng = random.Random(seed)
    out = []
    while len(out) < number:
        found = config(rng, len(out))
        if tied(found):
            continue
        parts = rng.choice([7, 11, 13, 17, 19, 23, 97])
        kind = rng.choice(["proportion", "repeat"])
        unit = parts if kind == "repeat" else 1
        found["streams"] = [{"shards": [unit * rng.randint(1, 20) for _ in range(rng.randint(1, 4))],
                             kind: rng.randint(1, 2 * parts) / parts} for _ in found["streams"][:4]]
        if kind == "proportion" and rng.random() < 0.5:
            total = sum(one[kind] for one in found["streams"])
            for one in found["streams"]:
                one[kind] /= total
        found.update(epoch_size=parts * rng.randint(1, 20) if kind == "proportion" else None, num_canonical_nodes=None,
                     replication=None, batch_size=4, nodes=1, ranks_per_node=1, workers_per_rank=1, resume=None)
        out.append(found)
    return out


def large(seed, number):
    """Epochs of some 10^6 samples, so that an order has many windows; every shuffle in turn, valid for the original."""
    rng = random.Random(seed)
    out = []
    for index in range(number):
        found = config(rng, index)
        top = rng.choice([500, 5000, 60000])
        count = rng.randint(800_000, 1_500_000) // top * 2
        found["streams"] = [{"shards": [rng.randint(top // 2, top) for _ in range(max(count // parts, 3))]}
                            for parts in rng.choice([[1], [2, 2], [2, 3]])]
        nodes = rng.choice([1, 2])
        found.update(
            epoch_size=None, num_canonical_nodes=rng.choice([nodes, 8, 64]), replication=None, batch_size=64, shuffle=True,
            shuffle_block_size=rng.choice([None, 20_000, 100_000]), shuffle_algo=ALGOS[index % len(ALGOS)], nodes=nodes,
            ranks_per_node=2, workers_per_rank=2, resume=None, epoch=index, sampling_granularity=1,
            batching_method=rng.choice(METHODS + ["random"] * 3))
        if rng.random() < 0.4:
            found["streams"][0]["repeat"] = rng.choice([0.4, 1.3])
        if rng.random() < 0.4:
            found["resume"] = {"epoch": index, "sample_in_epoch": 256 * rng.randint(0, 2000),
                               "num_canonical_nodes": found["num_canonical_nodes"], "shuffle_seed": 5,
                               "initial_physical_nodes": nodes}
        out.append(found)
    return out
