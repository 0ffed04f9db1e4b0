"""The options that cross the border to the extension module."""

from __future__ import annotations

from typing import Any

import pytest

from shardmill import _core
from shardmill.errors import UsageError

WORLD: dict[str, Any] = {'nodes': 1, 'ranks_per_node': 1, 'workers_per_rank': 1}


@pytest.mark.parametrize(
    ('made', 'given'),
    [
        (_core.FileOptions, {}),
        (_core.StreamOptions, {}),
        (_core.ReaderOptions, {}),
        (_core.EpochOptions, {**WORLD, 'batch_size': 1}),
    ],
)
def test_unknown_option_is_a_type_error(made: Any, given: dict[str, Any]) -> None:
    options = made(**given)
    with pytest.raises(AttributeError):
        options.name = 1
    with pytest.raises(TypeError, match="unexpected keyword argument 'cache_limits'"):
        made(**given, cache_limits=1)


def test_invalid_option_error_names_the_argument() -> None:
    with pytest.raises(TypeError, match=r"ReaderOptions\(\) argument 'cache_limit'"):
        _core.ReaderOptions(cache_limit='10')  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="missing required argument: 'batch_size'"):
        _core.EpochOptions(**WORLD)
    with pytest.raises(UsageError, match='shuffle_algo'):
        _core.EpochOptions(**WORLD, batch_size=1, shuffle_algo='none')


@pytest.mark.parametrize(('retries', 'attempts'), [(None, 8), (0, 1), (1, 2), (2, 8), (20, 21)])
def test_download_retry_sets_number_of_requests(retries: Any, attempts: int) -> None:
    assert _core.ReaderOptions(download_retry=retries).attempts == attempts


@pytest.mark.parametrize('timeout', [5.0, 45.0])
def test_download_timeout_applies_per_request(timeout: float) -> None:
    options = _core.ReaderOptions(download_retry=3, download_timeout=timeout)
    assert (options.idle_timeout, options.total_timeout) == (timeout, 4 * timeout)
