"""Lengths of columns: written by conversions and by ``index lengths``, read as an array."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

import numpy as np
import pytest

import shardmill
from shardmill._program import find_program
from shardmill.errors import ConflictError, NotFoundError, UsageError

WORDS = ['', 'a', 'ä', 'three words here', 'x' * 300]


def _source(folder: Path, rows: int) -> list[str]:
    texts = [random.Random(row).choice(WORDS) * (row % 3) for row in range(rows)]
    folder.mkdir()
    lines = (json.dumps({'id': row, 'text': text}) for row, text in enumerate(texts))
    (folder / 'rows.jsonl').write_text('\n'.join(lines), encoding='utf-8')
    return texts


def test_converted_lengths_match_samples(tmp_path: Path) -> None:
    texts = _source(tmp_path / 'source', 200)
    out = tmp_path / 'out'
    shardmill.convert(tmp_path / 'source', out, lengths=['text'], samples_per_shard=30)
    found = shardmill.lengths(out, 'text')
    assert found.dtype == np.uint32
    assert found.tolist() == [len(text.encode()) for text in texts]
    view = shardmill.select(out, samples=range(3, 200, 7))
    view.save(tmp_path / 'some.view')
    for given in (view, tmp_path / 'some.view'):
        of_view = shardmill.lengths(out, 'text', view=given)
        assert of_view.tolist() == found[3::7].tolist()


def test_array_lengths_count_elements(tmp_path: Path) -> None:
    sizes = [1, 255, 256, 70_000, 3]
    with shardmill.MDSWriter(
        out=str(tmp_path / 'out'), columns={'tokens': 'ndarray:uint16', 'n': 'int'}
    ) as out:
        for size in sizes:
            out.write({'tokens': np.zeros(size, 'uint16'), 'n': size})
    with pytest.raises(NotFoundError) as missing:
        shardmill.lengths(tmp_path / 'out', 'tokens')
    assert missing.value.id == 'lengths-missing'
    subprocess.run(
        [find_program(), 'index', 'lengths', tmp_path / 'out', '--column', 'tokens'], check=True
    )
    assert shardmill.lengths(tmp_path / 'out', 'tokens').tolist() == sizes


def test_lengths_of_different_index_are_rejected(tmp_path: Path) -> None:
    _source(tmp_path / 'source', 20)
    for name, size in (('one', 5), ('two', 6)):
        shardmill.convert(
            tmp_path / 'source', tmp_path / name, lengths=['text'], samples_per_shard=size
        )
    file = 'index.lengths.text'
    (tmp_path / 'one' / file).write_bytes((tmp_path / 'two' / file).read_bytes())
    with pytest.raises(ConflictError) as other:
        shardmill.lengths(tmp_path / 'one', 'text')
    assert other.value.id == 'lengths-dataset'
    with pytest.raises(UsageError):
        shardmill.convert(tmp_path / 'source', tmp_path / 'three', lengths=['id'])


def test_tokenized_conversion_writes_token_lengths(tmp_path: Path) -> None:
    (tmp_path / 'rows.jsonl').write_text('{"text": "one two"}\n{"text": ""}\n')
    tokenizer = Path(__file__).parents[2] / 'crates/tokenize/testdata/bpe.json'
    report = shardmill.convert(
        tmp_path / 'rows.jsonl',
        tmp_path / 'out',
        tokenize=tokenizer,
        tokens='ids',
        append='<|end|>',
        keep_text=True,
    )
    assert report.samples == 2
    samples = list(shardmill.StreamingDataset(local=tmp_path / 'out', batch_size=1))
    assert [sample['text'] for sample in samples] == ['one two', '']
    assert samples[1]['ids'].tolist() == [0]
    lengths = shardmill.lengths(tmp_path / 'out', 'ids')
    assert lengths.tolist() == [len(sample['ids']) for sample in samples]
    with pytest.raises(UsageError) as unknown:
        shardmill.convert(
            tmp_path / 'rows.jsonl', tmp_path / 'other', tokenize=tokenizer, append='<eos>'
        )
    assert unknown.value.id == 'tokenizer-token'
