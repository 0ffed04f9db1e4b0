"""Downloads files from stores.

shardmill itself implements S3, Google Cloud Storage, Azure, the Hugging Face Hub, volumes of Databricks and local
paths. Other providers need their own packages, which are imported on first use.
"""

from __future__ import annotations

import abc
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Optional
from urllib.parse import urlsplit

from shardmill import _core
from shardmill.base._arguments import path_or_none
from shardmill.base._files import whole
from shardmill.base.constant import DEFAULT_TIMEOUT
from shardmill.base.storage import _s3
from shardmill.base.storage._sdk import sdk
from shardmill.errors import AccessError, NotFoundError, UsageError

__all__ = [
    'AlipanDownloader',
    'AzureDataLakeDownloader',
    'AzureDownloader',
    'CloudDownloader',
    'DBFSDownloader',
    'DatabricksUnityCatalogDownloader',
    'GCSDownloader',
    'HFDownloader',
    'LocalDownloader',
    'OCIDownloader',
    'S3Downloader',
    'SFTPDownloader',
    'download_file',
]

logger = logging.getLogger(__name__)

BOTOCORE_CLIENT_ERROR_CODES = {'403', '404', 'NoSuchKey'}

# COMPAT: programs match the beginning of this message.
GCS_ERROR_NO_AUTHENTICATION = (
    'Either set the environment variables `GCS_KEY` and `GCS_SECRET` or use any of the methods in '
    'https://cloud.google.com/docs/authentication/external/set-up-adc to have Application Default '
    'Credentials'
)

#: Bytes per copied piece.
PIECE = 8 << 20


def _scheme_of(remote: str) -> str:
    """Returns the key of the downloader of a location in `DOWNLOADER_MAPPINGS`."""
    scheme = urlsplit(remote).scheme
    is_volume = scheme == 'dbfs' and remote.startswith('dbfs:/Volumes')
    return 'dbfs-uc' if is_volume else scheme


def is_registered(remote: Optional[str]) -> bool:
    """Returns whether the program registered the downloader of a location in `DOWNLOADER_MAPPINGS`."""
    found = None if remote is None else DOWNLOADER_MAPPINGS.get(_scheme_of(remote))
    return found is not None and not found.__module__.startswith('shardmill.')


class CloudDownloader(abc.ABC):
    """Downloads files of one provider.

    Subclasses define their scheme and how to download a file.
    """

    #: The scheme of the provider.
    _SCHEME: ClassVar[str] = ''
    #: The attribute that holds the client, which must not be shared between processes.
    _CLIENT: ClassVar[str] = ''
    #: The module of the provider and the package that has it.
    _SDK: ClassVar[tuple[str, str]] = ('', '')
    #: Store settings that are not in the environment.
    storage_options: Optional[dict[str, str]] = None

    def __init__(self) -> None:
        if self._SDK[0]:
            sdk(*self._SDK)
        if self._CLIENT:
            setattr(self, self._CLIENT, None)

    def _connect(self, remote: str) -> Any:
        """Returns a new client."""
        raise NotImplementedError

    def _connected(self, remote: str) -> Any:
        """Returns the client, which is created on first use."""
        if getattr(self, self._CLIENT) is None:
            setattr(self, self._CLIENT, self._connect(remote))
        return getattr(self, self._CLIENT)

    @classmethod
    def get(cls, remote_dir: Optional[str] = None) -> CloudDownloader:
        """Returns the downloader for a location; without a location, that for local paths.

        Raises:
            ValueError: The scheme is unknown.
        """
        remote_dir = path_or_none('remote_dir', remote_dir)
        if remote_dir is None:
            return LocalDownloader()
        scheme = _scheme_of(remote_dir)
        if scheme not in DOWNLOADER_MAPPINGS:
            raise UsageError(
                f'Unsupported remote path: {scheme}: is not a scheme of a store', 'url-scheme'
            )
        return DOWNLOADER_MAPPINGS[scheme]()

    @classmethod
    def direct_download(
        cls, remote: Optional[str], local: str, timeout: float = DEFAULT_TIMEOUT
    ) -> None:
        """Downloads one file; see `download`."""
        downloader = cls.get(remote)
        try:
            downloader.download(remote, local, timeout)
        finally:
            downloader.clean_up()

    def download(self, remote: Optional[str], local: str, timeout: float = DEFAULT_TIMEOUT) -> None:
        """Downloads a file unless it exists. The file appears only when it is complete.

        Args:
            remote: The path or URL of the file.
            local: The local path. Missing folders are created.
            timeout: Maximum seconds without new data.

        Raises:
            ValueError: `remote` is missing or has another scheme.
            FileNotFoundError: The file does not exist.
        """
        if os.path.exists(local):
            return
        if not remote:
            raise UsageError(f'{local} is not there, and there is no remote to copy it from', 'url')
        os.makedirs(os.path.dirname(local) or '.', exist_ok=True)
        self._validate_remote_path(remote)
        self._download_file_impl(remote, local, timeout)

    @classmethod
    def _client_identifier(cls) -> str:
        """Returns the scheme of the provider."""
        return cls._SCHEME

    @abc.abstractmethod
    def _download_file_impl(self, remote: str, local: str, timeout: float) -> None:
        """Downloads a file."""

    def clean_up(self) -> None:
        """Releases the client, if there is one."""
        if self._CLIENT:
            setattr(self, self._CLIENT, None)

    def _validate_remote_path(self, remote: str) -> None:
        expected, found = self._client_identifier(), urlsplit(remote).scheme
        if found != expected:
            raise UsageError(
                f'Expected remote path to start with {expected or "no scheme"}, found {found}',
                'url-scheme',
            )

    def __getstate__(self) -> dict[str, Any]:
        # Clients cannot be shared between processes.
        return {**self.__dict__, self._CLIENT: None} if self._CLIENT else self.__dict__


#: These name credentials, so a bucket that refuses them is not public.
_NAMED = ('AWS_ACCESS_KEY_ID', 'AWS_PROFILE', 'AWS_DEFAULT_PROFILE')


class S3Downloader(CloudDownloader):
    """Downloads objects from S3 and compatible stores. ``S3_ENDPOINT_URL`` or ``AWS_ENDPOINT_URL``
    sets another endpoint."""

    _SCHEME = 's3'

    def _download_file_impl(self, remote: str, local: str, timeout: float) -> None:
        settings = {**_s3.settings(_s3.split_url(remote)[1]), **(self.storage_options or {})}
        with _s3.client_errors('GetObject'):
            try:
                _core.download(remote, local, settings, timeout)
            except AccessError as error:
                if error.hint:
                    error.hint += (
                        '; where the requester pays, name the bucket in '
                        'MOSAICML_STREAMING_AWS_REQUESTER_PAYS'
                    )
                # A public bucket can be read without credentials.
                named = {**os.environ, **settings}
                if error.id != 'credentials' or any(named.get(name) for name in _NAMED):
                    raise
                try:
                    open_settings = {**settings, 'AWS_SKIP_SIGNATURE': 'true'}
                    _core.download(remote, local, open_settings, timeout)
                except AccessError:
                    # The first error says what was wrong with the credentials.
                    raise error from None


class SFTPDownloader(CloudDownloader):
    """Downloads files from a host by SFTP. Needs paramiko.

    All files of one downloader must be on the same host. ``COMPOSER_SFTP_KEY_FILE`` names a key,
    ``COMPOSER_SFTP_KNOWN_HOSTS_FILE`` a file of known hosts.
    """

    _CLIENT = '_ssh_client'
    _SDK = ('paramiko', 'paramiko')
    _ssh_client: Any
    _host: Optional[tuple[Any, ...]] = None

    _SCHEME = 'sftp'

    def clean_up(self) -> None:
        """Closes the connection."""
        if self._ssh_client is not None:
            self._ssh_client.close()
        super().clean_up()

    def _validate_remote_path(self, remote: str) -> None:
        super()._validate_remote_path(remote)
        url = urlsplit(remote)
        if url.hostname is None:
            raise UsageError('the URL of a file on a host needs the name of the host', 'url-host')
        if url.query or url.fragment:
            raise UsageError(
                'the URL of a file on a host has no query and no fragment', 'url-query'
            )
        host = (url.hostname, url.port or 22, url.username, url.password)
        if self._host not in (None, host):
            raise UsageError('the file is on another host than those before', 'url-host')
        self._host = host

    def _download_file_impl(self, remote: str, local: str, timeout: float) -> None:
        if self._ssh_client is None:
            self._create_ssh_client(timeout)
        with whole(local) as path, self._ssh_client.open_sftp() as session:
            session.get_channel().settimeout(timeout)
            session.get(remotepath=urlsplit(remote).path, localpath=path)

    def _create_ssh_client(self, timeout: float) -> None:
        assert self._host is not None
        hostname, port, username, password = self._host
        client = sdk('paramiko', 'paramiko').SSHClient()
        # Unknown hosts are rejected.
        client.load_system_host_keys(os.environ.get('COMPOSER_SFTP_KNOWN_HOSTS_FILE'))
        client.connect(
            hostname=hostname,
            port=port,
            username=username,
            password=password,
            key_filename=os.environ.get('COMPOSER_SFTP_KEY_FILE'),
            timeout=timeout,
        )
        self._ssh_client = client


class OCIDownloader(CloudDownloader):
    """Downloads objects from Oracle Cloud Infrastructure. Needs oci and its configuration file."""

    _CLIENT = '_oci_client'
    _SDK = ('oci', 'oci')
    _SCHEME = 'oci'

    def _download_file_impl(self, remote: str, local: str, timeout: float) -> None:
        client = self._connected(remote)
        namespace = client.get_namespace().data
        _, bucket, key = _s3.split_url(remote)
        bucket, _, _ = bucket.partition(f'@{namespace}')
        found = client.get_object(namespace, bucket, key.strip('/'))
        with whole(local) as path, open(path, 'wb') as file:
            for piece in found.data.raw.stream(PIECE, decode_content=False):
                file.write(piece)

    def _connect(self, remote: str) -> Any:
        return oci_client()


def oci_client() -> Any:
    """Returns a client for Oracle's object storage."""
    oci = sdk('oci', 'oci')
    return oci.object_storage.ObjectStorageClient(
        config=oci.config.from_file(), retry_strategy=oci.retry.DEFAULT_RETRY_STRATEGY
    )


class _CoreDownloader(CloudDownloader):
    """The base of the downloaders that shardmill itself implements."""

    def _place(self, remote: str) -> tuple[str, Optional[dict[str, str]]]:
        """Returns the URL of a file as the core writes it, and the settings of its store."""
        return remote, self.storage_options

    def _download_file_impl(self, remote: str, local: str, timeout: float) -> None:
        url, settings = self._place(remote)
        _core.download(url, local, settings, timeout)


@contextmanager
def gcs_errors() -> Iterator[None]:
    """Raises missing credentials as Mosaic does.

    Raises:
        ValueError: No credentials were found.
    """
    try:
        yield
    except AccessError as error:
        if 'no credentials were found' in error.message:
            raise UsageError(GCS_ERROR_NO_AUTHENTICATION, 'credentials') from error
        raise


class GCSDownloader(_CoreDownloader):
    """Downloads objects from Google Cloud Storage, with ``GCS_KEY`` and ``GCS_SECRET`` or otherwise
    with Application Default Credentials."""

    _SCHEME = 'gs'

    def _download_file_impl(self, remote: str, local: str, timeout: float) -> None:
        with gcs_errors():
            super()._download_file_impl(remote, local, timeout)


class HFDownloader(_CoreDownloader):
    """Downloads files of datasets and buckets of the Hugging Face Hub."""

    _SCHEME = 'hf'


def azure_place(
    remote: str, path: str, settings: Optional[dict[str, str]]
) -> tuple[str, dict[str, str]]:
    """Returns the URL of a path in a storage account, and the settings with the account.

    The account is ``AZURE_ACCOUNT_NAME``, otherwise the first label of the host of `remote`.
    """
    settings = dict(settings or {})
    if not os.environ.get('AZURE_ACCOUNT_NAME'):
        settings.setdefault('AZURE_ACCOUNT_NAME', _s3.split_url(remote)[1].split('.')[0])
    return f'az://{path}', settings


class AzureDownloader(_CoreDownloader):
    """Downloads Azure blobs: ``azure://ACCOUNT.../CONTAINER/BLOB``."""

    _SCHEME = 'azure'

    def _place(self, remote: str) -> tuple[str, Optional[dict[str, str]]]:
        return azure_place(remote, _s3.split_url(remote)[2].lstrip('/'), self.storage_options)


class AzureDataLakeDownloader(_CoreDownloader):
    """Downloads files from Azure Data Lake: ``azure-dl://CONTAINER/FILE``."""

    _SCHEME = 'azure-dl'

    def _place(self, remote: str) -> tuple[str, Optional[dict[str, str]]]:
        return azure_place(remote, remote.partition('://')[2], self.storage_options)


class DatabricksUnityCatalogDownloader(_CoreDownloader):
    """Downloads files from Databricks volumes: ``dbfs:/Volumes/...``."""

    _SCHEME = 'dbfs-uc'

    def _validate_remote_path(self, remote: str) -> None:
        start = '/'.join(remote.split('/')[:2])
        if start != 'dbfs:/Volumes':
            raise UsageError(
                f'Expected path prefix to be `dbfs:/Volumes`, found {start}', 'url-path'
            )


class DBFSDownloader(CloudDownloader):
    """Downloads files from the Databricks file system: ``dbfs:/...``. Needs databricks-sdk."""

    _CLIENT = '_databricks_client'
    _databricks_client: Any
    _SDK = ('databricks.sdk', 'databricks-sdk')
    _SCHEME = 'dbfs'

    def _connect(self, remote: str) -> Any:
        return databricks_client()

    def _download_file_impl(self, remote: str, local: str, timeout: float) -> None:
        client = self._connected(remote)
        failed = sdk('databricks.sdk.errors.base', 'databricks-sdk').DatabricksError
        try:
            response = client.files.download(urlsplit(remote).path).contents
            with whole(local) as path, response:
                with open(path, 'wb') as file:
                    shutil.copyfileobj(response, file, PIECE)
        except failed as error:
            if error.error_code == 'NOT_FOUND':
                raise NotFoundError(f'{remote}: no such file', 'not-found') from error
            raise


def databricks_client() -> Any:
    """Returns a client for a Databricks workspace."""
    return sdk('databricks.sdk', 'databricks-sdk').WorkspaceClient()


class AlipanDownloader(CloudDownloader):
    """Downloads files from Alipan: ``alipan:///PATH``. Needs AliPCS-Py.

    ``ALIPAN_WEB_REFRESH_TOKEN`` is the token; ``ALIPAN_ENCRYPT_PASSWORD`` is for decryption.
    """

    _SCHEME = 'alipan'

    def _validate_remote_path(self, remote: str) -> None:
        super()._validate_remote_path(remote)
        if urlsplit(remote).netloc:
            raise UsageError('the URL of a file of Alipan is alipan:///PATH', 'url-path')

    def _download_file_impl(self, remote: str, local: str, timeout: float) -> None:
        api = alipan_api()
        commands = sdk('alipcs_py.commands.download', 'AliPCS-Py')
        remote_path = urlsplit(remote).path
        found = api.get_file(remotepath=remote_path)
        if found is None:
            raise NotFoundError(f'{remote}: no such file', 'not-found')
        name, parent = os.path.basename(local), Path(local).parent
        with tempfile.TemporaryDirectory(prefix=f'{name}.', dir=parent) as folder:
            commands.download_file(
                api,
                found,
                localdir=Path(folder),
                downloader='me',
                concurrency=1,
                show_progress=False,
                encrypt_password=os.environ.get('ALIPAN_ENCRYPT_PASSWORD', '').encode(),
            )
            os.replace(os.path.join(folder, os.path.basename(remote_path)), local)


def alipan_api() -> Any:
    """Returns a client for Alipan.

    Raises:
        ValueError: ``ALIPAN_WEB_REFRESH_TOKEN`` is not set.
    """
    module = sdk('alipcs_py.alipcs', 'AliPCS-Py')
    token = os.environ.get('ALIPAN_WEB_REFRESH_TOKEN')
    if not token:
        raise UsageError('ALIPAN_WEB_REFRESH_TOKEN is not set', 'credentials')
    return module.AliPCSApiMix(token, web_token_type='Bearer')


class LocalDownloader(CloudDownloader):
    """Copies files on this machine."""

    def _validate_remote_path(self, remote: str) -> None:
        if urlsplit(remote).scheme != 'file':
            super()._validate_remote_path(remote)

    def _download_file_impl(self, remote: str, local: str, timeout: float) -> None:
        _core.download(remote, local)


#: The downloaders by scheme; programs may add others.
DOWNLOADER_MAPPINGS: dict[str, type[CloudDownloader]] = {
    's3': S3Downloader,
    'sftp': SFTPDownloader,
    'gs': GCSDownloader,
    'oci': OCIDownloader,
    'hf': HFDownloader,
    'azure': AzureDownloader,
    'azure-dl': AzureDataLakeDownloader,
    'dbfs-uc': DatabricksUnityCatalogDownloader,
    'dbfs': DBFSDownloader,
    'alipan': AlipanDownloader,
    '': LocalDownloader,
    'file': LocalDownloader,
}


def download_file(remote: Optional[str], local: str, timeout: float = DEFAULT_TIMEOUT) -> None:
    """Downloads one file; see `CloudDownloader.download`."""
    CloudDownloader.direct_download(remote, local, timeout)
