"""Credentials from the files of Amazon's tools, compared with botocore's choice for the same files."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import sys
import threading
from typing import TYPE_CHECKING, Any, Optional

import pytest
from support.bucket import Bucket

from shardmill import StreamingDataset, _core
from shardmill.errors import ShardmillError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONFIG = """\
# comment
[default]
region = eu-west-1
output = json
s3 =
    max_concurrent_requests = 20
    addressing_style = path

[profile spaced]
  region : us-west-2
  aws_access_key_id = SPACED # part of the value
  aws_secret_access_key = hush

[profile "quoted name"]
Region = ap-south-1
AWS_ACCESS_KEY_ID = QUOTED
AWS_SECRET_ACCESS_KEY = a=b;c

[profile merged]
region = ca-central-1
aws_access_key_id = FROM-CONFIG
aws_secret_access_key = hush

[profile program]
region = sa-east-1
credential_process = {program} "two words"

[profile both]
aws_access_key_id = STATIC
aws_secret_access_key = hush
credential_process = {program} unused

[profileless]
aws_access_key_id = NOT-A-PROFILE
aws_secret_access_key = hush

[profile role]
region = eu-north-1
role_arn = arn:aws:iam::123456789012:role/reader
source_profile = merged

[profile chain]
region = eu-north-1
role_arn = arn:aws:iam::123456789012:role/last
source_profile = role

[plugins]
x = y
"""

CREDENTIALS = """\
[default]
aws_access_key_id=DEFAULT
aws_secret_access_key = hush%(x)s

[merged]
aws_access_key_id = FROM-CREDENTIALS
aws_secret_access_key = hush
; comment
aws_session_token = merged-token

[only-credentials]
aws_access_key_id = ONLY
aws_secret_access_key = hush
aws_security_token = old-name
"""

PROGRAM = """\
import json, sys
print(json.dumps({'Version': 1, 'AccessKeyId': '-'.join(sys.argv[1].split()), 'SecretAccessKey': 'hush',
                  'SessionToken': 'printed'}))
"""

PROFILES = ['default', 'spaced', 'quoted name', 'merged', 'program', 'both', 'only-credentials']


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory with profiles, and nothing in the environment."""
    for name in list(os.environ):
        if name.startswith(('AWS_', 'S3_', 'MOSAICML_')):
            monkeypatch.delenv(name)
    monkeypatch.setenv('AWS_EC2_METADATA_DISABLED', 'true')
    monkeypatch.setenv('HOME', str(tmp_path))
    program = tmp_path / 'program.py'
    program.write_text(PROGRAM)
    folder = tmp_path / '.aws'
    folder.mkdir()
    (folder / 'config').write_text(CONFIG.format(program=f'{sys.executable} {program}'))
    (folder / 'credentials').write_text(CREDENTIALS)
    return tmp_path


@pytest.fixture
def bucket(home: Path) -> Iterator[Bucket]:
    made = Bucket()
    made.objects['x'] = b'x'
    yield made
    made.close()


def ours(bucket: Bucket, path: Path, profile: Optional[str]) -> tuple[str, Optional[str], str]:
    """Returns the key, the session token and the region that sign our request."""
    options = {'S3_ENDPOINT_URL': bucket.endpoint}
    if profile is not None:
        options['AWS_PROFILE'] = profile
    _core.download('s3://bucket/x', str(path), options)
    headers = bucket.requests[-1].headers
    _, _, scope = headers['authorization'].partition('Credential=')
    # A key may contain a space and a number sign here, so the date is found from the end.
    key, _, region, *_ = scope.partition(',')[0].rsplit('/', 4)
    return key, headers.get('x-amz-security-token'), region


def theirs(profile: Optional[str]) -> tuple[str, Optional[str], str]:
    """Returns what botocore would use."""
    botocore = pytest.importorskip('botocore.session')
    session = botocore.Session(profile=profile)
    found = session.get_credentials().get_frozen_credentials()
    return found.access_key, found.token, session.get_config_variable('region') or 'us-east-1'


@pytest.mark.parametrize('profile', [None, *(name for name in PROFILES if name != 'spaced')])
def test_profile_credentials_match_botocore(
    profile: Optional[str], home: Path, bucket: Bucket, tmp_path: Path
) -> None:
    assert ours(bucket, tmp_path / 'x', profile) == theirs(profile)


def test_trailing_comment_is_part_of_profile_value(
    home: Path, bucket: Bucket, tmp_path: Path
) -> None:
    assert theirs('spaced')[0] == 'SPACED # part of the value'
    with pytest.raises(ShardmillError) as caught:
        ours(bucket, tmp_path / 'x', 'spaced')
    assert caught.value.id == 'url-profile'
    assert 'aws_access_key_id of the profile "spaced"' in str(caught.value)


@pytest.mark.parametrize(
    'text',
    [
        '[default]\nregion\n',
        'region = x\n',
        '[default]\nregion = a\nregion = b\n',
        '[default]\n[default]\n',
    ],
)
def test_malformed_aws_config_is_an_error_as_in_botocore(
    text: str, home: Path, bucket: Bucket, tmp_path: Path
) -> None:
    (home / '.aws' / 'config').write_text(text)
    exceptions = pytest.importorskip('botocore.exceptions')
    with pytest.raises(exceptions.ConfigParseError):
        theirs(None)
    with pytest.raises(ShardmillError, match=r'line \d+: expected') as caught:
        ours(bucket, tmp_path / 'x', None)
    assert (caught.value.id, caught.value.object) == ('url-profile', '~/.aws/config')


@pytest.mark.parametrize('profile', ['missing', 'profileless'])
def test_missing_profile_is_an_error_as_in_botocore(
    profile: str, home: Path, bucket: Bucket, tmp_path: Path
) -> None:
    exceptions = pytest.importorskip('botocore.exceptions')
    with pytest.raises(exceptions.ProfileNotFound):
        theirs(profile)
    with pytest.raises(ShardmillError, match='there is no profile') as caught:
        ours(bucket, tmp_path / 'x', profile)
    assert '"merged"' in str(caught.value)


@pytest.fixture
def moto(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A server of S3, security tokens and single sign-on."""
    server = pytest.importorskip('moto.server')
    boto3 = pytest.importorskip('boto3')
    running = server.ThreadedMotoServer(ip_address='127.0.0.1', port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    monkeypatch.setenv('AWS_ENDPOINT_URL', f'http://{host}:{port}')
    client = boto3.client(
        's3', aws_access_key_id='a', aws_secret_access_key='b', region_name='us-east-1'
    )
    client.create_bucket(Bucket='bucket')
    yield client
    running.stop()


@pytest.mark.parametrize('profile', ['role', 'chain'])
def test_assumed_role_credentials_are_used(
    profile: str, moto: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = theirs(profile)
    assert found[0].startswith('ASIA')
    assert found[1]
    monkeypatch.setenv('AWS_PROFILE', profile)
    (tmp_path / 'in').write_bytes(b'x' * 1000)
    _core.upload(str(tmp_path / 'in'), 's3://bucket/x')
    assert moto.get_object(Bucket='bucket', Key='x')['Body'].read() == b'x' * 1000
    _core.download('s3://bucket/x', str(tmp_path / 'out'))
    assert (tmp_path / 'out').read_bytes() == b'x' * 1000


def test_expired_sso_token_is_an_error(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (home / '.aws' / 'config').open('a') as config:
        config.write(
            '\n[profile sso]\nsso_session = corp\nsso_account_id = 123456789012\nsso_role_name = r\n'
            '[sso-session corp]\nsso_region = us-east-1\nsso_start_url = https://corp.awsapps.com/start\n'
        )
    cache = home / '.aws' / 'sso' / 'cache'
    cache.mkdir(parents=True)
    token = cache / f'{hashlib.sha1(b"corp").hexdigest()}.json'
    monkeypatch.setenv('AWS_PROFILE', 'sso')
    token.write_text(json.dumps({'accessToken': 'hush', 'expiresAt': '2020-01-01T00:00:00Z'}))
    with pytest.raises(ShardmillError, match='expired at 2020-01-01T00:00:00Z') as caught:
        StreamingDataset(remote='s3://bucket/set', local=str(tmp_path / 'local'))
    assert caught.value.hint == 'run `aws sso login` for the profile "sso"'


class Tokens:
    """A service that gives tokens to machines and applications, for any path."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        requests = self.requests

        class Handler(http.server.BaseHTTPRequestHandler):
            def _serve(self) -> None:
                self.rfile.read(int(self.headers.get('Content-Length') or 0))
                requests.append(f'{self.command} {self.path}')
                body = b'{"access_token": "from-the-machine", "expires_in": 3600, "token_type": "Bearer"}'
                self.send_response(200)
                self.send_header('Content-Length', str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = _serve  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None:
                """Prints nothing."""

        self._server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.host = f'127.0.0.1:{self._server.server_port}'

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def tokens() -> Iterator[Tokens]:
    made = Tokens()
    yield made
    made.close()


def bearer(bucket: Bucket, path: Path, url: str, options: dict[str, str]) -> str:
    """Returns the token that authorizes our request."""
    _core.download(url, str(path), options)
    return bucket.requests[-1].headers['authorization']


def test_gce_metadata_server_provides_token(
    bucket: Bucket, tokens: Tokens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('GCE_METADATA_HOST', tokens.host)
    monkeypatch.setenv('GOOGLE_ENDPOINT_URL', bucket.endpoint)
    assert bearer(bucket, tmp_path / 'x', 'gs://bucket/x', {}) == 'Bearer from-the-machine'
    assert tokens.requests


def test_service_account_file_signs_tokens(
    home: Path, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rsa = pytest.importorskip('cryptography.hazmat.primitives.asymmetric.rsa')
    serialization = pytest.importorskip('cryptography.hazmat.primitives.serialization')
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    account = {
        'type': 'service_account',
        'private_key': private.decode(),
        'private_key_id': 'id',
        'client_email': 'reader@project.iam.gserviceaccount.com',
        'client_id': '1',
    }
    text = json.dumps(account)
    (tmp_path / 'account.json').write_text(text)
    gcloud = home / '.config' / 'gcloud'
    gcloud.mkdir(parents=True)
    (gcloud / 'application_default_credentials.json').write_text(text)
    monkeypatch.setenv('GOOGLE_ENDPOINT_URL', bucket.endpoint)
    for options in (
        {'GOOGLE_APPLICATION_CREDENTIALS': str(tmp_path / 'account.json')},
        {'GOOGLE_SERVICE_ACCOUNT': str(tmp_path / 'account.json')},
        {'GOOGLE_SERVICE_ACCOUNT_KEY': text},
        {},
    ):
        found = bearer(bucket, tmp_path / 'x', 'gs://bucket/x', options)
        assert found.startswith('Bearer ey')
        assert found.count('.') == 2


def test_azure_cli_is_started_only_if_enabled(
    home: Path,
    bucket: Bucket,
    tokens: Tokens,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = tmp_path / 'bin' / 'az'
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/started\n'
        'echo \'{"accessToken": "from-az", "expiresOn": "2999-01-01 00:00:00.000000", "tokenType": "Bearer"}\'\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv('PATH', f'{program.parent}:{os.environ["PATH"]}')
    options = {
        'AZURE_STORAGE_ACCOUNT_NAME': 'account',
        'AZURE_STORAGE_ENDPOINT': bucket.endpoint,
        'AZURE_MSI_ENDPOINT': f'http://{tokens.host}/metadata/identity/oauth2/token',
    }
    url = 'az://bucket/x'
    cli = {**options, 'AZURE_USE_AZURE_CLI': 'true'}
    assert bearer(bucket, tmp_path / 'x', url, cli) == 'Bearer from-az'
    assert (tmp_path / 'started').read_text().startswith('account get-access-token')
    (tmp_path / 'started').unlink()
    program.write_text('#!/bin/sh\necho hush >&2\nexit 1\n')
    with pytest.raises(ShardmillError, match='the Azure CLI gave none') as caught:
        _core.download(url, str(tmp_path / 'x'), {**cli, 'AZURE_STORAGE_ACCOUNT_NAME': 'other'})
    assert caught.value.id == 'credentials'
    assert 'hush' not in f'{caught.value} {caught.value.hint}'
    assert not (tmp_path / 'started').exists()
