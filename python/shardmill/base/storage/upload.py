"""Uploads files to stores.

shardmill itself implements S3, Google Cloud Storage, Azure, volumes of Databricks and local paths. Other providers
need their own packages, which are imported when an uploader is constructed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from tempfile import mkdtemp
from typing import Any, Callable, ClassVar, Optional, Union
from urllib.parse import urlsplit

from shardmill import _core
from shardmill.base._arguments import refuse_type
from shardmill.base._retrying import retry as retrying
from shardmill.base.storage import _s3, download
from shardmill.base.storage._sdk import increments, sdk
from shardmill.errors import ConflictError, NotFoundError, UsageError

__all__ = [
    'GCS_ERROR_NO_AUTHENTICATION',
    'AlipanUploader',
    'AzureDataLakeUploader',
    'AzureUploader',
    'CloudUploader',
    'DBFSUploader',
    'DatabricksUnityCatalogUploader',
    'GCSAuthentication',
    'GCSUploader',
    'HFUploader',
    'LocalUploader',
    'OCIUploader',
    'S3Uploader',
]

logger = logging.getLogger(__name__)

GCS_ERROR_NO_AUTHENTICATION = download.GCS_ERROR_NO_AUTHENTICATION

_Out = Union[str, tuple[str, str]]
_VOLUMES = 'dbfs:/Volumes'


class GCSAuthentication(Enum):
    """The kind of credentials for Google Cloud Storage."""

    HMAC = 1
    SERVICE_ACCOUNT = 2


def _remote_of(out: _Out) -> str:
    """Returns the remote part of `out`."""
    if not isinstance(out, (str, tuple, list)):
        refuse_type('out', out, 'a path, a URL, or a tuple of a local folder and a URL')
    if not isinstance(out, str) and len(out) != 2:
        raise UsageError(
            'Invalid `out` argument: it is a location, or a local folder and a location',
            'config-value',
        )
    remote = out if isinstance(out, str) else out[1]
    scheme = urlsplit(remote).scheme if isinstance(remote, str) else None
    if scheme not in UPLOADERS:
        raise UsageError(f'Invalid Cloud provider prefix: {scheme}', 'url-scheme')
    return remote


class CloudUploader:
    """Uploads files from a local folder to a location.

    Args:
        out: A local folder, where files stay; a URL, with a temporary local folder; or both as a
            tuple. A missing local folder is created.
        keep_local: Whether to keep files in the folder after upload.
        progress_bar: Whether to show progress bars. Needs tqdm.
        retry: The number of attempts per file.
        exist_ok: Whether the local folder may contain files already.
        storage_options: Store settings that are not in the environment, for the stores that shardmill implements.

    Attributes:
        local: The local folder.
        remote: The location; ``None`` for none.

    Raises:
        ValueError: `out` has an invalid form or an unknown scheme.
        FileExistsError: The local folder is not empty.
    """

    #: Whether a remote location is required.
    _REMOTE: ClassVar[bool] = False
    #: Whether it uses `storage_options`.
    _TAKES_OPTIONS: ClassVar[bool] = False

    @classmethod
    def get(
        cls,
        out: _Out,
        keep_local: bool = False,
        progress_bar: bool = False,
        retry: int = 2,
        exist_ok: bool = False,
        storage_options: Optional[Mapping[str, str]] = None,
    ) -> Any:
        """Returns the uploader for a location; the arguments are those of the class."""
        remote = _remote_of(out)
        scheme = urlsplit(remote).scheme
        if '/'.join(remote.split('/')[:2]) == _VOLUMES:
            scheme = _VOLUMES
        kind = UPLOADERS[scheme]
        if not storage_options or scheme == '':
            return kind(out, keep_local, progress_bar, retry, exist_ok)
        if not kind._TAKES_OPTIONS:
            raise UsageError(
                f'`storage_options` is not for {scheme}: locations',
                'config-argument',
                'storage_options',
                'set the environment variables of this store',
            )
        settings = dict(storage_options)
        return kind(out, keep_local, progress_bar, retry, exist_ok, storage_options=settings)

    def __init__(
        self,
        out: _Out,
        keep_local: bool = False,
        progress_bar: bool = False,
        retry: int = 2,
        exist_ok: bool = False,
        *,
        storage_options: Optional[Mapping[str, str]] = None,
    ) -> None:
        remote = _remote_of(out)
        self.storage_options = dict(storage_options or {})
        self.keep_local = keep_local
        self.progress_bar = progress_bar
        self.retry = retry
        self.local: str
        self.remote: Optional[str]
        if not isinstance(out, str):
            self.local, self.remote = out
        elif urlsplit(remote).scheme:
            self.local, self.remote = mkdtemp(), out
        else:
            self.local, self.remote = out, None
        if os.path.exists(self.local) and os.listdir(self.local):
            if not exist_ok:
                raise ConflictError(
                    f'Directory is not empty: {self.local}',
                    'dest-exists',
                    self.local,
                    'write to another folder, or empty this one',
                )
            logger.warning('%s is not empty, which exist_ok allows', self.local)
        os.makedirs(self.local, exist_ok=True)
        if self._REMOTE and not self.remote:
            raise UsageError(f'{type(self).__name__} needs a location to upload to', 'config-value')
        self._connect()

    def _connect(self) -> None:
        """Creates the client, and checks that the location exists. Called last by the constructor."""

    def upload_file(self, filename: str) -> None:
        """Uploads a file of the local folder under the same name.

        Args:
            filename: Its path within the folder.

        Raises:
            FileNotFoundError: The file does not exist.
        """

        def try_once() -> None:
            path = os.path.join(self.local, filename)
            size = os.stat(path).st_size
            remote = f'{(self.remote or "").rstrip("/")}/{filename}'
            logger.debug('uploading %s to %s', path, remote)
            with self._bar(size, remote) as advance:
                self._upload(path, remote, size, advance)
            self.clear_local(path)

        if self.remote:
            retrying(num_attempts=self.retry)(try_once)()

    def _upload(self, path: str, remote: str, size: int, advance: Callable[[int], Any]) -> None:
        """Uploads a file. `advance` receives the number of bytes sent since its last call."""
        raise NotImplementedError(f'{type(self).__name__} does not upload files')

    def list_objects(self, prefix: Optional[str] = None) -> Optional[list[str]]:
        """Lists the files at the location.

        Args:
            prefix: The prefix of names, relative to the location.

        Returns:
            Names within the bucket.
        """
        raise NotImplementedError(f'{type(self).__name__} does not list files')

    def clear_local(self, local: str) -> None:
        """Removes a local file unless `keep_local` is set."""
        if not self.keep_local and os.path.isfile(local):
            os.remove(local)

    def _place(self, prefix: Optional[str] = None) -> tuple[str, str]:
        """Returns the bucket, and the prefix of keys at the location."""
        _, bucket, key = _s3.split_url(self.remote or '')
        return bucket, os.path.join(key.lstrip('/'), prefix or '')

    @contextmanager
    def _bar(self, size: int, remote: str) -> Iterator[Callable[[int], Any]]:
        if not self.progress_bar:
            yield lambda _: None
            return
        bar = sdk('tqdm', 'tqdm').tqdm(
            total=size, unit='B', unit_scale=True, desc=f'Uploading to {remote}'
        )
        with bar:
            yield bar.update


class S3Uploader(CloudUploader):
    """Uploads files to S3 and compatible stores. ``S3_ENDPOINT_URL`` or ``AWS_ENDPOINT_URL`` sets
    another endpoint, and ``S3_CANNED_ACL`` the access rights of the objects."""

    _REMOTE = True
    _TAKES_OPTIONS = True

    def _connect(self) -> None:
        self.s3 = _s3.S3Client(self.storage_options)
        self.check_bucket_exists(self.remote or '')

    def check_bucket_exists(self, remote: str) -> None:
        """Raises an error if the bucket does not exist or may not be listed."""
        self.s3.head_bucket(Bucket=_s3.split_url(remote)[1])

    def _upload(self, path: str, remote: str, size: int, advance: Callable[[int], Any]) -> None:
        acl = os.environ.get('S3_CANNED_ACL')
        _, bucket, key = _s3.split_url(remote)
        self.s3.upload_file(
            path,
            bucket,
            key.lstrip('/'),
            ExtraArgs={} if acl is None else {'ACL': acl},
            Callback=advance,
        )

    def list_objects(self, prefix: Optional[str] = None) -> Optional[list[str]]:
        """Returns the keys at the location that begin with a prefix."""
        return self.s3.keys(*self._place(prefix))


class OCIUploader(CloudUploader):
    """Uploads files to Oracle Cloud Infrastructure. Needs oci and its configuration file."""

    _REMOTE = True

    def _connect(self) -> None:
        self.client = download.oci_client()
        self.namespace = self.client.get_namespace().data
        self.upload_manager = sdk('oci', 'oci').object_storage.UploadManager(self.client)
        self.check_bucket_exists(self.remote or '')

    def _bucket(self, remote: str) -> str:
        return _s3.split_url(remote)[1].partition(f'@{self.namespace}')[0]

    def check_bucket_exists(self, remote: str) -> None:
        """Raises an error if the bucket does not exist or access is denied."""
        failed = sdk('oci', 'oci').exceptions.ServiceError
        bucket = self._bucket(remote)
        try:
            self.client.head_bucket(bucket_name=bucket, namespace_name=self.namespace)
        except failed as error:
            if error.status == 404:
                error.args = (f'the bucket {bucket} is not there or may not be seen',)
            raise

    def _upload(self, path: str, remote: str, size: int, advance: Callable[[int], Any]) -> None:
        self.upload_manager.upload_file(
            namespace_name=self.namespace,
            bucket_name=self._bucket(remote),
            object_name=_s3.split_url(remote)[2].strip('/'),
            file_path=path,
            progress_callback=advance,
        )

    def list_objects(self, prefix: Optional[str] = None) -> Optional[list[str]]:
        """Returns the names at the location that begin with a prefix."""
        failed = sdk('oci', 'oci').exceptions.ServiceError
        bucket = self._bucket(self.remote or '')
        names: list[str] = []
        start = None
        while True:
            try:
                page = self.client.list_objects(
                    namespace_name=self.namespace,
                    bucket_name=bucket,
                    prefix=self._place(prefix)[1],
                    start=start,
                ).data
            except failed as error:
                if error.status == 404 and error.code == 'BucketNotFound':
                    raise UsageError(f'{bucket}: no such bucket', 'not-found') from error
                if error.status == 404:
                    raise NotFoundError(f'{bucket}: {error.code}', 'not-found') from error
                raise
            names.extend(found.name for found in page.objects)
            start = page.next_start_with
            if not start:
                return names


class HFUploader(CloudUploader):
    """Uploads files to a Hugging Face dataset: ``hf://datasets/ORG/NAME/PATH``. Needs
    huggingface-hub; ``HF_TOKEN`` is the token."""

    _REMOTE = True

    def _connect(self) -> None:
        hub = sdk('huggingface_hub', 'huggingface-hub')
        *kind, place = _s3.split_url(self.remote or '')
        self.repo_org, self.repo_name, self.path = [*place.split('/', 2), '', ''][:3]
        if kind != ['hf', 'datasets'] or not self.repo_org or not self.repo_name:
            text = 'Expected remote path to start with hf://datasets/ORGANISATION/NAME'
            raise UsageError(text, 'url-path')
        self.dataset_id = f'{self.repo_org}/{self.repo_name}'
        self.api = hub.HfApi()
        self.fs = hub.HfFileSystem(token=os.environ.get('HF_TOKEN'))
        self.check_dataset_exists()

    def check_dataset_exists(self) -> None:
        """Checks that the dataset is accessible.

        Raises:
            FileNotFoundError: The dataset does not exist or access is denied.
        """
        try:
            next(iter(self.api.list_repo_tree(self.dataset_id, repo_type='dataset')), None)
        except Exception as error:
            raise NotFoundError(
                f'the dataset {self.dataset_id} is not there or may not be seen: {error}',
                'not-found',
            ) from error

    def _upload(self, path: str, remote: str, size: int, advance: Callable[[int], Any]) -> None:
        target = remote.partition('://')[2]
        with open(path, 'rb') as source, self.fs.open(target, 'wb') as file:
            while piece := source.read(download.PIECE):
                file.write(piece)
                advance(len(piece))


class _CoreUploader(CloudUploader):
    """The base of the uploaders that only need the core."""

    _REMOTE = True
    _TAKES_OPTIONS = True

    def _at(self, remote: str) -> tuple[str, dict[str, str]]:
        """Returns the URL of a file as the core writes it, and the settings of its store."""
        return remote, self.storage_options

    def _upload(self, path: str, remote: str, size: int, advance: Callable[[int], Any]) -> None:
        _core.upload(path, *self._at(remote), increments(advance))


class GCSUploader(_CoreUploader):
    """Uploads files to Google Cloud Storage, with ``GCS_KEY`` and ``GCS_SECRET`` or otherwise with
    Application Default Credentials."""

    def _connect(self) -> None:
        self.authentication = GCSAuthentication.SERVICE_ACCOUNT
        if os.environ.get('GCS_KEY') and os.environ.get('GCS_SECRET'):
            self.authentication = GCSAuthentication.HMAC
        self.check_bucket_exists(self.remote or '')

    def check_bucket_exists(self, remote: str) -> None:
        """Raises an error if the bucket does not exist or may not be listed."""
        with download.gcs_errors():
            _core.check_bucket(f'gs://{_s3.split_url(remote)[1]}', self.storage_options)

    def list_objects(self, prefix: Optional[str] = None) -> Optional[list[str]]:
        """Returns the names at the location that begin with a prefix."""
        bucket, start = self._place(prefix)
        found = _core.list_objects(f'gs://{bucket}/{start}', self.storage_options)
        return [name for name, _ in found]


class _AzureUploader(_CoreUploader):
    """The base of both Azure services. The account is that of the downloaders."""

    def _connect(self) -> None:
        self._check(self.remote or '')

    def _at(self, remote: str) -> tuple[str, dict[str, str]]:
        return download.azure_place(remote, remote.partition('://')[2], self.storage_options)

    def _check(self, remote: str) -> None:
        """Checks that the container exists.

        Raises:
            FileNotFoundError: It does not exist.
        """
        _core.check_bucket(*self._at(remote))


class AzureUploader(_AzureUploader):
    """Uploads files to Azure blobs: ``azure://CONTAINER/PATH``."""

    check_bucket_exists = _AzureUploader._check


class AzureDataLakeUploader(_AzureUploader):
    """Uploads files to Azure Data Lake: ``azure-dl://CONTAINER/PATH``."""

    check_container_exists = _AzureUploader._check


class DatabricksUnityCatalogUploader(_CoreUploader):
    """Uploads files to a Databricks volume: ``dbfs:/Volumes/...``."""


class DBFSUploader(CloudUploader):
    """Uploads files to the Databricks file system: ``dbfs:/...``. Existing files are not replaced.
    Needs databricks-sdk."""

    _REMOTE = True

    def _connect(self) -> None:
        self.client = download.databricks_client()
        self.dbfs_path = urlsplit(self.remote or '').path
        self.check_folder_exists()

    def check_folder_exists(self) -> None:
        """Checks that the folder exists.

        Raises:
            FileNotFoundError: It does not exist.
        """
        if not self.client.dbfs.exists(self.dbfs_path):
            raise NotFoundError(f'dbfs:{self.dbfs_path}: no such folder', 'not-found')

    def _upload(self, path: str, remote: str, size: int, advance: Callable[[int], Any]) -> None:
        with open(path, 'rb') as file:
            self.client.dbfs.upload(urlsplit(remote).path, file)
        advance(size)


class AlipanUploader(CloudUploader):
    """Uploads files to Alipan: ``alipan:///PATH``. Needs AliPCS-Py.

    ``ALIPAN_WEB_REFRESH_TOKEN`` is the token. ``ALIPAN_ENCRYPT_PASSWORD`` and
    ``ALIPAN_ENCRYPT_TYPE`` (``Simple``, ``ChaCha20``, ``AES256CBC``) enable encryption.
    """

    _REMOTE = True

    def _connect(self) -> None:
        url = urlsplit(self.remote or '')
        if url.scheme != 'alipan' or url.netloc:
            raise UsageError('the URL of a folder of Alipan is alipan:///PATH', 'url-path')
        kinds = sdk('alipcs_py.commands.upload', 'AliPCS-Py').EncryptType
        name = os.environ.get('ALIPAN_ENCRYPT_TYPE') or 'No'
        self.alipan_encrypt_type = getattr(kinds, name, None)
        if self.alipan_encrypt_type is None:
            raise UsageError(
                f'ALIPAN_ENCRYPT_TYPE is {name!r}; use Simple, ChaCha20 or AES256CBC',
                'config-value',
            )
        self.alipan_encrypt_password = os.environ.get('ALIPAN_ENCRYPT_PASSWORD', '').encode()
        self.api = download.alipan_api()
        self.check_token()

    def check_token(self) -> None:
        """Raises an error if the token is invalid."""
        self.api.refresh()

    def _upload(self, path: str, remote: str, size: int, advance: Callable[[int], Any]) -> None:
        sdk('alipcs_py.commands.upload', 'AliPCS-Py').upload_file(
            self.api,
            (path, urlsplit(remote).path),
            'overwrite',
            encrypt_password=self.alipan_encrypt_password,
            encrypt_type=self.alipan_encrypt_type,
            callback_for_monitor=increments(advance),
        )

    def list_objects(self, prefix: Optional[str] = None) -> Optional[list[str]]:
        """Returns the paths below the location that begin with a prefix, sorted.

        Raises:
            FileNotFoundError: The location does not exist.
        """
        root = urlsplit(self.remote or '').path
        folder = self.api.get_file(remotepath=root)
        if folder is None:
            raise NotFoundError(f'alipan://{root}: no such folder', 'not-found')
        found = self.api.list_iter(folder.file_id, recursive=True)
        paths = (os.path.join(root, each.path) for each in found)
        return sorted(path for path in paths if path.startswith(prefix or ''))


class LocalUploader(CloudUploader):
    """Copies files to another folder of this machine, which is created if missing."""

    def _connect(self) -> None:
        if self.remote:
            os.makedirs(self.remote, exist_ok=True)

    def _upload(self, path: str, remote: str, size: int, advance: Callable[[int], Any]) -> None:
        _core.upload(path, remote)
        advance(size)

    def list_objects(self, prefix: Optional[str] = None) -> Optional[list[str]]:
        """Returns the paths in the local folder that begin with a prefix, sorted."""
        start = os.path.join(self.local, prefix or '')
        found = (
            os.path.join(folder, name) for folder, _, names in os.walk(self.local) for name in names
        )
        return sorted(path for path in found if path.startswith(start))


#: The uploaders by scheme; programs may add others.
UPLOADERS: dict[str, type[CloudUploader]] = {
    's3': S3Uploader,
    'gs': GCSUploader,
    'oci': OCIUploader,
    'hf': HFUploader,
    'azure': AzureUploader,
    'azure-dl': AzureDataLakeUploader,
    _VOLUMES: DatabricksUnityCatalogUploader,
    'dbfs': DBFSUploader,
    'alipan': AlipanUploader,
    '': LocalUploader,
}
