"""Access to S3 without boto3: settings, errors, and a client with the interface of boto3's."""

from __future__ import annotations

import configparser
import os
import re
from typing import Any, Callable, NoReturn, Optional

from shardmill import _core
from shardmill.base.storage._sdk import sdk
from shardmill.errors import AccessError, NotFoundError, RemoteError, ShardmillError

__all__ = ['S3Client', 'raise_as_client_error', 'settings', 'split_url']

# Any of these names a source of credentials, or disables them.
_SOURCES = (
    'AWS_ACCESS_KEY_ID',
    'AWS_SECRET_ACCESS_KEY',
    'AWS_SKIP_SIGNATURE',
    'AWS_WEB_IDENTITY_TOKEN_FILE',
    'AWS_CONTAINER_CREDENTIALS_RELATIVE_URI',
    'AWS_CONTAINER_CREDENTIALS_FULL_URI',
)
_IN_FILES = {
    'aws_access_key_id': 'AWS_ACCESS_KEY_ID',
    'aws_secret_access_key': 'AWS_SECRET_ACCESS_KEY',
    'aws_session_token': 'AWS_SESSION_TOKEN',
}


def split_url(url: str) -> tuple[str, str, str]:
    """Splits a URL into scheme, bucket and key, without decoding."""
    scheme, _, rest = url.partition('://')
    bucket, _, key = rest.partition('/')
    return scheme, bucket, key


def settings(bucket: str = '') -> dict[str, str]:
    """Returns the S3 settings from the environment, for ``_core``.

    Without credentials in the environment, they are read from ``~/.aws/credentials``, from the
    profile named by ``AWS_PROFILE``. Requester-pays is enabled for the buckets listed in
    ``MOSAICML_STREAMING_AWS_REQUESTER_PAYS``.
    """
    found = dict(os.environ)
    if not any(found.get(name) for name in _SOURCES):
        found.update(_profile())
    if not found.get('AWS_REGION') and not found.get('AWS_DEFAULT_REGION'):
        region = _section('AWS_CONFIG_FILE', '~/.aws/config', 'profile ').get('region')
        if region:
            found['AWS_REGION'] = region
    payers = found.get('MOSAICML_STREAMING_AWS_REQUESTER_PAYS', '').split(',')
    if bucket and bucket in (payer.strip() for payer in payers):
        found['AWS_REQUEST_PAYER'] = 'true'
    return found


def _profile() -> dict[str, str]:
    """Returns the credentials of the profile; empty if incomplete."""
    section = _section('AWS_SHARED_CREDENTIALS_FILE', '~/.aws/credentials', '')
    found = {name: section[key] for key, name in _IN_FILES.items() if section.get(key)}
    return found if {'AWS_ACCESS_KEY_ID', 'AWS_SECRET_ACCESS_KEY'} <= found.keys() else {}


def _section(variable: str, path: str, prefix: str) -> dict[str, str]:
    """Returns the profile's section of an AWS configuration file; empty if there is none."""
    name = os.environ.get('AWS_PROFILE') or os.environ.get('AWS_DEFAULT_PROFILE') or 'default'
    parser = configparser.RawConfigParser()
    try:
        parser.read(os.path.expanduser(os.environ.get(variable) or path), encoding='utf-8')
    except (configparser.Error, UnicodeDecodeError) as error:
        # The parser's message may quote a secret.
        raise AccessError(
            f'{variable}: the file cannot be read: {type(error).__name__}', 'credentials'
        ) from None
    section = name if name == 'default' else prefix + name
    return dict(parser.items(section)) if parser.has_section(section) else {}


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


def raise_as_client_error(error: ShardmillError, operation: str) -> NoReturn:
    """Raises a store's HTTP error as one that is also boto3's ``ClientError``.

    Errors without an HTTP status are raised unchanged, and so are all errors if botocore is missing.
    """
    status = _STATUS.search(error.message)
    both = _both(type(error)) if status else None
    if status is None or both is None:
        raise error
    twin = both(error.message, error.id, error.object, error.hint)
    code = status[2] or status[1]
    vars(twin).update(
        operation_name=operation,
        response={
            'Error': {'Code': code, 'Message': error.message},
            'ResponseMetadata': {'HTTPStatusCode': int(status[1])},
        },
    )
    raise twin from error


class S3Client:
    """The subset of boto3's S3 client that uploads need, implemented by shardmill."""

    def upload_file(
        self,
        Filename: str,  # noqa: N803
        Bucket: str,  # noqa: N803
        Key: str,  # noqa: N803
        ExtraArgs: Optional[dict[str, str]] = None,  # noqa: N803
        Callback: Optional[Callable[[int], Any]] = None,  # noqa: N803
    ) -> None:
        """Uploads a file. The callback receives the number of bytes sent since its last call.

        Raises:
            ValueError: ``ExtraArgs`` contains a key other than ``ACL``.
        """
        chosen = settings(Bucket)
        extra = dict(ExtraArgs or {})
        chosen['S3_CANNED_ACL'] = extra.pop('ACL', '')
        if extra:
            raise ValueError(f'{", ".join(extra)}: only ACL is served in ExtraArgs')
        through = 0

        def progress(sent: int) -> None:
            nonlocal through
            if Callback is not None and sent > through:
                Callback(sent - through)
                through = sent

        try:
            _core.upload(Filename, f's3://{Bucket}/{Key}', chosen, progress)
        except (NotFoundError, AccessError, RemoteError) as error:
            raise_as_client_error(error, 'PutObject')

    def head_bucket(self, Bucket: str) -> None:  # noqa: N803
        """Raises an error if the bucket does not exist or may not be listed."""
        try:
            _core.check_bucket(f's3://{Bucket}', settings(Bucket))
        except (NotFoundError, AccessError, RemoteError) as error:
            raise_as_client_error(error, 'HeadBucket')

    def keys(self, bucket: str, prefix: str) -> list[str]:
        """Returns the keys that begin with a prefix."""
        try:
            found = _core.list_objects(f's3://{bucket}/{prefix}', settings(bucket))
        except (NotFoundError, AccessError, RemoteError) as error:
            raise_as_client_error(error, 'ListObjectsV2')
        return [key for key, _ in found]
