"""How fast does `convert --tokenize` write tokens, beside the package `tokenizers` that only makes them?

    python benches/tokens.py [--bin PROGRAM] [--jobs N] [--rounds N] [--vocabulary N] [--tokenizer FILE] [FOLDER]

The documents are the text files of FOLDER, by default the modules of Python's standard library. Without `--tokenizer`, a
byte-level BPE, a WordPiece and a Unigram tokenizer are trained on the first of them. All contenders run in turn within each
round, as processes of their own with `--jobs` threads; medians of the rounds are shown. Timed: for the package,
`encode_batch_fast` on texts in memory; for shardmill, the whole conversion from Parquet to MDS, with compression, hashes
and lengths. Needs `tokenizers` and `pyarrow`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time

import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer, __version__, models, normalizers, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Training takes minutes on more text, and what is measured is not the training.
TRAINED_ON = 4_000_000
SUFFIXES = (".py", ".txt", ".md", ".rst")


def documents(folder: pathlib.Path) -> list[str]:
    paths = sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES and path.is_file())
    return [text for path in paths if (text := path.read_text(errors="replace")).strip()]


def trained(kind: str, texts: list[str], size: int, path: pathlib.Path) -> None:
    ends = itertools.accumulate(map(len, texts))
    texts = [text for text, end in zip(texts, ends) if end < TRAINED_ON]
    options = {"vocab_size": size, "show_progress": False}
    if kind == "bpe":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **options)
    elif kind == "wordpiece":
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer()
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(special_tokens=["[UNK]"], **options)
    else:
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.normalizer = normalizers.NFKC()
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(special_tokens=["<unk>"], unk_token="<unk>", **options)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(path))


def package(source: str, tokenizer: str) -> None:
    """Runs in a process of its own: encodes, and prints the seconds and the number of tokens."""
    texts = pq.read_table(source)["text"].to_pylist()
    encoder = Tokenizer.from_file(tokenizer)
    wall, cpu = time.perf_counter(), time.process_time()
    encoded = encoder.encode_batch_fast(texts, add_special_tokens=False)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(json.dumps({"wall": wall, "cpu": cpu, "tokens": sum(len(each) for each in encoded)}))


def run_package(source: pathlib.Path, tokenizer: pathlib.Path, jobs: int) -> dict:
    command = [sys.executable, __file__, "--package", str(source), str(tokenizer)]
    threads = {"RAYON_NUM_THREADS": str(jobs), "TOKENIZERS_PARALLELISM": "true"}
    done = subprocess.run(command, env={**os.environ, **threads}, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def run_ours(program: str, source: pathlib.Path, tokenizer: pathlib.Path, jobs: int, out: pathlib.Path) -> dict:
    shutil.rmtree(out, ignore_errors=True)
    command = [program, "convert", str(source), str(out), f"--tokenize={tokenizer}", f"--jobs={jobs}"]
    wall, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*command, "--nulls=drop", "--quiet"], check=True)
    after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - wall
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    shown = subprocess.run(
        [program, "index", "lengths", str(out), "--column=tokens", "--json"], stdout=subprocess.PIPE, check=True
    )
    return {"wall": wall, "cpu": cpu, "tokens": json.loads(shown.stdout)["columns"][0]["total"]}


def main() -> None:
    if sys.argv[1:2] == ["--package"]:
        return package(*sys.argv[2:])
    parser = argparse.ArgumentParser()
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser.add_argument("folder", nargs="?", type=pathlib.Path, default=sysconfig.get_paths()["stdlib"])
    parser.add_argument("--bin", default=os.environ.get("SHARDMILL_BIN", str(target / "release/shardmill")))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--vocabulary", type=int, default=32_000)
    parser.add_argument("--tokenizer", type=pathlib.Path)
    parser.add_argument("--kinds", default="bpe,wordpiece,unigram")
    options = parser.parse_args()
    texts = documents(pathlib.Path(options.folder))
    size = sum(len(text.encode()) for text in texts)
    print(f"{len(texts):,} documents, {size / 1e6:.1f} MB; {options.jobs} threads; tokenizers {__version__}")
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        source = work / "texts.parquet"
        pq.write_table(pa.table({"text": texts}), source, row_group_size=500)
        for kind in [str(options.tokenizer)] if options.tokenizer else options.kinds.split(","):
            tokenizer = options.tokenizer or work / f"{kind}.json"
            if not options.tokenizer:
                trained(kind, texts, options.vocabulary, tokenizer)
            contenders = {
                "tokenizers": lambda: run_package(source, tokenizer, options.jobs),
                "shardmill": lambda: run_ours(options.bin, source, tokenizer, options.jobs, work / "out"),
            }
            runs: dict[str, list[dict]] = {name: [] for name in contenders}
            for turn in range(options.rounds):
                for name in sorted(contenders, reverse=turn % 2 == 1):
                    runs[name].append(contenders[name]())
            tokens = {each["tokens"] for found in runs.values() for each in found}
            print(f"\n{kind}: {tokens.pop():,} tokens" + (f", OTHER NUMBERS {tokens}" if tokens else ""))
            print(f"  {'':12} {'MB/s':>7} {'MB/s per core':>14} {'M tokens/s per core':>20}")
            for name, found in runs.items():
                wall, cpu = (statistics.median(each[key] for each in found) for key in ("wall", "cpu"))
                print(f"  {name:12} {size / wall / 1e6:7.1f} {size / cpu / 1e6:14.1f} {found[0]['tokens'] / cpu / 1e6:20.2f}")


if __name__ == "__main__":
    main()
