"""The small data that examples work on. Every page gets a copy of it in its scratch folder.

    data/      two Parquet files, 600 rows: id, text, lang, user, label, tokens, image
    captions/  one Parquet file with nulls in `caption` and `score`
    photos/    a tree of images, each with a JSON file of the same name
    pairs/     images with a mask each: 1.jpg and 1.seg.png
    texts/     text files
    tars/      WebDataset shards without an index: train-000000.tar to train-000002.tar
    events/    a Delta table of several versions
    records/   a TFRecord file of 5 examples: box, image, label, tokens, words
    weather/   a Zarr store: t2m, rain, height
    tokenizer.json
"""

import io
import json
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
WORDS = "a shard is one file of samples that a job reads in order from a folder or a store".split()


def image(number, form="JPEG", side=32):
    rows, columns = np.mgrid[0:side, 0:side]
    pixels = np.stack([rows * 7, columns * 7, (rows + columns) * 3 + number * 11], axis=-1).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, form)
    return buffer.getvalue()


def sentence(random):
    return " ".join(random.choice(WORDS, size=random.integers(4, 12)))


def table(first, rows, random):
    ids = np.arange(first, first + rows)
    tokens = random.integers(0, 50_000, size=rows * 16, dtype=np.int32)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "text": [sentence(random) for _ in ids],
            "lang": [("en", "de", "fr")[number % 3] for number in ids],
            "user": [f"user{number % 40:02}" for number in ids],
            "label": pa.array(ids % 10, pa.int64()),
            "tokens": pa.FixedSizeListArray.from_arrays(pa.array(tokens), 16),
            "image": pa.array([image(number) for number in ids], pa.binary()),
        }
    )


def add(archive, name, content):
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def make(folder: Path):
    """Writes the data into a new folder. The same bytes each time."""
    random = np.random.default_rng(17)
    for name in ("data", "captions", "photos/cats", "photos/dogs", "pairs", "texts", "tars"):
        (folder / name).mkdir(parents=True)
    for number in range(2):
        pq.write_table(table(number * 300, 300, random), folder / f"data/part-{number}.parquet", row_group_size=100)
    captions = [None if number % 7 == 3 else sentence(random) for number in range(50)]
    scores = [None if number % 11 == 5 else number / 50 for number in range(50)]
    pq.write_table(pa.table({"caption": captions, "score": scores}), folder / "captions/captions.parquet")
    for number in range(12):
        stem = folder / "photos" / ("cats", "dogs")[number % 2] / f"{number:03}"
        stem.with_suffix(".jpg").write_bytes(image(number))
        stem.with_suffix(".json").write_text(json.dumps({"width": 32, "label": ("cat", "dog")[number % 2]}))
    for number in range(4):
        (folder / f"pairs/{number}.jpg").write_bytes(image(number))
        (folder / f"pairs/{number}.seg.png").write_bytes(image(number, "PNG"))
        (folder / f"texts/{number}.txt").write_text(sentence(random) + "\n")
    for shard in range(3):
        with tarfile.open(folder / f"tars/train-{shard:06}.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
            for number in range(shard * 10, shard * 10 + 10):
                add(archive, f"{number:06}.jpg", image(number))
                add(archive, f"{number:06}.cls", b"%d" % (number % 10))
    shutil.copytree(ROOT / "fixtures/delta/versions", folder / "events")
    (folder / "records").mkdir()
    shutil.copy(ROOT / "fixtures/tfrecord-1.14.6/examples.tfrecord", folder / "records/train.tfrecord")
    shutil.copytree(ROOT / "fixtures/zarr-3.1.6/weather3", folder / "weather")
    shutil.copy(ROOT / "crates/tokenize/testdata/bpe.json", folder / "tokenizer.json")
