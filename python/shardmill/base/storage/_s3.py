"""Access to S3 without boto3: settings, errors, and a client with the interface of boto3's."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Callable, Optional

from shardmill import _core
from shardmill.base.storage._sdk import increments, sdk
from shardmill.errors import AccessError, NotFoundError, RemoteError, ShardmillError


def split_url(url: str) -> tuple[str, str, str]:
    """Splits a URL into scheme, bucket and key, without decoding."""
    scheme, _, rest = url.partition('://')
    bucket, _, key = rest.partition('/')
    return scheme, bucket, key


def settings(bucket: str = '') -> dict[str, str]:
    """Returns the S3 settings that ``_core`` does not find in the environment.

    Requester-pays is enabled for the buckets listed in ``MOSAICML_STREAMING_AWS_REQUESTER_PAYS``.
    """
    payers = os.environ.get('MOSAICML_STREAMING_AWS_REQUESTER_PAYS', '').split(',')
    is_paid = bucket and bucket in (payer.strip() for payer in payers)
    return {'AWS_REQUEST_PAYER': 'true'} if is_paid else {}


_BOTH: dict[type[ShardmillError], type[ShardmillError]] = {}


def _both(own: type[ShardmillError]) -> Optional[type[ShardmillError]]:
    """Returns a class of errors that ``except botocore.exceptions.ClientError`` also catches."""
    if own not in _BOTH:
        try:
            client_error = sdk('botocore.exceptions', 'boto3').ClientError
        except ImportError:
            return None

        def restored(self: ShardmillError) -> Any:
            return own, (self.message, self.id, self.object, self.hint)

        _BOTH[own] = type(own.__name__, (own, client_error), {'__reduce__': restored})
    return _BOTH[own]


_STATUS = re.compile(r'\((\d{3})(?:, ([\w.-]+))?\)')


@contextmanager
def client_errors(operation: str) -> Iterator[None]:
    """Raises a store's HTTP error as one that is also boto3's ``ClientError``.

    Errors without an HTTP status are raised unchanged, and so are all errors if botocore is missing.
    """
    try:
        yield
    except (NotFoundError, AccessError, RemoteError) as error:
        status = _STATUS.search(error.message)
        both = _both(type(error)) if status else None
        if status is None or both is None:
            raise
        twin = both(error.message, error.id, error.object, error.hint)
        vars(twin).update(
            operation_name=operation,
            response={
                'Error': {'Code': status[2] or status[1], 'Message': error.message},
                'ResponseMetadata': {'HTTPStatusCode': int(status[1])},
            },
        )
        raise twin from error


class S3Client:
    """The subset of boto3's S3 client that uploads need, implemented by shardmill.

    Args:
        storage_options: Store settings that are not in the environment.
    """

    def __init__(self, storage_options: Optional[dict[str, str]] = None) -> None:
        self._storage_options = storage_options or {}

    def _settings(self, bucket: str) -> dict[str, str]:
        return {**settings(bucket), **self._storage_options}

    def upload_file(
        self,
        Filename: str,  # noqa: N803
        Bucket: str,  # noqa: N803
        Key: str,  # noqa: N803
        ExtraArgs: Optional[dict[str, str]] = None,  # noqa: N803
        Callback: Optional[Callable[[int], Any]] = None,  # noqa: N803
    ) -> None:
        """Uploads a file. The callback receives the number of bytes sent since its last call."""
        chosen = self._settings(Bucket)
        extra = dict(ExtraArgs or {})
        if 'ACL' in extra:
            chosen['S3_CANNED_ACL'] = extra.pop('ACL')
        if extra:
            raise ValueError(f'{", ".join(extra)}: only ACL is served in ExtraArgs')
        progress = None if Callback is None else increments(Callback)
        with client_errors('PutObject'):
            _core.upload(Filename, f's3://{Bucket}/{Key}', chosen, progress)

    def head_bucket(self, Bucket: str) -> None:  # noqa: N803
        """Raises an error if the bucket does not exist or may not be listed."""
        with client_errors('HeadBucket'):
            _core.check_bucket(f's3://{Bucket}', self._settings(Bucket))

    def keys(self, bucket: str, prefix: str) -> list[str]:
        """Returns the keys that begin with a prefix."""
        with client_errors('ListObjectsV2'):
            found = _core.list_objects(f's3://{bucket}/{prefix}', self._settings(bucket))
        return [key for key, _ in found]
