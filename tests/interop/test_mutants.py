"""Damaged values: whatever ours reads of them, the original reads too, and to the same value.

Ours may refuse more (lengths that lie, looser numbers); it may not refuse what the original writer wrote, which the
fixtures check. Pickles are left out, since reading one runs it, and PIL frames, whose lying sizes the original allocates.
Image files in lists are compared as bytes: ours does not look into them.
"""

import random

import peer
import pytest
from conftest import CASES, FIXTURES, SEED
from shown import same, tag
from streaming.base.format.mds.encodings import JPEG, mds_decode

ENCODINGS = {
    "str": "str", "str_int": "str_int", "str_float": "str_float", "str_decimal": "str_decimal", "json": "json",
    "ndarray": "ndarray", "jpeg_array": "jpeg_array", "list[jpeg]": "list-jpeg",
}  # fmt: skip
BYTES = b"\x00\x01\x03\x04\x08\x7f\x80\xff0159-+_.eE \"\\u{}[],:nNaA\xc3\xa9"


def data_of(fixture):
    """The stored values of a fixture with one column of varying length."""
    (shard,) = peer.index(FIXTURES / fixture)["shards"]
    assert shard["column_sizes"] == [None] and shard["compression"] is None
    data = (FIXTURES / fixture / shard["raw_data"]["basename"]).read_bytes()
    word = lambda n: int.from_bytes(data[4 * n : 4 * n + 4], "little")  # noqa: E731
    return [data[word(1 + n) + 4 : word(2 + n)] for n in range(word(0))]


def mutate(rng, datum):
    out = bytearray(datum[:2000])
    for _ in range(rng.choice([0, 1, 1, 2, 4])):
        at = rng.randint(0, len(out))
        match rng.randint(0, 4):
            case 0:
                del out[at:]
            case 1:
                out.insert(at, rng.choice(BYTES))
            case 2 if at < len(out):
                out[at] ^= 1 << rng.randint(0, 7)
            case 3 if at < len(out):
                out[at] = rng.choice(BYTES)
            case 4 if at < len(out):
                del out[at]
    return bytes(out)


def theirs(encoding, datum):
    """What the original reads, or None."""
    try:
        return tag(mds_decode(encoding, datum), encoding)
    except Exception:
        return None


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_mutated_values_match_streaming_if_accepted(encoding, run, tmp_path, monkeypatch):
    monkeypatch.setattr(JPEG, "decode", lambda self, data: data)
    rng = random.Random(f"{SEED} {encoding}")
    base = data_of(f"mds-enc-{ENCODINGS[encoding]}")
    data = [mutate(rng, rng.choice(base)) for _ in range(4 * CASES)]

    # A dataset for each hundred: a report lists only so many problems.
    accepted = []
    for part in range(0, len(data), 100):
        chunk = data[part : part + 100]
        peer.write(tmp_path / f"all-{part}", "mds", {"value": encoding}, [{"value": datum} for datum in chunk])
        report = run("verify", tmp_path / f"all-{part}", "--deep", "--json", status=None).json()
        assert report["problem_count"] == len(report["problems"])
        refused = {problem["sample"] for problem in report["problems"]}
        accepted += [datum for n, datum in enumerate(chunk) if n not in refused]
    peer.write(tmp_path / "accepted", "mds", {"value": encoding}, [{"value": datum} for datum in accepted])
    found = run("cat", tmp_path / "accepted", "0..").lines()
    assert len(found) == len(accepted)
    for ours, datum in zip(found, accepted):
        expected = theirs(encoding, datum)
        assert expected is not None, f"SHARDMILL_SEED={SEED}: only ours reads {datum!r}: {ours}"
        assert same(ours["value"], expected), f"SHARDMILL_SEED={SEED}: {datum!r} is {ours} for ours, {expected} for the original"
    assert len(accepted) > len(data) // 10
