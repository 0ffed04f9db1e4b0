"""Measures packing: how full contexts are, and how many tokens a core reads per second from MDS to batches.

    python benches/packing.py [--length N] [--tokens N] [FOLDER]

The documents are the text files of FOLDER, by default the modules of Python's standard library. A token is a word or
another character. Compares with naive concatenation, which cuts documents, and with a context for each document. Where
`trl` is installed, its best-fit packing is measured on the same lengths. Needs the Python package.
"""

import argparse
import os
import pathlib
import re
import sysconfig
import tempfile
import time

import numpy as np

from shardmill import MDSWriter, Packing, StreamingDataset

WORD = re.compile(r"\w+|[^\w\s]|\s+")


def documents(folder):
    """Returns the tokens of each text file."""
    numbers = {}
    found = []
    for path in sorted(pathlib.Path(folder).rglob("*")):
        if path.suffix in (".py", ".txt", ".md", ".rst") and path.is_file():
            words = WORD.findall(path.read_text(errors="replace"))
            if words:
                tokens = [numbers.setdefault(word, len(numbers) % 65_536) for word in words]
                found.append(np.array(tokens, np.uint16))
    return found


def peer(lengths, length):
    """Measures the best-fit packing of trl on documents without their long parts."""
    try:
        from datasets import Dataset
        from trl import pack_dataset
    except ImportError:
        return
    pieces = [min(length, size - start) for size in lengths for start in range(0, size, length)]
    data = Dataset.from_dict({"input_ids": [np.zeros(size, np.int64) for size in pieces]})
    start = time.perf_counter()
    packed = pack_dataset(data, length, "bfd")
    seconds = time.perf_counter() - start
    fill = sum(pieces) / (len(packed) * length)
    print(f"trl bfd: fill {fill:.2%}, {sum(pieces) / seconds / 1e6:.1f} M tokens/s")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", default=sysconfig.get_paths()["stdlib"])
    parser.add_argument("--length", type=int, default=8192)
    parser.add_argument("--tokens", type=int, default=50_000_000)
    options = parser.parse_args()
    texts = documents(options.folder)
    lengths = [len(text) for text in texts]
    print(f"{len(texts):,} documents of {sum(lengths):,} tokens, median {int(np.median(lengths)):,}")
    copies = max(1, options.tokens // sum(lengths))
    with tempfile.TemporaryDirectory() as folder:
        columns = {"tokens": "ndarray:uint16"}
        with MDSWriter(out=folder, columns=columns, size_limit=1 << 26) as out:
            for _ in range(copies):
                for text in texts:
                    out.write({"tokens": text})
        lengths = lengths * copies
        total, length = sum(lengths), options.length
        padded = sum(-(-size // length) for size in lengths)
        cut = sum((start % length) + size > length for start, size in zip(np.cumsum([0, *lengths]), lengths))
        print(f"a context for each document: fill {total / (padded * length):.2%}")
        print(f"concatenation: fill 100.00%, {cut / len(lengths):.1%} of documents are cut")
        for name, given in (
            ("length", Packing("tokens", length=length, token_lengths=lengths)),
            ("max_tokens", Packing("tokens", max_tokens=8 * length, token_lengths=lengths)),
        ):
            size = 8 if name == "length" else 1
            dataset = StreamingDataset(local=folder, packing=given, batch_size=size, shuffle=True)
            wall, cpu = time.perf_counter(), time.process_time()
            slots = 0
            for batch in dataset.batches():
                slots += batch["input_ids"].size
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            print(
                f"{name}: fill {total / slots:.2%}, {total / cpu / 1e6:.1f} M tokens/s per core "
                f"({total / wall / 1e6:.1f} M tokens/s with {os.cpu_count()} cores)"
            )
        peer(lengths[: len(texts)], length)


if __name__ == "__main__":
    main()
