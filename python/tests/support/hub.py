"""A small Hugging Face Hub on the loopback interface, with one dataset repository and one bucket.

Small files of the repository are redirected to a path of the same host. Other files are redirected to a second host,
which takes no token, answers only GET and has entity tags of its own.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Optional
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

from shardmill import MDSWriter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

REPOSITORY = 'datasets/org/name'
BUCKET = 'buckets/org/bucket'
#: Files with more bytes are on the second host.
SMALL = 1000


@dataclass
class Hub:
    """The state of the servers, which tests may change."""

    address: str = ''
    files_address: str = ''
    #: The files of each commit.
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    #: The commit of each revision.
    revisions: dict[str, str] = field(default_factory=dict)
    #: The files of the bucket.
    bucket: dict[str, bytes] = field(default_factory=dict)
    #: The contents that the second host has had, by their SHA-256.
    contents: dict[str, bytes] = field(default_factory=dict)
    #: The headers that the answers with files of the bucket lack.
    lacks: set[str] = field(default_factory=set)
    #: What to run once, before the answer to the first request whose line contains the text.
    before: Optional[tuple[str, Callable[[], Any]]] = None
    #: The only token that may read the repository and the bucket; `None` if both are public.
    token: Optional[str] = None
    gated: bool = False
    #: The entries of a page.
    page: int = 1000
    #: Statuses of the next answers.
    faults: list[int] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def commit(self, folder: Path, revision: str = 'main') -> str:
        """Makes the files of a folder the newest commit of a revision."""
        files = {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(folder.rglob('*'))
            if path.is_file()
        }
        digest = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        self.commits[digest] = files
        self.revisions[revision] = digest
        for data in files.values():
            self.contents[hashlib.sha256(data).hexdigest()] = data
        return digest

    def put(self, name: str, data: bytes) -> None:
        """Writes a file of the bucket."""
        self.bucket[name] = data
        self.contents[hashlib.sha256(data).hexdigest()] = data

    def fill(self, folder: Path) -> None:
        """Writes the files of a folder into the bucket."""
        for path in sorted(folder.rglob('*')):
            if path.is_file():
                self.put(path.relative_to(folder).as_posix(), path.read_bytes())

    @property
    def environment(self) -> dict[str, str]:
        return {'HF_ENDPOINT': self.address, 'HF_HUB_DISABLE_XET': '1'}


def xet_hash(data: bytes) -> str:
    """Returns a hash of a content that is neither of the two that the Hub has in its entity tags."""
    return hashlib.blake2b(data, digest_size=32).hexdigest()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    hub: Hub

    def _answer(self) -> None:
        raise NotImplementedError

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        waits = self.hub.before
        if waits is not None and waits[0] in f'{self.command} {unquote(self.path)}':
            self.hub.before = None
            waits[1]()
        self._answer()

    def _send(self, status: int, data: bytes = b'', **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace('_', '-'), value)
        self.send_header('Content-Length', str(len(data)))
        self.end_headers()
        if self.command != 'HEAD':
            self.wfile.write(data)

    def _error(self, status: int, code: str = '') -> None:
        headers = {'X_Error_Code': code} if code else {}
        self._send(status, json.dumps({'error': 'as the test says'}).encode(), **headers)

    def _file(self, data: bytes, tag: str, **headers: str) -> None:
        if self.headers.get('If-Match', tag) != tag:
            self._send(412)
            return
        asked = self.headers.get('Range')
        if asked is None:
            self._send(200, data, ETag=tag, **headers)
            return
        first, _, last = asked.removeprefix('bytes=').partition('-')
        start, end = int(first), min(int(last), len(data) - 1) if last else len(data) - 1
        found = f'bytes {start}-{end}/{len(data)}'
        self._send(206, data[start : end + 1], ETag=tag, Content_Range=found, **headers)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


class _Files(_Handler):
    """The second host."""

    def _answer(self) -> None:
        url = urlsplit(self.path)
        self.hub.requests.append(f'{self.command} files')
        if self.command != 'GET' or 'Authorization' in self.headers or url.query != 'signature=x':
            self._error(403)
            return
        data = self.hub.contents.get(url.path[1:])
        if data is None:
            self._error(404)
        else:
            self._file(data, f'"of-files-{url.path[1:9]}"')


class _Pages(_Handler):
    """The Hub itself."""

    def _answer(self) -> None:
        hub, url = self.hub, urlsplit(self.path)
        hub.requests.append(f'{self.command} {unquote(url.path)}')
        if hub.faults:
            self._send(hub.faults.pop(0), Retry_After='0')
            return
        token = self.headers.get('Authorization')
        if hub.token is not None and token != f'Bearer {hub.token}':
            self._error(401, '' if token else 'RepoNotFound')
            return
        if hub.gated:
            self._error(403, 'GatedRepo')
            return
        for prefix, answer in (
            (f'/api/{REPOSITORY}/revision/', self._revision),
            (f'/api/{REPOSITORY}/tree/', self._tree),
            (f'/{REPOSITORY}/resolve/', self._resolve),
            ('/small/', self._small),
            (f'/api/{BUCKET}/tree', self._bucket_tree),
            (f'/api/{BUCKET}', self._bucket),
            (f'/{BUCKET}/resolve/', self._bucket_file),
        ):
            if url.path.startswith(prefix):
                answer(url.path.removeprefix(prefix), url.query)
                return
        # Without a token, the Hub does not tell whether a bucket exists.
        self._error(401 if '/buckets/' in url.path and not token else 404, 'RepoNotFound')

    def _revision(self, name: str, query: str) -> None:
        commit = self.hub.revisions.get(unquote(name))
        if commit is None:
            self._error(404, 'RevisionNotFound')
            return
        self._send(200, json.dumps({'id': 'org/name', 'sha': commit}).encode())

    def _files(self, path: str) -> tuple[dict[str, bytes], str, str]:
        commit, _, path = path.partition('/')
        commit = self.hub.revisions.get(unquote(commit), commit)
        return self.hub.commits[commit], unquote(path), commit

    def _tree(self, path: str, query: str) -> None:
        files, folder, _ = self._files(path)
        inside = f'{folder}/' if folder else ''
        entries: dict[str, dict[str, Any]] = {}
        for name, data in sorted(files.items()):
            if not name.startswith(inside):
                continue
            first, _, deeper = name.removeprefix(inside).partition('/')
            entry: dict[str, Any] = {'type': 'directory', 'oid': '0' * 40, 'size': 0}
            if not deeper:
                entry = {'type': 'file', 'oid': hashlib.sha1(data).hexdigest(), 'size': len(data)}
                if len(data) > SMALL:
                    digest = hashlib.sha256(data).hexdigest()
                    entry['lfs'] = {'oid': digest, 'size': len(data), 'pointerSize': 130}
            entries[inside + first] = entry | {'path': inside + first}
        if not entries:
            self._error(404, 'EntryNotFound')
            return
        self._page(list(entries.values()), query)

    def _page(self, entries: list[dict[str, Any]], query: str) -> None:
        asked = parse_qs(query)
        start = int(asked.get('cursor', ['0'])[0])
        end = start + min(self.hub.page, int(asked.get('limit', ['1000'])[0]))
        headers = {}
        if end < len(entries):
            again = urlencode({name: texts[0] for name, texts in asked.items()} | {'cursor': end})
            next_url = f'{self.hub.address}{urlsplit(self.path).path}?{again}'
            headers['Link'] = f'<{next_url}>; rel="next"'
        self._send(200, json.dumps(entries[start:end]).encode(), **headers)

    def _bucket(self, path: str, query: str) -> None:
        sizes = [len(data) for data in self.hub.bucket.values()]
        found = {'size': sum(sizes), 'totalFiles': len(sizes), 'createdAt': '2026-02-16T15:28:32Z'}
        self._send(200, json.dumps({'id': 'org/bucket', 'private': False, **found}).encode())

    def _bucket_tree(self, path: str, query: str) -> None:
        # The prefix is compared as a text, and a listing is recursive unless the query says otherwise.
        prefix = unquote(path.removeprefix('/'))
        is_recursive = parse_qs(query).get('recursive', ['true'])[0] == 'true'
        inside = len(f'{prefix}/') if prefix else 0
        entries: dict[str, dict[str, Any]] = {}
        for name, data in sorted(self.hub.bucket.items(), reverse=True):
            end = name.find('/', inside)
            if not name.startswith(prefix):
                continue
            if is_recursive or end < 0:
                found = {'size': len(data), 'xetHash': xet_hash(data), 'mtime': None}
                entries[name] = {'type': 'file', 'path': name, **found}
            else:
                entries[name[:end]] = {'type': 'directory', 'path': name[:end]}
        self._page(list(entries.values()), query)

    def _bucket_file(self, path: str, query: str) -> None:
        data = self.hub.bucket.get(unquote(path))
        if data is None:
            self._error(404, 'EntryNotFound')
            return
        digest = hashlib.sha256(data).hexdigest()
        headers = {
            'Location': f'{self.hub.files_address}/{digest}?signature=x',
            'X_Linked_Size': str(len(data)),
            'X_Linked_Etag': f'"{digest}"',
            'X_Xet_Hash': xet_hash(data),
        }
        self._send(
            302, b'', **{name: headers[name] for name in headers if name not in self.hub.lacks}
        )

    def _resolve(self, path: str, query: str) -> None:
        files, name, commit = self._files(path)
        if name not in files:
            self._error(404, 'EntryNotFound')
            return
        data = files[name]
        if len(data) <= SMALL:
            self._send(307, Location=f'/small/{commit}/{quote(name)}', X_Repo_Commit=commit)
            return
        digest = hashlib.sha256(data).hexdigest()
        self._send(
            302,
            Location=f'{self.hub.files_address}/{digest}?signature=x',
            X_Repo_Commit=commit,
            X_Linked_Size=str(len(data)),
            X_Linked_Etag=f'"{digest}"',
        )

    def _small(self, path: str, query: str) -> None:
        files, name, commit = self._files(path)
        tag = hashlib.sha1(files[name]).hexdigest()
        self.hub.requests.append('small')
        self._file(files[name], f'"{tag}"', X_Repo_Commit=commit)


#: Samples of a dataset of `write_texts`.
SAMPLES = 300


def write_texts(out: Path, first: int = 0) -> Path:
    """Writes an MDS dataset of several shards, with numbers from `first`."""
    columns = {'id': 'int', 'text': 'str'}
    with MDSWriter(out=str(out), columns=columns, hashes=['sha1'], size_limit=4000) as writer:
        for n in range(first, first + SAMPLES):
            writer.write({'id': n, 'text': f'text {n}'})
    return out


@contextmanager
def configured_hub(monkeypatch: pytest.MonkeyPatch, home: Path) -> Iterator[Hub]:
    """Starts both servers, and makes them the Hub of this process and its children."""
    with serve_hub() as hub:
        for name in list(os.environ):
            if name.startswith('HF_'):
                monkeypatch.delenv(name)
        for name, value in hub.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv('HOME', str(home))
        yield hub


@contextmanager
def serve_hub() -> Iterator[Hub]:
    """Starts both servers."""
    hub = Hub()
    servers = []
    for kind in (_Pages, _Files):
        handler = type('_Handler', (kind,), {'hub': hub})
        server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
    hub.address, hub.files_address = (
        f'http://127.0.0.1:{server.server_address[1]}' for server in servers
    )
    try:
        yield hub
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
