"""`convert --tokenize` beside the package `tokenizers`, from every kind of source and into both formats."""

import csv
import io
import json
import sysconfig
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from streaming import LocalDataset
from tokenizers import Tokenizer

ROOT = Path(__file__).resolve().parents[2]
TESTDATA = ROOT / "crates/tokenize/testdata"
NAMES = ["bpe", "split", "wordpiece", "unigram"]
HARD = json.loads((TESTDATA / "ids.json").read_text())["texts"]


def real_texts():
    """Python sources and their lines: code, prose, names from many languages."""
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("[a-e]*.py"))
    texts = [file.read_text("utf-8") for file in files]
    return texts + [line for text in texts for line in text.splitlines() if line.strip()][::7]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    texts = real_texts() + HARD * 3
    path = tmp_path_factory.mktemp("texts") / "texts.parquet"
    pq.write_table(pa.table({"id": range(len(texts)), "text": texts}), path, row_group_size=500)
    return path, texts


def peer(name):
    tokenizer = Tokenizer.from_file(str(TESTDATA / f"{name}.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def ids_of(name, texts, special=False):
    encoded = peer(name).encode_batch_fast(list(texts), add_special_tokens=special)
    return [each.ids for each in encoded]


def tokens_of(folder, column="tokens"):
    return [sample[column].tolist() for sample in LocalDataset(str(folder))]


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_tokens_match_tokenizers_package(convert, table, tmp_path, name, special):
    path, texts = table
    append = {"bpe": "<|end|>", "split": "</s>", "wordpiece": "[SEP]", "unigram": "</s>"}[name]
    options = [f"--tokenize={TESTDATA / f'{name}.json'}", f"--append={append}"]
    options += ["--special-tokens"] * special
    convert(path, tmp_path / "out", "--compression=none", "--jobs=3", *options)
    end = peer(name).token_to_id(append)
    assert tokens_of(tmp_path / "out") == [[*ids, end] for ids in ids_of(name, texts, special)]


def sources(folder, texts):
    """The same texts in each kind of source."""
    yield "parquet", folder / "t.parquet"
    pq.write_table(pa.table({"text": texts}), folder / "t.parquet")
    yield "jsonl", folder / "t.jsonl"
    (folder / "t.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    yield "csv", folder / "t.csv"
    with open(folder / "t.csv", "w", newline="") as out:
        csv.writer(out).writerows([["text"], *([text] for text in texts)])
    yield "dictionary", folder / "dictionary.arrow"
    column = pa.array(texts).dictionary_encode()
    with pa.ipc.new_file(folder / "dictionary.arrow", pa.schema([("text", column.type)])) as out:
        out.write(pa.record_batch({"text": column}))
    yield "bytes", folder / "bytes.parquet"
    pq.write_table(pa.table({"text": [text.encode() for text in texts]}), folder / "bytes.parquet")
    yield "tree", folder / "tree"
    (folder / "tree").mkdir()
    for number, text in enumerate(texts):
        (folder / f"tree/{number:05}.txt").write_text(text, newline="")
    yield "tar", folder / "tars"
    (folder / "tars").mkdir()
    with tarfile.open(folder / "tars/t-000000.tar", "w") as archive:
        for number, text in enumerate(texts):
            member = tarfile.TarInfo(f"{number:05}.txt")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))


def test_every_source_kind_is_tokenized_to_both_formats(convert, tmp_path):
    texts = [text for text in HARD if text.strip() and "\0" not in text]
    expected = ids_of("bpe", texts)
    made = []
    for kind, source in sources(tmp_path, texts):
        made.append((kind, source))
    made.append(("mds", tmp_path / "mds-texts"))
    convert(tmp_path / "t.parquet", tmp_path / "mds-texts")
    for kind, source in made:
        text = "txt" if kind in ("tree", "tar") else "text"
        options = [f"--tokenize={TESTDATA / 'bpe.json'}", f"--text={text}", "--compression=none"]
        convert(source, tmp_path / f"out-{kind}", *options)
        assert tokens_of(tmp_path / f"out-{kind}") == expected, kind
        convert(source, tmp_path / f"wds-{kind}", "--to=webdataset", *options)
        found = []
        for shard in sorted((tmp_path / f"wds-{kind}").glob("*.tar")):
            with tarfile.open(shard) as archive:
                for member in archive:
                    if member.name.endswith(".tokens.npy"):
                        array = np.load(io.BytesIO(archive.extractfile(member).read()))
                        assert array.dtype == np.uint16
                        found.append(array.tolist())
                    assert not member.name.endswith(".txt"), "the text is left out"
        assert found == expected, kind


def test_incremental_run_tokenizes_new_rows(convert, tmp_path):
    table, out = tmp_path / "table", tmp_path / "out"
    options = [f"--tokenize={TESTDATA / 'unigram.json'}", "--incremental", "--compression=none"]
    write_deltalake(str(table), pa.table({"n": [1, 2], "text": ["first text", "second text"]}))
    convert(table, out, *options)
    write_deltalake(str(table), pa.table({"n": [3], "text": ["a third one"]}), mode="append")
    DeltaTable(str(table)).delete("n = 1")
    convert(table, out, *options)
    found = {sample["n"].item(): sample["tokens"].tolist() for sample in LocalDataset(str(out))}
    texts = {1: "first text", 2: "second text", 3: "a third one"}
    assert found == dict(zip(texts, ids_of("unigram", texts.values())))
    assert (out / "index.lengths.tokens").is_file()
    convert(table, out, options[0].replace("unigram", "bpe"), *options[1:], status=4)


def test_tokenized_parts_equal_a_single_run(run, convert, table, tmp_path):
    path, texts = table
    options = [f"--tokenize={TESTDATA / 'split.json'}", "--append=</s>", "--compression=none"]
    for part in (1, 0):
        convert(path, tmp_path / "out", f"--part={part}/2", *options)
    run("commit", tmp_path / "out")
    end = peer("split").token_to_id("</s>")
    assert tokens_of(tmp_path / "out") == [[*ids, end] for ids in ids_of("split", texts)]


def test_invalid_utf8_text_is_an_error(convert, tmp_path):
    pq.write_table(pa.table({"text": [b"good", b"bad \xff"]}), tmp_path / "t.parquet")
    options = [f"--tokenize={TESTDATA / 'bpe.json'}", "--text=text"]
    done = convert(tmp_path / "t.parquet", tmp_path / "out", *options, status=3)
    assert "error[text-utf8]: row 1 of" in done.stderr and ", column text" in done.stderr
    assert not (tmp_path / "out").exists()
