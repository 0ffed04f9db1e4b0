"""The same samples for every worker of every rank as the original deals them, and the same rest of a stopped epoch.

SHARDMILL_CASES and SHARDMILL_SEED choose how many random configurations are compared, and which.
"""

import json
import sys

import numpy as np
import pytest
from conftest import CASES, ROOT, SEED
from streaming import MDSWriter, StreamingDataLoader, StreamingDataset

sys.path.insert(0, str(ROOT / "crates" / "order" / "testdata"))

import configs  # noqa: E402
import differential  # noqa: E402

# The original warns of small datasets.
pytestmark = pytest.mark.filterwarnings("ignore")


def check(program, asked):
    compared = differential.compare(program, asked)
    assert not compared.differences, "\n".join(compared.differences)
    assert compared.counts["equal"] >= len(asked) // 2, compared


def test_random_orders_match_streaming(pytestconfig):
    check(pytestconfig.shardmill_bin, configs.configs(SEED, CASES))


def test_weighted_orders_match_streaming(pytestconfig):
    check(pytestconfig.shardmill_bin, configs.weighted(SEED, CASES))


def test_large_orders_match_streaming(pytestconfig):
    check(pytestconfig.shardmill_bin, configs.large(SEED, 5))


SAMPLES, BATCH = 103, 4


def loader(folder, **options):
    data = StreamingDataset(local=str(folder), batch_size=BATCH, shuffle=True, shuffle_seed=5, shuffle_block_size=40,
                            num_canonical_nodes=2, **options)  # fmt: skip
    return StreamingDataLoader(data, batch_size=BATCH, num_workers=0)


def ids(batch):
    return np.asarray(batch["id"]).tolist()


@pytest.mark.parametrize("algo", configs.ALGOS)
def test_resumed_epoch_order_matches_streaming(algo, run, tmp_path):
    with MDSWriter(out=str(tmp_path / "data"), columns={"id": "int"}, size_limit=300) as out:
        for number in range(SAMPLES):
            out.write({"id": number})
    order = ["order", tmp_path / "data", "--json", "--batch-size", BATCH, "--shuffle", "--shuffle-algo", algo,
             "--shuffle-seed", 5, "--shuffle-block-size", 40, "--num-canonical-nodes", 2]  # fmt: skip
    first = loader(tmp_path / "data", shuffle_algo=algo)
    batches, states = [], []
    for batch in first:
        batches.append(ids(batch))
        states.append(first.state_dict())
    assert [line["samples"] for line in run(*order).lines()] == batches
    for done in (1, 9, 24):
        # With what shardmill adds to a state, which the original ignores.
        state = {**states[done - 1], "shardmill": {"version": 1, "fingerprint": "0" * 32}}
        again = loader(tmp_path / "data", shuffle_algo=algo)
        again.load_state_dict(state)
        assert [ids(batch) for batch in again] == batches[done:]

        del state["shardmill"]
        (tmp_path / "state.json").write_text(json.dumps(state))
        rest = run(*order, "--resume", tmp_path / "state.json").lines()
        assert [line["samples"] for line in rest] == batches[done:]
