"""What exceptions say about themselves, as the JSON of the command line does."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from shardmill import LocalDataset, errors
from shardmill.errors import CLASS_OF_KIND, DataError, MissingIndexError, ShardmillError

ROOT = Path(__file__).parents[2]


def test_error_classes_and_kinds_match() -> None:
    classes = [getattr(errors, name) for name in errors.__all__]
    for each in classes:
        assert issubclass(CLASS_OF_KIND[each.kind], ShardmillError)
        assert each is ShardmillError or issubclass(each, CLASS_OF_KIND[each.kind])
    assert len(CLASS_OF_KIND) == 10
    assert MissingIndexError.kind == 'not_found' and errors.UnsupportedError.kind == 'unsupported'


def test_error_kinds_match_frozen_list() -> None:
    lines = (ROOT / 'tests/layering/errors.txt').read_text().split('\n')
    kinds = {line.split()[-1] for line in lines if line.strip() and not line.startswith('#')}
    # An asterisk is for ids of several kinds.
    kinds.discard('*')
    snake = {re.sub(r'(?<!^)(?=[A-Z])', '_', kind).lower() for kind in kinds}
    assert snake and snake <= set(CLASS_OF_KIND)


def test_error_docs_links_to_reference_entry(tmp_path: Path) -> None:
    with pytest.raises(ShardmillError) as caught:
        LocalDataset(str(tmp_path))
    error = caught.value
    site = re.findall(r'^site_url: (\S+)$', (ROOT / 'mkdocs.yml').read_text(), re.MULTILINE)
    assert error.docs == f'{site[0]}reference/errors/#{error.id}'
    page = (ROOT / 'docs/reference/errors.md').read_text()
    assert f'#### {error.id}\n' in page or f'<a id="{error.id}"></a>' in page
    again = pickle.loads(pickle.dumps(DataError('a', 'hash-mismatch', 'b', 'c')))
    assert (again.id, again.kind, again.exit_code) == ('hash-mismatch', 'corrupt', 3)
    assert again.docs.endswith('/reference/errors/#hash-mismatch')
