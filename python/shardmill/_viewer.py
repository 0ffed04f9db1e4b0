"""The function `view`: a page in the browser over a dataset, served by a ``shardmill view`` process."""

from __future__ import annotations

import html
import json
import os
import subprocess
import tempfile
import weakref
from typing import TYPE_CHECKING, Optional, Union

from shardmill._runs import follow, options_of, start
from shardmill.base import _arguments as check
from shardmill.errors import InternalError
from shardmill.views import View

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shardmill.base._typing import Path


class Viewer:
    """A page over a dataset. Notebooks show it in a frame.

    The server ends with `close`, with the ``with`` block, when this object is deleted, and with the process.

    Attributes:
        location: The dataset.
        address: The address of the page on this machine. It contains a random token.
        height: The height of the frame in pixels.
    """

    location: str
    address: str
    height: int

    def __init__(
        self,
        location: str,
        address: str,
        height: int,
        process: subprocess.Popen[str],
        folder: Optional[tempfile.TemporaryDirectory[str]] = None,
    ) -> None:
        self.location = location
        self.address = address
        self.height = height
        self._end = weakref.finalize(self, _end, process, folder)

    def __repr__(self) -> str:
        return f'Viewer({self.location!r}, address={self.address!r})'

    def _repr_html_(self) -> str:
        title = html.escape(f'shardmill view {self.location}')
        address = html.escape(self.address)
        return (
            f'<iframe src="{address}" title="{title}" width="100%" height="{self.height}"></iframe>'
        )

    def __enter__(self) -> Viewer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the server."""
        self._end()


def view(
    location: Path,
    *,
    height: int = 720,
    with_deleted: bool = False,
    view: Optional[Union[Path, View]] = None,
    tokenizer: Optional[Path] = None,
    cache: Optional[Path] = None,
    metrics: Optional[str] = None,
    storage_options: Optional[Mapping[str, str]] = None,
) -> Viewer:
    """Starts a server that shows a dataset in the browser. Notebooks show the page in a frame.

    Only this machine can open the page, and only with the token in its address.

    Args:
        location: A dataset, tar files or a source, in a directory or in a store.
        height: The height of the frame in a notebook, in pixels.
        with_deleted: Whether to also show deleted samples.
        view: A view, or its file, whose samples alone are shown and numbered.
        tokenizer: A tokenizer file (``tokenizer.json``) that shows columns of token ids as text.
        cache: The ``local`` folder of a run. The page shows which shards are in it.
        metrics: The address of `shardmill.metrics.serve` in a running job, whose metrics the page shows.
        storage_options: Store settings that are not in the environment.

    Raises:
        UsageError: An argument is invalid.
        NotFoundError: There is no dataset.
    """
    place = check.path('location', location)
    pixels = check.whole('height', height, 1)
    folder = None
    if isinstance(view, View):
        folder = tempfile.TemporaryDirectory(prefix='shardmill-view-')
        data = view.to_bytes()
        view = os.path.join(folder.name, 'samples.view')
        with open(view, 'wb') as file:
            file.write(data)
    options = options_of(
        with_deleted=check.flag('with_deleted', with_deleted),
        view=check.path_or_none('view', view),
        tokenizer=check.path_or_none('tokenizer', tokenizer),
        cache=check.path_or_none('cache', cache),
        metrics=None if metrics is None else check.text('metrics', metrics),
    )
    arguments = ['view', '--json', '--port', '0', *options, '--', place]
    process = start(arguments, storage_options, subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    line = process.stdout.readline()
    errors, tail = ([], []) if line else follow(process, 'view', False)
    process.stdout.close()
    process.stderr.close()
    if line:
        return Viewer(place, str(json.loads(line)['url']), pixels, process, folder)
    code = process.wait()
    if folder is not None:
        folder.cleanup()
    if errors:
        raise errors[0]
    text = '\n'.join(tail)
    raise InternalError(f'`shardmill view` ended with exit status {code}:\n{text}')


def _end(
    process: subprocess.Popen[str], folder: Optional[tempfile.TemporaryDirectory[str]]
) -> None:
    process.terminate()
    process.wait()
    if folder is not None:
        folder.cleanup()
