"""States of the Python packages: shardmill resumes from those of mosaicml-streaming, and the reverse.

SHARDMILL_CASES and SHARDMILL_SEED choose how many random configurations are compared, and which.
"""

import itertools
import json
import random

import numpy as np
import pytest
import shardmill
import streaming
from conftest import CASES, SEED

# The original warns of small datasets.
pytestmark = pytest.mark.filterwarnings("ignore")

# Each dataset that the original opens keeps descriptors of all those before it: for more, take other seeds.
MOST = min(max(20, CASES // 10), 60)
SIZES = (103, 59)
ALGOS = ("py1e", "py1br", "py1s", "py2s", "naive")
BATCHING = ("random", "stratified", "per_stream", "device_per_stream")
WEIGHTS = (
    ({}, {}),
    ({"proportion": 1}, {"proportion": 2}),
    ({"repeat": 0.5}, {"repeat": 1.7}),
    ({"choose": 80}, {"choose": 120}),
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two datasets; no sample is in both."""
    root = tmp_path_factory.mktemp("resume")
    first = 0
    for name, size in zip("ab", SIZES):
        with streaming.MDSWriter(out=str(root / name), columns={"id": "int", "text": "str"}, size_limit=400) as out:
            for number in range(first, first + size):
                out.write({"id": number, "text": f"sample {number}" * (number % 5)})
        first += size
    return [root / name for name in "ab"]


def loader(package, folders, config, **world):
    """A loader of one of the packages."""
    weights, options = config
    streams = [package.Stream(local=str(folder), **weight) for folder, weight in zip(folders, weights)]
    data = package.StreamingDataset(streams=streams, **{**options, **world})
    return package.StreamingDataLoader(data, batch_size=data.batch_size)


def batches(loader, most=None):
    """The numbers of the samples of the next batches, and the state behind each."""
    found, states = [], []
    for batch in itertools.islice(loader, most):
        ids = np.asarray(batch["id"]).tolist()
        assert batch["text"] == [f"sample {number}" * (number % 5) for number in ids]
        found.append(ids)
        # As it comes from a checkpoint.
        states.append(json.loads(json.dumps(loader.state_dict())))
    return found, states


def known(run):
    """Batches and states with the keys that the original knows: it ignores ours."""
    found, states = run
    return found, [{key: state[key] for key in state if key != "shardmill"} for state in states]


def config(draw):
    """A configuration that both packages carry out."""
    weights = draw.choice(WEIGHTS)
    batching = draw.choice(BATCHING)
    options = {
        "batch_size": draw.choice([3, 4, 7]),
        "shuffle": draw.random() < 0.8,
        "shuffle_algo": draw.choice(ALGOS),
        "shuffle_seed": draw.randrange(1 << 16),
        "shuffle_block_size": draw.choice([20, 60, 1000]),
        "num_canonical_nodes": draw.choice([None, 1, 2, 4]),
        "batching_method": batching,
        "sampling_method": draw.choice(["balanced", "fixed"]),
        "sampling_granularity": draw.choice([1, 1, 3]),
    }
    if "proportion" in weights[0] and draw.random() < 0.5:
        options["epoch_size"] = draw.choice([90, 200])
    return weights, options


@pytest.mark.parametrize("number", range(MOST))
def test_states_are_interchangeable_with_streaming(number, folders):
    draw = random.Random(f"{SEED} {number}")
    asked = config(draw)
    # Epoch 0 is left early, epoch 1 is stopped, epoch 2 follows.
    left = draw.randrange(1, 6)
    runs = {}
    for package in (streaming, shardmill):
        whole = loader(package, folders, asked)
        runs[package] = [batches(whole, left), batches(whole), batches(whole)]
        del whole
    assert [known(run) for run in runs[shardmill]] == runs[streaming], asked
    stopped, states = runs[streaming][1]
    assert len(stopped) > 5, asked
    cut = draw.randrange(len(stopped) - 1)
    for package, other in ((streaming, shardmill), (shardmill, streaming)):
        state = runs[other][1][1][cut]
        assert known(([], [state]))[1] == [states[cut]]
        assert ("shardmill" in state) == (other is shardmill)
        again = loader(package, folders, asked)
        again.load_state_dict(state)
        try:
            rest, later = known(batches(again))
        except ValueError as error:
            # Where canonical nodes do not divide the samples, the epoch is longer than the samples are many, and what
            # was stopped there is refused.
            assert state["sample_in_epoch"] > again.dataset.epoch_size + 1, (package.__name__, cut, asked, error)
            continue
        assert rest == stopped[cut + 1 :], (package.__name__, cut, asked)
        assert later == states[cut + 1 :], (package.__name__, cut, asked)
        assert batches(again)[0] == runs[streaming][2][0], (package.__name__, cut, asked)
        del again


@pytest.mark.parametrize("algo", ALGOS)
def test_streaming_state_resumes_with_other_rank_count(algo, folders):
    # One process there, four here; both datasets are cut to what all of them divide.
    weights = ({"choose": 96}, {"choose": 48})
    options = {"shuffle": True, "shuffle_algo": algo, "shuffle_seed": 5, "shuffle_block_size": 50}
    options |= {"num_canonical_nodes": 4, "batch_size": 12}
    theirs = loader(streaming, folders, (weights, options))
    whole, states = batches(theirs)
    del theirs
    assert len(whole) == 12
    state = states[4]
    options["batch_size"] = 3
    ranks = []
    for rank in range(4):
        ours = loader(shardmill, folders, (weights, options), rank=rank, world_size=4, local_world_size=2)
        ours.load_state_dict(state)
        found, later = batches(ours)
        assert [done["sample_in_epoch"] for done in later] == [done["sample_in_epoch"] for done in states[5:]]
        ranks.append(found)
    assert [sorted(sum(step, [])) for step in zip(*ranks)] == [sorted(batch) for batch in whole[5:]]


def test_states_are_interchangeable_with_worker_processes(folders):
    asked = WEIGHTS[0], {"batch_size": 4, "shuffle": True, "shuffle_seed": 8, "num_canonical_nodes": 2}

    def with_workers(package, persistent):
        data = loader(package, folders, asked).dataset
        return package.StreamingDataLoader(data, batch_size=4, num_workers=2, persistent_workers=persistent)

    whole, states = batches(loader(streaming, folders, asked))
    for persistent in (False, True):
        first = with_workers(streaming, persistent)
        begun, theirs = batches(first, 9)
        del first
        assert (begun, theirs) == (whole[:9], states[:9])
        ours = with_workers(shardmill, persistent)
        ours.load_state_dict(theirs[-1])
        rest, later = known(batches(ours))
        assert (rest, later) == (whole[9:], states[9:])
