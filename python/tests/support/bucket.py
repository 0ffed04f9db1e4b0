"""A small S3 in this process that takes objects, whole and in parts, and compares checksums."""

from __future__ import annotations

import base64
import hashlib
import http.server
import re
import threading
from typing import Any, Callable, Optional
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


class Request:
    """What came in."""

    def __init__(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        url = urlsplit(path)
        self.method = method
        # Reads of Google have another path.
        google = re.fullmatch('/storage/v1/b/([^/]+)/o/([^/]+)', url.path)
        path = '/'.join(google.groups()) if google else url.path
        self.bucket, _, key = unquote(path).lstrip('/').partition('/')
        self.key = key
        self.query = {name: values[0] for name, values in parse_qs(url.query, True).items()}
        self.describes = google is not None and self.query.get('alt') != 'media'
        self.headers = headers
        self.body = body


Answer = tuple[int, dict[str, str], bytes]


def _sum(data: bytes) -> bytes:
    return base64.b64encode(hashlib.sha256(data).digest())


def _error(status: int, code: str) -> Answer:
    return status, {}, f'<Error><Code>{code}</Code></Error>'.encode()


class Bucket:
    """Objects by key, the requests so far, and what goes wrong.

    `fault` is asked first about each request; what it returns is the answer. It may wait for
    `ended` to leave a request without one.
    """

    def __init__(self, name: str = 'bucket') -> None:
        self.name = name
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.requests: list[Request] = []
        self.fault: Callable[[Request], Optional[Answer]] = lambda _: None
        self.ended = threading.Event()
        self.page = 1000
        bucket = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = 'HTTP/1.1'

            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get('Content-Length') or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                request = Request(self.command, self.path, headers, body)
                bucket.requests.append(request)
                status, answer, data = bucket.fault(request) or bucket.answer(request)
                if bucket.ended.is_set():
                    self.close_connection = True
                    return
                self.send_response(status)
                # A HEAD tells its own.
                for name, value in {'Content-Length': str(len(data)), **answer}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != 'HEAD':
                    self.wfile.write(data)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None:
                """Says nothing."""

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A client that went away is none of ours."""

        self._server = Server(('127.0.0.1', 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        return f'http://127.0.0.1:{self._server.server_port}'

    @property
    def environment(self) -> dict[str, str]:
        """What tools of S3 look at."""
        return {
            'AWS_ENDPOINT_URL': self.endpoint,
            'AWS_ACCESS_KEY_ID': 'test',
            'AWS_SECRET_ACCESS_KEY': 'hush',
            'AWS_REGION': 'us-east-1',
            'AWS_EC2_METADATA_DISABLED': 'true',
        }

    def close(self) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()

    def methods(self) -> list[str]:
        """The methods of all requests so far."""
        return [request.method for request in self.requests]

    def answer(self, request: Request) -> Answer:
        """What a store would say."""
        if request.bucket != self.name:
            return _error(404, 'NoSuchBucket')
        signed = request.headers.get('x-amz-content-sha256')
        if signed not in (None, hashlib.sha256(request.body).hexdigest()):
            return _error(400, 'XAmzContentSHA256Mismatch')
        told = request.headers.get('x-amz-checksum-sha256')
        if told not in (None, _sum(request.body).decode()):
            return _error(400, 'BadDigest')
        if not request.key:
            return self._list(request)
        return getattr(self, f'_{request.method.lower()}')(request)  # type: ignore[no-any-return]

    def _tag(self, data: bytes) -> str:
        return f'"{hashlib.md5(data).hexdigest()}"'

    def _list(self, request: Request) -> Answer:
        start, token = request.query.get('prefix', ''), request.query.get('continuation-token', '')
        keys = sorted(key for key in self.objects if key.startswith(start) and key > token)
        page = keys[: self.page]
        found = ''.join(
            f'<Contents><Key>{escape(key)}</Key><Size>{len(self.objects[key])}</Size>'
            f'<ETag>{escape(self._tag(self.objects[key]))}</ETag></Contents>'
            for key in page
        )
        more = len(page) < len(keys)
        if more:
            found += f'<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>'
        text = f'<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{found}'
        return 200, {}, f'{text}</ListBucketResult>'.encode()

    def _head(self, request: Request) -> Answer:
        if request.key not in self.objects:
            return 404, {}, b''
        data = self.objects[request.key]
        return 200, {'ETag': self._tag(data), 'Content-Length': str(len(data))}, b''

    def _get(self, request: Request) -> Answer:
        if request.key not in self.objects:
            return _error(404, 'NoSuchKey')
        data = self.objects[request.key]
        if request.describes:
            text = f'{{"size": "{len(data)}", "generation": "1"}}'
            return 200, {}, text.encode()
        headers = {'ETag': self._tag(data)}
        if request.headers.get('if-match', headers['ETag']) != headers['ETag']:
            return _error(412, 'PreconditionFailed')
        asked = re.fullmatch(r'bytes=(\d+)-(\d+)', request.headers.get('range', ''))
        if asked is None:
            return 200, headers, data
        first, last = int(asked[1]), min(int(asked[2]), len(data) - 1)
        headers['Content-Range'] = f'bytes {first}-{last}/{len(data)}'
        return 206, headers, data[first : last + 1]

    def _put(self, request: Request) -> Answer:
        upload = request.query.get('uploadId')
        if upload is None:
            if request.headers.get('if-none-match') == '*' and request.key in self.objects:
                return _error(412, 'PreconditionFailed')
            self.objects[request.key] = request.body
        elif upload in self.uploads:
            self.uploads[upload][int(request.query['partNumber'])] = request.body
        else:
            return _error(404, 'NoSuchUpload')
        return 200, {'ETag': self._tag(request.body)}, b''

    def _post(self, request: Request) -> Answer:
        upload = request.query.get('uploadId')
        if upload is None:
            upload = f'upload-{len(self.requests)}'
            self.uploads[upload] = {}
            text = f'<UploadId>{upload}</UploadId>'
            name = 'InitiateMultipartUploadResult'
            return 200, {}, f'<{name}>{text}</{name}>'.encode()
        parts = self.uploads.pop(upload, None)
        if parts is None:
            return _error(404, 'NoSuchUpload')
        listed = [int(part) for part in re.findall(r'<PartNumber>(\d+)<', request.body.decode())]
        self.objects[request.key] = b''.join(parts[part] for part in listed)
        name = 'CompleteMultipartUploadResult'
        return 200, {}, f'<{name}><ETag>&quot;x-{len(listed)}&quot;</ETag></{name}>'.encode()

    def _delete(self, request: Request) -> Answer:
        upload = request.query.get('uploadId')
        if upload is None:
            self.objects.pop(request.key, None)
        else:
            self.uploads.pop(upload, None)
        return 204, {}, b''
