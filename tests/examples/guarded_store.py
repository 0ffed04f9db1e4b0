"""A store that speaks S3 and enforces an IAM policy, as far as the policies of `examples/ci/iam` go."""

import logging
import threading
from fnmatch import fnmatchcase
from urllib.parse import parse_qs

import boto3
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

DENIED = b'<?xml version="1.0"?><Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>'


def needed(method, key, query):
    """The action that S3 requires for a request, and what it applies to within the bucket."""
    if not key:
        return "s3:ListBucket", query.get("prefix", [""])[0]
    if method == "DELETE":
        return ("s3:AbortMultipartUpload" if "uploadId" in query else "s3:DeleteObject"), key
    return {"GET": "s3:GetObject", "HEAD": "s3:GetObject", "PUT": "s3:PutObject", "POST": "s3:PutObject"}[method], key


def as_list(value):
    return value if isinstance(value, list) else [value]


def allows(statement, action, bucket, name):
    if statement["Effect"] != "Allow" or action not in as_list(statement["Action"]):
        return False
    if action == "s3:ListBucket":
        prefixes = statement.get("Condition", {}).get("StringLike", {}).get("s3:prefix", ["*"])
        resource = f"arn:aws:s3:::{bucket}"
        allowed = any(fnmatchcase(name, prefix) for prefix in prefixes)
    else:
        resource = f"arn:aws:s3:::{bucket}/{name}"
        allowed = "Condition" not in statement
    return allowed and any(fnmatchcase(resource, pattern) for pattern in as_list(statement["Resource"]))


class GuardedStore:
    """A server on the loopback interface. `policy` applies to requests with the access key `guarded`."""

    def __init__(self):
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self.policy = {"Statement": []}
        self._app = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _answer(self, environ, start_response):
        if "Credential=guarded/" in environ.get("HTTP_AUTHORIZATION", ""):
            bucket, _, key = environ["PATH_INFO"].lstrip("/").partition("/")
            query = parse_qs(environ["QUERY_STRING"], keep_blank_values=True)
            action, name = needed(environ["REQUEST_METHOD"], key, query)
            if not any(allows(statement, action, bucket, name) for statement in self.policy["Statement"]):
                environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
                start_response("403 Forbidden", [("Content-Type", "application/xml")])
                return [DENIED]
        return self._app(environ, start_response)

    def client(self):
        """A client that no policy limits."""
        return boto3.client(
            "s3",
            endpoint_url=self.address,
            aws_access_key_id="owner",
            aws_secret_access_key="secret",
            region_name="us-east-1",
        )

    def close(self):
        self._server.shutdown()
