"""Make the three inputs of the benchmarks as Parquet files: tokens, text, jpeg.

    python make_inputs.py OUT [--text-root DIR ...] [--scale 1.0] [--only NAME ...]

Nothing is downloaded. The text is real text of this machine (Python's own sources, whatever packages are installed
beside them, and `$CARGO_HOME/registry/src`), the pictures are cut from the photographs that scikit-learn and
scikit-image install, and the tokens follow Zipf's law, which is as hard to compress as text tokens are. The seed is
fixed, so one machine always makes the same files; another, with other sources, makes files of the same shape.

| file | samples | columns | raw size |
|---|---|---|---|
| tokens.parquet | 20,000 | id int64, tokens fixed_size_list<int32>[2048] | 164 MB |
| text.parquet | 91,876 | text string (about 1.9 KB), lines int32, score float64 | 175 MB |
| jpeg.parquet | 10,000 | image binary (about 13 KB each), label int64 | 130 MB |

Files are written as pyarrow writes them by default: Snappy, dictionaries where they help.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import pathlib
import random
import sys
import sysconfig
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SEED = 20261120
TOKENS_PER_SAMPLE = 2048
TOKEN_SAMPLES = 20_000
TEXT_SAMPLES = 91_876
TEXT_BYTES = 1_900
JPEG_SAMPLES = 10_000
JPEG_BYTES = 13_000
VOCABULARY = 50_257
TEXT_SUFFIXES = (".py", ".rs", ".md", ".pyi", ".txt", ".toml", ".rst", ".h", ".hpp", ".c", ".cpp")


def default_text_roots() -> list[pathlib.Path]:
    """The folders of this machine that are known to hold text that people wrote."""
    cargo_home = pathlib.Path(os.environ.get("CARGO_HOME", pathlib.Path.home() / ".cargo"))
    roots = [sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), cargo_home / "registry" / "src"]
    return [pathlib.Path(root) for root in roots if pathlib.Path(root).is_dir()]


def read_texts(roots: list[pathlib.Path], wanted_bytes: int) -> list[str]:
    """Whole text files below the roots, sorted by path, shuffled by the seed, until `wanted_bytes` are there."""
    paths = sorted({path for root in roots for suffix in TEXT_SUFFIXES for path in root.rglob(f"*{suffix}")})
    random.Random(SEED).shuffle(paths)
    texts, total = [], 0
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if len(text) < 200:
            continue
        texts.append(text)
        total += len(text)
        if total >= wanted_bytes:
            break
    if not texts:
        sys.exit(f"no text files below {', '.join(map(str, roots))}; name others with --text-root")
    return texts


def pieces(texts: list[str], count: int) -> list[str]:
    """`count` pieces of whole lines, of about TEXT_BYTES each, sizes spread as documents are."""
    draw = random.Random(SEED + 1)
    made: list[str] = []
    turn = 0
    while len(made) < count:
        for text in texts:
            # On a machine with little text the second round starts elsewhere in each file: no piece occurs twice.
            start = text.find("\n", turn * 397) + 1
            while start < len(text) and len(made) < count:
                size = int(draw.lognormvariate(0.0, 0.45) * TEXT_BYTES * 0.972)
                end = text.find("\n", start + size)
                end = len(text) if end < 0 else end + 1
                made.append(text[start:end])
                start = end
            if len(made) == count:
                break
        turn += 1
    draw.shuffle(made)
    return made


def make_text(out: pathlib.Path, texts: list[str], scale: float) -> dict:
    rows = max(1, int(TEXT_SAMPLES * scale))
    parts = pieces(texts, rows)
    numbers = np.random.default_rng(SEED)
    table = pa.table(
        {
            "text": pa.array(parts, pa.string()),
            "lines": pa.array([part.count("\n") for part in parts], pa.int32()),
            "score": pa.array(numbers.random(rows), pa.float64()),
        }
    )
    pq.write_table(table, out / "text.parquet", row_group_size=8_192)
    return {"samples": rows, "raw_bytes": sum(len(p.encode()) for p in parts) + 12 * rows}


def make_tokens(out: pathlib.Path, scale: float) -> dict:
    rows = max(1, int(TOKEN_SAMPLES * scale))
    # Zipf's law over the vocabulary: token k occurs about 1/k as often as token 1, as words in real text do.
    draws = np.random.default_rng(SEED + 3).random(rows * TOKENS_PER_SAMPLE)
    ids = np.minimum(float(VOCABULARY) ** draws, VOCABULARY - 1).astype(np.int32)
    column = pa.FixedSizeListArray.from_arrays(pa.array(ids), TOKENS_PER_SAMPLE)
    table = pa.table({"id": pa.array(np.arange(rows, dtype=np.int64)), "tokens": column})
    pq.write_table(table, out / "tokens.parquet", row_group_size=2_048)
    return {"samples": rows, "raw_bytes": rows * (8 + 4 * TOKENS_PER_SAMPLE)}


def photographs() -> list:
    """The photographs that come with scikit-learn and scikit-image, as RGB Pillow images."""
    from PIL import Image

    found = []
    try:
        import sklearn

        folder = pathlib.Path(sklearn.__file__).parent / "datasets" / "images"
        found += [folder / name for name in ("china.jpg", "flower.jpg")]
    except ImportError:
        pass
    try:
        import skimage

        folder = pathlib.Path(skimage.__file__).parent / "data"
        names = "astronaut.png chelsea.png coffee.png hubble_deep_field.jpg ihc.png motorcycle_left.png motorcycle_right.png"
        found += [folder / name for name in (*names.split(), "rocket.jpg")]
    except ImportError:
        pass
    images = [Image.open(path).convert("RGB") for path in found if path.is_file()]
    if not images:
        sys.exit("no sample photographs: install scikit-learn or scikit-image in this environment")
    return images


def make_jpeg(out: pathlib.Path, scale: float) -> dict:
    from PIL import Image

    rows = max(1, int(JPEG_SAMPLES * scale))
    draw = random.Random(SEED + 2)
    sources = photographs()
    schema = pa.schema({"image": pa.binary(), "label": pa.int64()})
    total = 0
    with pq.ParquetWriter(out / "jpeg.parquet", schema) as writer:
        for first in range(0, rows, 1_000):
            images, labels = [], []
            for _ in range(first, min(first + 1_000, rows)):
                label = draw.randrange(len(sources))
                source = sources[label]
                width = int(source.width * draw.uniform(0.35, 0.9))
                height = int(source.height * draw.uniform(0.35, 0.9))
                left, top = draw.randrange(source.width - width), draw.randrange(source.height - height)
                picture = source.crop((left, top, left + width, top + height)).resize((256, 256), Image.BILINEAR)
                if draw.random() < 0.5:
                    picture = picture.transpose(Image.FLIP_LEFT_RIGHT)
                buffer = io.BytesIO()
                picture.save(buffer, "JPEG", quality=draw.randrange(70, 88))
                images.append(buffer.getvalue())
                labels.append(label)
                total += len(images[-1]) + 8
            writer.write_table(pa.table({"image": pa.array(images, pa.binary()), "label": pa.array(labels, pa.int64())}, schema))
    return {"samples": rows, "raw_bytes": total}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--text-root", type=pathlib.Path, action="append", help="a folder of text files (several allowed)")
    parser.add_argument("--scale", type=float, default=1.0, help="1.0 makes the sizes in the table above")
    parser.add_argument("--only", choices=["tokens", "text", "jpeg"], action="append")
    options = parser.parse_args()

    options.out.mkdir(parents=True, exist_ok=True)
    only = options.only or ["tokens", "text", "jpeg"]
    roots = options.text_root or default_text_roots()
    made = {}
    texts: list[str] = []
    if "text" in only:
        texts = read_texts(roots, int(TEXT_SAMPLES * TEXT_BYTES * options.scale * 1.1))
    for name in only:
        start = time.monotonic()
        if name == "jpeg":
            made[name] = make_jpeg(options.out, options.scale)
        elif name == "text":
            made[name] = make_text(options.out, texts, options.scale)
        else:
            made[name] = make_tokens(options.out, options.scale)
        stored = (options.out / f"{name}.parquet").stat().st_size
        facts = made[name]
        print(
            f"{name}.parquet: {facts['samples']:,} samples, {facts['raw_bytes'] / 1e6:.1f} MB raw "
            f"({facts['raw_bytes'] / facts['samples']:.0f} bytes each), {stored / 1e6:.1f} MB as Parquet, "
            f"{time.monotonic() - start:.1f} s"
        )
    listing = options.out / "inputs.json"
    known = json.loads(listing.read_text())["inputs"] if listing.is_file() else {}
    listing.write_text(json.dumps({"seed": SEED, "inputs": known | made}, indent=2) + "\n")


if __name__ == "__main__":
    main()
