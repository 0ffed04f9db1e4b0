"""`view`: the page of a dataset, its server, and how it ends."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import shardmill
from shardmill import LocalDataset, MDSWriter, StreamingDataset, select, view
from shardmill.errors import ShardmillError


def write(folder: Path) -> str:
    with MDSWriter(out=str(folder), columns={'text': 'str'}) as out:
        for number in range(5):
            out.write({'text': f'text {number}'})
    return str(folder)


def facts(url: str, path: str = 'dataset') -> dict[str, object]:
    address, _, token = url.partition('/?token=')
    request = urllib.request.Request(
        f'{address}/api/{path}', headers={'Authorization': f'Bearer {token}'}
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        found = json.load(response)
    assert isinstance(found, dict)
    return found


def test_view_server_stops_after_with_block(tmp_path: Path) -> None:
    place = write(tmp_path / 'mds')
    with view(place, height=300) as page:
        assert facts(page.address)['samples'] == 5
        shown = page._repr_html_()
        assert shown.startswith(f'<iframe src="{page.address}"')
        assert 'height="300"' in shown
    with pytest.raises(urllib.error.URLError):
        facts(page.address)
    page.close()


def test_dataset_view_method_opens_its_dataset(tmp_path: Path) -> None:
    write(tmp_path / 'all' / 'train')
    place = str(tmp_path / 'all')
    for dataset in (
        LocalDataset(place, split='train'),
        StreamingDataset(local=place, split='train', batch_size=1),
    ):
        page = dataset.view()
        assert page.location == f'{place}/train'
        assert facts(page.address)['samples'] == 5
        page.close()


def test_view_page_shows_only_selected_samples(tmp_path: Path) -> None:
    place = write(tmp_path / 'mds')
    few = select(place, samples=[1, 3, 4])
    out = tmp_path / 'few.view'
    out.write_bytes(few.to_bytes())
    with view(place, view=out) as page:
        shown = facts(page.address)
        assert (shown['samples'], shown['view']) == (3, str(out))
    for dataset in (
        LocalDataset(place, view=few),
        StreamingDataset(local=place, batch_size=1, view=few),
    ):
        page = dataset.view()
        shown = facts(page.address)
        assert shown['samples'] == 3
        file = Path(str(shown['view']))
        assert file.read_bytes() == few.to_bytes()
        page.close()
        assert not file.parent.exists()


def test_view_options_are_passed_to_the_command(tmp_path: Path) -> None:
    place = write(tmp_path / 'mds')
    cache = tmp_path / 'cache'
    metrics = 'http://127.0.0.1:9/metrics'
    with view(place, cache=cache, metrics=metrics) as page:
        shown = facts(page.address)
        assert [shown[name] for name in ('cache', 'metrics')] == [str(cache), metrics]
    with LocalDataset(place).view(cache=cache) as page:
        shown = facts(page.address)
        assert [shown[name] for name in ('cache', 'metrics')] == [str(cache), None]
    # A value that begins like an option is a value.
    with pytest.raises(ShardmillError) as caught:
        view(place, tokenizer='--port')
    assert '--port' in str(caught.value)
    with pytest.raises(ShardmillError, match='metrics'):
        view(place, metrics='file:///etc/passwd')


def test_view_decodes_tokens_with_tokenizer(tmp_path: Path) -> None:
    tokenizer = Path(__file__).parents[2] / 'crates/tokenize/testdata/bpe.json'
    source = tmp_path / 'rows.jsonl'
    source.write_text('{"text": "the quick brown fox"}\n')
    shardmill.convert(source, tmp_path / 'out', tokenize=tokenizer)
    dataset = LocalDataset(str(tmp_path / 'out'))
    for given, is_shown in ((tokenizer, True), (None, False)):
        with dataset.view(tokenizer=given) as page:
            samples = json.dumps(facts(page.address, 'samples?start=0&count=1'))
        assert ('the quick brown fox' in samples) is is_shown
    with pytest.raises(ShardmillError, match=r'none\.json'):
        view(tmp_path / 'out', tokenizer=tmp_path / 'none.json')


def test_view_raises_errors_of_the_command(tmp_path: Path) -> None:
    (tmp_path / 'empty').mkdir()
    with pytest.raises(ShardmillError, match='no file') as caught:
        view(tmp_path / 'empty')
    assert caught.value.id == 'tree-empty'
    with pytest.raises(ShardmillError, match='height'):
        view(tmp_path, height=0)
