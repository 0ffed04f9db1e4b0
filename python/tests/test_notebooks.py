"""What notebooks show of datasets: facts, columns and samples. Nothing is fetched for it."""

from __future__ import annotations

import base64
import io
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support import samples as made

from shardmill import LocalDataset, MDSWriter, StreamingDataset

EVIL = '<script>alert("&")</script>'


class Checker(HTMLParser):
    """Collects the tags of a page, and checks that they are closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.images: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, Any]]) -> None:
        self.seen.add(tag)
        if tag == 'img':
            self.images.append(dict(attrs)['src'])
        else:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def write(folder: Path) -> str:
    columns = {
        'jpg': 'jpeg',
        'pil': 'pil',
        'raw': 'bytes',
        EVIL: 'str',
        'a': 'ndarray:float32:3',
        'j': 'json',
    }
    with MDSWriter(out=str(folder), columns=columns, size_limit=20_000) as out:
        for n in range(60):
            image = Image.new('RGB', (300, 200), (n, 0, 0))
            out.write(
                {
                    'jpg': image.convert('L') if n == 1 else image,
                    'pil': image.resize((3, 2)),
                    'raw': b'\xff\xd8\xff damaged',
                    EVIL: EVIL,
                    'a': np.arange(3, dtype=np.float32),
                    'j': {'k': EVIL},
                }
            )
    return str(folder)


def test_repr_html_shows_thumbnails_and_escapes_text(tmp_path: Path) -> None:
    folder = write(tmp_path)
    for dataset in (LocalDataset(folder), StreamingDataset(local=folder, batch_size=2)):
        text = dataset._repr_html_()
        page = Checker(text)
        assert page.seen == {'div', 'table', 'caption', 'thead', 'tbody', 'tr', 'th', 'td', 'img'}
        assert EVIL not in text and '&lt;script&gt;' in text
        # Of the first five samples.
        assert len(page.images) == 10
        for source in page.images:
            assert source.startswith('data:image/png;base64,')
            image = Image.open(io.BytesIO(base64.b64decode(source.partition(',')[2])))
            assert image.size in ((96, 64), (3, 2))
        assert len(text) < 40_000
        assert type(dataset).__name__ in text and '11 bytes' in text
        assert 'float32[3] [0.0, 1.0, 2.0]' in text


def test_repr_html_does_not_fetch_or_decompress(data: Path, tmp_path: Path) -> None:
    dataset = StreamingDataset(remote=str(data), local=str(tmp_path / 'a'), batch_size=1)
    text = dataset._repr_html_()
    Checker(text)
    assert 'No samples are on this machine' in text
    assert dataset.stats().fetched_shards == 0
    assert 'vector' in text
    preview = dataset.preview(2)
    assert dataset.stats().fetched_shards >= 1
    assert [sample['number'] for sample in preview.samples] == [0, 1]
    assert 'No samples' not in dataset._repr_html_()
    packed = made.write(tmp_path / 'packed', compression='zstd')
    names = sorted(path.name for path in packed.iterdir())
    assert 'No samples' in StreamingDataset(local=str(packed), batch_size=1)._repr_html_()
    assert sorted(path.name for path in packed.iterdir()) == names


def test_preview_shows_first_samples(data: Path) -> None:
    dataset = LocalDataset(str(data))
    preview = dataset.preview(3)
    assert [sample['number'] for sample in preview.samples] == [0, 1, 2]
    lines = repr(preview).splitlines()
    assert len(lines) == 3 and lines[1].startswith('1: data=32 bytes, number=1, short=1, text=ä')
    assert len(dataset.preview(10_000).samples) == made.SAMPLES
    assert dataset.preview(0).samples == ()
    Checker(preview._repr_html_())
    with pytest.raises(ValueError, match='samples'):
        dataset.preview(-1)


def test_repr_html_of_damaged_shard_shows_error_and_facts(tmp_path: Path) -> None:
    made.write(tmp_path / 'data', 20)
    shard = tmp_path / 'data' / 'shard.00000.mds'
    shard.write_bytes(shard.read_bytes()[:-1])
    text = LocalDataset(str(tmp_path / 'data'))._repr_html_()
    Checker(text)
    assert 'shard-length' in text and 'samples' in text


def test_repr_html_of_uninitialized_dataset_works() -> None:
    kinds: tuple[Any, ...] = (StreamingDataset, LocalDataset)
    for kind in kinds:
        Checker(kind.__new__(kind)._repr_html_())


def test_stats_repr_html_is_a_table(data: Path) -> None:
    stats = StreamingDataset(local=str(data), batch_size=1).stats()
    Checker(stats._repr_html_())
    assert re.search(r'<td>received bytes</td><td>0 B</td>', stats._repr_html_())
