"""A small Hugging Face Hub on the loopback interface, with one dataset repository.

Small files are redirected to a path of the same host, large ones to a second host, which takes no token, answers only
GET and has entity tags of its own.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Optional
from urllib.parse import parse_qs, quote, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

REPOSITORY = 'datasets/org/name'
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
    #: The only token that may read the repository; `None` for a public one.
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
        return digest

    @property
    def environment(self) -> dict[str, str]:
        return {'HF_ENDPOINT': self.address, 'HF_HUB_DISABLE_XET': '1'}


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    hub: Hub

    def _answer(self) -> None:
        raise NotImplementedError

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
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
        for files in self.hub.commits.values():
            for data in files.values():
                digest = hashlib.sha256(data).hexdigest()
                if digest == url.path[1:]:
                    self._file(data, f'"of-files-{digest[:8]}"')
                    return
        self._error(404)


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
        ):
            if url.path.startswith(prefix):
                answer(url.path.removeprefix(prefix), url.query)
                return
        self._error(404, 'RepoNotFound')

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
        asked = parse_qs(query)
        start = int(asked.get('cursor', ['0'])[0])
        end = start + min(self.hub.page, int(asked.get('limit', ['1000'])[0]))
        headers = {}
        if end < len(entries):
            next_url = f'{self.hub.address}{urlsplit(self.path).path}?limit=9&cursor={end}'
            headers['Link'] = f'<{next_url}>; rel="next"'
        page = list(entries.values())[start:end]
        self._send(200, json.dumps(page).encode(), **headers)

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
