"""A small S3 of one folder on the loopback interface, in a process of its own.

    python store.py FOLDER

Prints its address, and serves `http://ADDRESS/bucket/KEY` and lists of keys until its standard input
ends. It prints a line for a request for a key with the part `slow`, or for a shard of a key with the part
`slow-shards`, and never answers it: the client has to time out. What comes after the part is the key of
the served file.
"""

from __future__ import annotations

import hashlib
import http.server
import os
import select
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Optional
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers GET and HEAD, with ranges and entity tags."""

    protocol_version = 'HTTP/1.1'
    root: Path
    ended: threading.Event

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        parts = unquote(urlsplit(self.path).path).split('/')
        if 'slow' in parts or ('slow-shards' in parts and parts[-1].startswith('shard.')):
            print(self.path, flush=True)
            self.ended.wait()
            self.close_connection = True
            return
        if parts[1:] in (['bucket'], ['bucket', '']):
            self._list(body)
            return
        path = self.root.joinpath(*[part for part in parts[2:] if part != 'slow-shards'])
        if parts[1] != 'bucket' or not path.is_file():
            self._send(404, b'<Error><Code>NoSuchKey</Code></Error>', {}, body)
            return
        data = path.read_bytes()
        tag = f'"{hashlib.md5(data).hexdigest()}"'
        headers = {'ETag': tag, 'Accept-Ranges': 'bytes'}
        if self.headers.get('If-Match', tag) != tag:
            self._send(412, b'<Error><Code>PreconditionFailed</Code></Error>', {}, body)
            return
        status = 200
        asked = self._range(len(data))
        if asked is not None:
            start, stop = asked
            if start >= len(data):
                self._send(416, b'<Error><Code>InvalidRange</Code></Error>', {}, body)
                return
            headers['Content-Range'] = f'bytes {start}-{stop - 1}/{len(data)}'
            data = data[start:stop]
            status = 206
        self._send(status, data, headers, body)

    def _list(self, body: bool) -> None:
        prefix = parse_qs(urlsplit(self.path).query).get('prefix', [''])[0]
        found = []
        for path in sorted(self.root.rglob('*')):
            key = path.relative_to(self.root).as_posix()
            if path.is_file() and key.startswith(prefix):
                data = path.read_bytes()
                tag = hashlib.md5(data).hexdigest()
                found.append(
                    f'<Contents><Key>{escape(key)}</Key><Size>{len(data)}</Size>'
                    f'<ETag>"{tag}"</ETag></Contents>'
                )
        text = (
            f'<ListBucketResult><IsTruncated>false</IsTruncated>{"".join(found)}</ListBucketResult>'
        )
        self._send(200, text.encode(), {}, body)

    def _range(self, size: int) -> Optional[tuple[int, int]]:
        asked = self.headers.get('Range')
        if asked is None:
            return None
        first, _, last = asked.removeprefix('bytes=').partition('-')
        if not first:
            return max(size - int(last), 0), size
        return int(first), min(int(last) + 1, size) if last else size

    def _send(self, status: int, data: bytes, headers: dict[str, str], body: bool) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header('Content-Length', str(len(data)))
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed is none of ours."""


def serve(root: Path) -> None:
    """Serves a folder until standard input ends."""
    ended = threading.Event()
    handler = type('Handler', (_Handler,), {'root': root, 'ended': ended})
    with _Server(('127.0.0.1', 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        print(f'http://127.0.0.1:{server.server_port}', flush=True)
        sys.stdin.read()
        ended.set()
        server.shutdown()


class Store:
    """The server as a process, and the environment that leads to it."""

    def __init__(self, root: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, '-I', __file__, str(root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().decode().strip()
        assert self.address, 'the store did not start'

    @property
    def environment(self) -> dict[str, str]:
        """What tools of S3 look at."""
        return {
            'AWS_ENDPOINT_URL': self.address,
            'AWS_ACCESS_KEY_ID': 'test',
            'AWS_SECRET_ACCESS_KEY': 'test',
            'AWS_REGION': 'us-east-1',
            'AWS_EC2_METADATA_DISABLED': 'true',
        }

    def wait_for_slow(self, seconds: float) -> str:
        """Waits until something slow is asked for; nothing if that does not happen in time."""
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        ready, _, _ = select.select([descriptor], [], [], seconds)
        return os.read(descriptor, 1 << 16).decode() if ready else ''

    def forget_slow(self) -> None:
        """Forgets what was asked for."""
        while self.wait_for_slow(0):
            pass

    def close(self) -> None:
        """Ends the server."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


if __name__ == '__main__':
    serve(Path(os.path.abspath(sys.argv[1])))
