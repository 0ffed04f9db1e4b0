"""`convert --to megatron`: the dataset of Megatron reads it, and its builder writes the same bytes."""

import json

import numpy as np
import pytest

indexed_dataset = pytest.importorskip("megatron.core.datasets.indexed_dataset")
torch = pytest.importorskip("torch")


def documents():
    random = np.random.default_rng(7)
    return [random.integers(0, 60000, random.integers(0, 400)).tolist() for _ in range(500)]


def rows(folder, values):
    folder.mkdir()
    for part in range(3):
        lines = [json.dumps({"id": 1, "tokens": tokens}) for tokens in values[part::3]]
        (folder / f"{part}.jsonl").write_text("\n".join(lines))
    return [tokens for part in range(3) for tokens in values[part::3]]


@pytest.mark.parametrize("dtype", ["uint16", "int32", "int64", "float32"])
def test_output_equals_megatron_builder_output(convert, tmp_path, dtype):
    expected = rows(tmp_path / "rows", documents())
    convert(tmp_path / "rows", tmp_path / "out", "--to=megatron", f"--column=tokens:{dtype}")
    builder = indexed_dataset.IndexedDatasetBuilder(str(tmp_path / "theirs.bin"), dtype=getattr(np, dtype))
    for tokens in expected:
        builder.add_document(torch.tensor(tokens), [len(tokens)])
    builder.finalize(str(tmp_path / "theirs.idx"))
    for end in [".bin", ".idx"]:
        assert (tmp_path / "out" / f"data{end}").read_bytes() == (tmp_path / f"theirs{end}").read_bytes()
    for mmap in [True, False]:
        found = indexed_dataset.IndexedDataset(str(tmp_path / "out" / "data"), mmap=mmap)
        assert found.index.dtype == getattr(np, dtype)
        assert [tokens.tolist() for tokens in found[: len(found)]] == expected
        assert found.document_indices.tolist() == list(range(len(expected) + 1))


def test_multi_sequence_documents_round_trip(convert, tmp_path):
    random = np.random.default_rng(3)
    expected = [[random.integers(0, 9, random.integers(0, 5)).tolist() for _ in range(random.integers(1, 4))] for _ in range(50)]
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps({"tokens": document}) for document in expected))
    convert(tmp_path / "rows.jsonl", tmp_path / "out", "--to=megatron", "--column=tokens:int32")
    found = indexed_dataset.IndexedDataset(str(tmp_path / "out" / "data"))
    bounds = found.document_indices.tolist()
    assert [[found[at].tolist() for at in range(*span)] for span in zip(bounds, bounds[1:])] == expected
    convert(tmp_path / "out" / "data", tmp_path / "again", "--from=megatron-documents", "--to=jsonl", "--compression=none", "--column=tokens")
    text = "".join(path.read_text() for path in sorted((tmp_path / "again").glob("shard.*.json*")) if path.suffix != ".meta")
    assert [json.loads(json.loads(line)["tokens"]) for line in text.splitlines()] == [sum(document, []) for document in expected]
