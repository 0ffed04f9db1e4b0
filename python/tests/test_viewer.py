"""`view`: the page of a dataset, its server, and how it ends."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from shardmill import LocalDataset, MDSWriter, StreamingDataset, view
from shardmill.errors import ShardmillError


def write(folder: Path) -> str:
    with MDSWriter(out=str(folder), columns={'text': 'str'}) as out:
        for number in range(5):
            out.write({'text': f'text {number}'})
    return str(folder)


def facts(url: str) -> dict[str, object]:
    address, _, token = url.partition('/?token=')
    request = urllib.request.Request(
        f'{address}/api/dataset', headers={'Authorization': f'Bearer {token}'}
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        found = json.load(response)
    assert isinstance(found, dict)
    return found


def test_the_server_ends_with_the_block(tmp_path: Path) -> None:
    place = write(tmp_path / 'mds')
    with view(place, height=300) as page:
        assert facts(page.address)['samples'] == 5
        shown = page._repr_html_()
        assert shown.startswith(f'<iframe src="{page.address}"')
        assert 'height="300"' in shown
    with pytest.raises(urllib.error.URLError):
        facts(page.address)
    page.close()


def test_datasets_show_themselves(tmp_path: Path) -> None:
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


def test_an_error_is_that_of_the_command(tmp_path: Path) -> None:
    (tmp_path / 'empty').mkdir()
    with pytest.raises(ShardmillError, match='no file') as caught:
        view(tmp_path / 'empty')
    assert caught.value.id == 'tree-empty'
    with pytest.raises(ShardmillError, match='height'):
        view(tmp_path, height=0)
