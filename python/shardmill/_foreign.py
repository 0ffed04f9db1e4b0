"""Sources of `convert` in filesystems of fsspec: while the program runs, a server on this machine gives it their files.

The server speaks the part of S3 that reads: lists of keys, lengths and ranges. It listens on the loopback interface,
and each run has an access key of its own. Needs fsspec.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import itertools
import secrets
import threading
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from shardmill.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# The schemes that the program reads itself, or refuses with a hint.
_OWN = frozenset(
    's3 gs gcs az abfss hf https http file dbfs s3a s3n abfs azure azure-dl adl oci r2 oss'.split()
)
_PIECE = 8 << 20
# What filesystems say about the version of a file.
_VERSIONS = frozenset(
    'etag md5hash checksum crc mtime lastmodified last_modified updated modified date_time created'.split()
)


def is_foreign(place: str) -> bool:
    """Returns whether a place is a URL that only fsspec can read, such as ``memory://data`` or ``zip://::a.zip``."""
    scheme, found, _ = place.partition('://')
    return '::' in place or (bool(found) and scheme.lower() not in _OWN)


@contextlib.contextmanager
def served(sources: Sequence[str], out: str) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Serves the sources that only fsspec can read.

    Yields:
        The sources for the program, and the store settings that lead to the server; none if there is no such source.
    """
    foreign = [place for place in sources if is_foreign(place)]
    if not foreign:
        yield list(sources), {}
        return
    for place in [*sources, out]:
        if place.lower().startswith('s3://'):
            message = f'{place}: cannot go with {foreign[0]}, which fsspec reads'
            raise UsageError(message, 'config-source', place, 'convert into a folder first')
    files: dict[str, _File] = {}
    places = [
        f's3://fsspec/{_add(place, number, files)}' if is_foreign(place) else place
        for number, place in enumerate(sources)
    ]
    # Other users of the machine reach the port, too, but do not know the key.
    key = secrets.token_hex(16)
    attributes = {'files': files, 'names': sorted(files), 'key': key}
    with _Server(('127.0.0.1', 0), type('_BucketHandler', (_Handler,), attributes)) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.05], daemon=True)
        thread.start()
        try:
            yield (
                places,
                {
                    'S3_ENDPOINT_URL': f'http://127.0.0.1:{server.server_port}',
                    'AWS_ACCESS_KEY_ID': key,
                    'AWS_SECRET_ACCESS_KEY': key,
                    'AWS_REGION': 'us-east-1',
                    'AWS_VIRTUAL_HOSTED_STYLE_REQUEST': 'false',
                },
            )
        finally:
            server.shutdown()
            thread.join()


class _File(NamedTuple):
    """A file of a filesystem, as it was listed."""

    filesystem: Any
    path: str
    size: int
    tag: str
    # Only asynchronous filesystems read several files at the same time.
    lock: contextlib.AbstractContextManager[Any]

    def pieces(self, start: int, stop: int) -> Iterator[bytes]:
        """Reads a range in pieces."""
        with self.lock:
            if stop - start <= _PIECE:
                yield self.filesystem.cat_file(self.path, start=start, end=stop)
                return
            with self.filesystem.open(self.path, 'rb') as file:
                file.seek(start)
                while start < stop and (piece := file.read(min(_PIECE, stop - start))):
                    start += len(piece)
                    yield piece


def _add(place: str, number: int, files: dict[str, _File]) -> str:
    """Lists the files of a source, and returns the prefix of their keys."""
    from fsspec.core import url_to_fs

    try:
        filesystem, root = url_to_fs(place)
        found = filesystem.find(root, detail=True)
    except (ImportError, ValueError) as error:
        raise UsageError(f'{place}: {error}', 'config-source', place) from error
    except FileNotFoundError:
        found = {}
    if not found:
        raise NotFoundError(f'{place}: no such file or directory', 'source-not-found', place)
    name = root.rstrip('/').rpartition('/')[2] or 'files'
    lock = contextlib.nullcontext() if filesystem.async_impl else threading.Lock()
    for path, info in found.items():
        below = path[len(root) :].strip('/')
        key = '/'.join(part for part in (str(number), name, below) if part)
        size = info['size'] if info.get('size') is not None else filesystem.size(path)
        version = {field: str(value) for field, value in info.items() if field.lower() in _VERSIONS}
        tag = hashlib.sha256(repr((size, sorted(version.items()))).encode()).hexdigest()[:32]
        files[key] = _File(filesystem, path, size, tag, lock)
    return f'{number}/{name}'


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers the requests of S3 that read a bucket."""

    protocol_version = 'HTTP/1.1'
    files: dict[str, _File]
    names: list[str]
    key: str

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        url = urlsplit(self.path)
        _, bucket, *rest = unquote(url.path).split('/', 2)
        if bucket != 'fsspec' or f'Credential={self.key}/' not in self.headers.get(
            'Authorization', ''
        ):
            self._send(403, b'<Error><Code>AccessDenied</Code></Error>', body)
        elif not rest or not rest[0]:
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            self._send(200, self._page(query).encode(), body)
        elif rest[0] not in self.files:
            self._send(404, b'<Error><Code>NoSuchKey</Code></Error>', body)
        else:
            self._send_file(self.files[rest[0]], body)

    def _page(self, query: dict[str, str]) -> str:
        """Returns a page of the list of keys."""
        prefix, folded = query.get('prefix', ''), query.get('delimiter')
        most = int(query.get('max-keys', '1000'))
        after = query.get('continuation-token') or query.get('start-after', '')
        at = max(bisect_left(self.names, prefix), bisect_right(self.names, after) if after else 0)
        found: list[str] = []
        last = ''
        while at < len(self.names) and self.names[at].startswith(prefix) and len(found) < most:
            last = self.names[at]
            head, slash, _ = last[len(prefix) :].partition('/')
            if folded and slash:
                folder = f'{prefix}{head}/'
                # All keys of the folder are one entry.
                at = bisect_left(self.names, f'{folder}\U0010ffff')
                last = self.names[at - 1]
                prefixes = f'<Prefix>{escape(folder)}</Prefix>'
                found.append(f'<CommonPrefixes>{prefixes}</CommonPrefixes>')
                continue
            file = self.files[last]
            fields = f'<Key>{escape(last)}</Key><Size>{file.size}</Size><ETag>"{file.tag}"</ETag>'
            found.append(f'<Contents>{fields}</Contents>')
            at += 1
        more = at < len(self.names) and self.names[at].startswith(prefix)
        token = f'<NextContinuationToken>{escape(last)}</NextContinuationToken>' if more else ''
        page = f'<IsTruncated>{str(more).lower()}</IsTruncated>{token}{"".join(found)}'
        return f'<ListBucketResult>{page}</ListBucketResult>'

    def _send_file(self, file: _File, body: bool) -> None:
        headers = {'ETag': f'"{file.tag}"', 'Accept-Ranges': 'bytes'}
        start, stop, status = 0, file.size, 200
        asked = self.headers.get('Range')
        if asked is not None:
            first, _, last = asked.partition('=')[2].partition('-')
            start = int(first) if first else max(file.size - int(last), 0)
            stop = min(int(last) + 1, file.size) if first and last else file.size
            if start >= file.size:
                self._send(416, b'<Error><Code>InvalidRange</Code></Error>', body)
                return
            headers['Content-Range'] = f'bytes {start}-{stop - 1}/{file.size}'
            status = 206
        pieces = file.pieces(start, stop) if body else iter(())
        try:
            # Before the first byte, a failure is an answer; after it, the connection ends.
            first_piece = next(pieces, b'')
        except Exception as error:
            reason = escape(f'{type(error).__name__}: {error}')
            text = f'<Error><Code>AccessDenied</Code><Message>{reason}</Message></Error>'
            self._send(403, text.encode(), body)
            return
        self._send_head(status, stop - start, headers)
        sent = 0
        for piece in itertools.chain([first_piece], pieces):
            self.wfile.write(piece)
            sent += len(piece)
        # The file has become shorter: the program notices that the answer ends too early.
        self.close_connection = self.close_connection or (body and sent < stop - start)

    def _send(self, status: int, data: bytes, body: bool) -> None:
        self._send_head(status, len(data), {})
        if body:
            self.wfile.write(data)

    def _send_head(self, status: int, length: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header('Content-Length', str(length))
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Writes no log."""


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores connections that the program has ended."""
