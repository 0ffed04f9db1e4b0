"""The uploaders and downloaders of providers whose packages are not here: only their calls are."""

from __future__ import annotations

import os
import subprocess
import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, Optional

import pytest
from support.bucket import Answer, Bucket, Request

from shardmill.base.storage import (
    AzureDataLakeDownloader,
    AzureDataLakeUploader,
    AzureDownloader,
    AzureUploader,
    CloudDownloader,
    CloudUploader,
    DatabricksUnityCatalogDownloader,
    DatabricksUnityCatalogUploader,
    DBFSDownloader,
    DBFSUploader,
    GCSDownloader,
    GCSUploader,
    HFDownloader,
    HFUploader,
    OCIDownloader,
    OCIUploader,
    SFTPDownloader,
    download,
    upload,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.hub import Hub


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of whoever runs the tests, and no waiting."""
    for name in list(os.environ):
        if name.startswith(('GCS_', 'GOOGLE_', 'AZURE_', 'ALIPAN_', 'DATABRICKS_', 'HF_')):
            monkeypatch.delenv(name)
    monkeypatch.setattr('shardmill.base._retrying.sleep', lambda _: None)


def _file(path: Path, data: bytes) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return str(path)


def _module(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> None:
    """Puts a module, and what it lies in, in the place of the real one."""
    parts = name.split('.')
    for at in range(1, len(parts)):
        parent = '.'.join(parts[:at])
        monkeypatch.setitem(sys.modules, parent, sys.modules.get(parent) or ModuleType(parent))
    module = ModuleType(name)
    vars(module).update(members)
    monkeypatch.setitem(sys.modules, name, module)


class _DeniedError(Exception):
    def __init__(self, code: str = '', status: int = 404) -> None:
        super().__init__(code)
        self.code = self.error_code = code
        self.status = status
        self.response = {'Error': {'Code': code}}


@pytest.mark.parametrize(
    ('made', 'module', 'package'),
    [
        (SFTPDownloader, 'paramiko', 'paramiko'),
        (OCIDownloader, 'oci', 'oci'),
        (DBFSDownloader, 'databricks.sdk', 'databricks-sdk'),
    ],
)
def test_missing_package_error_names_pip_package(
    monkeypatch: pytest.MonkeyPatch, made: Any, module: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=f'pip install {package}`'):
        made()


def test_importing_storage_loads_no_provider_packages() -> None:
    program = (
        'import sys, shardmill.base.storage as s; '
        'heavy = {"boto3", "botocore", "google", "azure", "oci", "databricks", "paramiko", '
        '"huggingface_hub", "tqdm", "torch", "numpy"}; '
        'print(*(heavy & set(sys.modules)))'
    )
    run = subprocess.run(
        [sys.executable, '-c', program], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout.strip()) == (0, '')


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """A bucket of Google Cloud Storage, for holders of an HMAC key."""
    bucket = Bucket()
    monkeypatch.setenv('GOOGLE_ENDPOINT_URL', bucket.endpoint)
    monkeypatch.setenv('GCS_KEY', 'key')
    monkeypatch.setenv('GCS_SECRET', 'hush')
    yield bucket
    bucket.close()


def test_gcs_with_hmac_key_transfers_and_lists_objects(tmp_path: Path, google: Bucket) -> None:
    google.objects['a/x'] = b'x'
    downloader = GCSDownloader()
    downloader.download('gs://bucket/a/x', str(tmp_path / 'x'))
    assert (tmp_path / 'x').read_bytes() == b'x'
    with pytest.raises(FileNotFoundError):
        downloader.download('gs://bucket/none', str(tmp_path / 'y'))
    assert os.listdir(tmp_path) == ['x']
    uploader = GCSUploader((str(tmp_path / 'out'), 'gs://bucket/a'))
    assert uploader.authentication is upload.GCSAuthentication.HMAC
    _file(tmp_path / 'out' / 'new', b'new')
    uploader.upload_file('new')
    assert google.objects['a/new'] == b'new'
    assert uploader.list_objects() == ['a/new', 'a/x']
    assert uploader.list_objects('n') == ['a/new']
    with pytest.raises(FileNotFoundError):
        GCSUploader('gs://other')


def test_gcs_without_credentials_is_a_value_error(
    tmp_path: Path, google: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ('GCS_KEY', 'GCS_SECRET'):
        monkeypatch.delenv(name)
    monkeypatch.setenv('HOME', str(tmp_path))
    monkeypatch.setenv('GCE_METADATA_HOST', google.endpoint.removeprefix('http://'))
    google.fault = lambda _: (404, {}, b'')
    with pytest.raises(ValueError, match='GCS_KEY'):
        GCSUploader('gs://bucket/a')
    with pytest.raises(ValueError, match='GCS_KEY'):
        GCSDownloader().download('gs://bucket/a', str(tmp_path / 'a'))


def test_oci_transfers_and_lists_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = {f'a/{at}': bytes(at) for at in range(5)}

    class Client:
        def __init__(self, **_: Any) -> None:
            pass

        def get_namespace(self) -> Any:
            return SimpleNamespace(data='space')

        def get_object(self, space: str, bucket: str, name: str) -> Any:
            assert (space, bucket) == ('space', 'bucket')
            raw = SimpleNamespace(stream=lambda _, decode_content: iter([objects[name]]))
            return SimpleNamespace(data=SimpleNamespace(raw=raw))

        def head_bucket(self, bucket_name: str, namespace_name: str) -> None:
            if bucket_name != 'bucket':
                raise _DeniedError('BucketNotFound')

        def list_objects(
            self, namespace_name: str, bucket_name: str, prefix: str, start: Optional[str]
        ) -> Any:
            if prefix.endswith('none'):
                raise _DeniedError('ObjectNotFound')
            names = [name for name in objects if name.startswith(prefix) and name >= (start or '')]
            page = SimpleNamespace(
                objects=[SimpleNamespace(name=name) for name in names[:2]],
                next_start_with=names[2] if len(names) > 2 else None,
            )
            return SimpleNamespace(data=page)

    class Manager:
        def __init__(self, _: Client) -> None:
            pass

        def upload_file(
            self,
            namespace_name: str,
            bucket_name: str,
            object_name: str,
            file_path: str,
            progress_callback: Any,
        ) -> None:
            with open(file_path, 'rb') as file:
                objects[object_name] = file.read()
            progress_callback(len(objects[object_name]))

    _module(
        monkeypatch,
        'oci',
        config=SimpleNamespace(from_file=dict),
        retry=SimpleNamespace(DEFAULT_RETRY_STRATEGY=None),
        exceptions=SimpleNamespace(ServiceError=_DeniedError),
        object_storage=SimpleNamespace(ObjectStorageClient=Client, UploadManager=Manager),
    )
    OCIDownloader().download('oci://bucket@space/a/3', str(tmp_path / 'x'))
    assert (tmp_path / 'x').read_bytes() == bytes(3)
    uploader = OCIUploader((str(tmp_path / 'out'), 'oci://bucket@space/a'))
    _file(tmp_path / 'out' / 'new', b'new')
    uploader.upload_file('new')
    assert objects['a/new'] == b'new'
    assert uploader.list_objects() == [*(f'a/{at}' for at in range(5)), 'a/new']
    with pytest.raises(FileNotFoundError):
        uploader.list_objects('none')
    with pytest.raises(_DeniedError, match='may not be seen'):
        OCIUploader('oci://other@space/a')


def test_hugging_face_transfers_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hub: Hub
) -> None:
    known = ['org/name']

    def tree(repo_id: str, repo_type: str) -> list[str]:
        if repo_id not in known:
            raise LookupError('no')
        return ['x']

    _module(
        monkeypatch,
        'huggingface_hub',
        HfApi=lambda: SimpleNamespace(list_repo_tree=tree),
        HfFileSystem=lambda token: SimpleNamespace(
            open=lambda path, mode: open(tmp_path / path.replace('/', '+'), mode)
        ),
    )
    _file(tmp_path / 'repository' / 'deep' / 'x', b'x')
    hub.commit(tmp_path / 'repository')
    HFDownloader().download('hf://datasets/org/name/deep/x', str(tmp_path / 'new' / 'x'))
    assert (tmp_path / 'new' / 'x').read_bytes() == b'x'
    assert os.listdir(tmp_path / 'new') == ['x']
    for wrong in ('hf://org/name/x', 'hf://datasets/org', 'hf://x'):
        with pytest.raises(ValueError, match='hf://datasets/'):
            HFDownloader().download(wrong, str(tmp_path / 'new' / 'y'))
        with pytest.raises(ValueError, match='hf://datasets/'):
            HFUploader((str(tmp_path / 'out'), wrong))
    uploader = HFUploader((str(tmp_path / 'out'), 'hf://datasets/org/name/deep'))
    assert (uploader.dataset_id, uploader.path) == ('org/name', 'deep')
    _file(tmp_path / 'out' / 'new', b'new')
    uploader.upload_file('new')
    assert (tmp_path / 'datasets+org+name+deep+new').read_bytes() == b'new'
    with pytest.raises(FileNotFoundError, match='org/other'):
        HFUploader('hf://datasets/org/other')


@pytest.mark.parametrize('lake', [False, True])
def test_azure_transfers_and_lists_blobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lake: bool
) -> None:
    bucket = Bucket('data')
    bucket.objects['a/x'] = b'x'

    def azure(request: Request) -> Optional[Answer]:
        if request.bucket != 'data':
            return None
        if request.query.get('comp') == 'list':
            return 200, {}, b'<EnumerationResults><Blobs/></EnumerationResults>'
        if request.method == 'PUT':
            bucket.objects[request.key] = request.body
            return 201, {'ETag': '"new"'}, b''
        return None

    bucket.fault = azure
    monkeypatch.setenv('AZURE_STORAGE_ENDPOINT', bucket.endpoint)
    monkeypatch.setenv('AZURE_ACCOUNT_ACCESS_KEY', 'aHVzaA==')
    monkeypatch.setenv('AZURE_ACCOUNT_NAME', 'account')
    made = AzureDataLakeUploader if lake else AzureUploader
    scheme = 'azure-dl' if lake else 'azure'
    url = 'azure-dl://data/a/x' if lake else 'azure://account/data/a/x'
    downloader = CloudDownloader.get(url)
    try:
        downloader.download(url, str(tmp_path / 'x'))
        assert (tmp_path / 'x').read_bytes() == b'x'
        with pytest.raises(FileNotFoundError):
            downloader.download(f'{url}y', str(tmp_path / 'y'))
        assert os.listdir(tmp_path) == ['x']
        uploader = made((str(tmp_path / 'out'), f'{scheme}://data/a'))
        _file(tmp_path / 'out' / 'new', b'new')
        uploader.upload_file('new')
        assert bucket.objects['a/new'] == b'new'
        with pytest.raises(FileNotFoundError, match='other'):
            made(f'{scheme}://other/a')
    finally:
        bucket.close()
    signed = {request.headers['authorization'].partition(':')[0] for request in bucket.requests}
    assert signed == {'SharedKey account'}


def test_azure_urls_name_the_account() -> None:
    url = 'azure://one.blob.core.windows.net/data/x'
    assert AzureDownloader()._place(url) == ('az://data/x', {'AZURE_ACCOUNT_NAME': 'one'})
    lake = AzureDataLakeDownloader()._place('azure-dl://data/x')
    assert lake == ('az://data/x', {'AZURE_ACCOUNT_NAME': 'data'})


def test_volumes_transfer_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = Bucket('api')
    start = '2.0/fs/files/Volumes/a/b/c'
    bucket.objects[f'{start}/x'] = b'x'

    def workspace(request: Request) -> Optional[Answer]:
        if request.method != 'PUT':
            return None
        bucket.objects[request.key] = request.body
        return 204, {}, b''

    bucket.fault = workspace
    monkeypatch.setenv('DATABRICKS_HOST', bucket.endpoint)
    monkeypatch.setenv('DATABRICKS_TOKEN', 'hush')
    try:
        volumes = CloudDownloader.get('dbfs:/Volumes/a/b/c')
        assert type(volumes) is DatabricksUnityCatalogDownloader
        volumes.download('dbfs:/Volumes/a/b/c/x', str(tmp_path / 'x'))
        assert (tmp_path / 'x').read_bytes() == b'x'
        with pytest.raises(FileNotFoundError):
            volumes.download('dbfs:/Volumes/a/b/c/none', str(tmp_path / 'z'))
        with pytest.raises(ValueError, match='dbfs:/Volumes'):
            volumes.download('dbfs:/Volumess/x', str(tmp_path / 'z'))
        assert os.listdir(tmp_path) == ['x']
        uploader = CloudUploader.get((str(tmp_path / 'out'), 'dbfs:/Volumes/a/b/c'))
        assert type(uploader) is DatabricksUnityCatalogUploader
        _file(tmp_path / 'out' / 'new', b'new')
        uploader.upload_file('new')
        assert bucket.objects[f'{start}/new'] == b'new'
    finally:
        bucket.close()


def test_dbfs_transfers_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = {'/a/x': b'y'}

    class Stream:
        def __init__(self, data: bytes) -> None:
            self.data = data

        def __enter__(self) -> Stream:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def read(self, size: int) -> bytes:
            data, self.data = self.data[:size], self.data[size:]
            return data

    def fetch(path: str) -> Any:
        if path not in objects:
            raise _DeniedError('NOT_FOUND' if 'none' in path else 'BUSY')
        return SimpleNamespace(contents=Stream(objects[path]))

    def put(path: str, file: Any) -> None:
        objects[path] = file.read()

    client = SimpleNamespace(
        files=SimpleNamespace(download=fetch),
        dbfs=SimpleNamespace(upload=put, exists=lambda path: path == '/a'),
    )
    _module(monkeypatch, 'databricks.sdk', WorkspaceClient=lambda: client)
    _module(monkeypatch, 'databricks.sdk.errors.base', DatabricksError=_DeniedError)
    files = CloudDownloader.get('dbfs:/a')
    assert type(files) is DBFSDownloader
    files.download('dbfs:/a/x', str(tmp_path / 'y'))
    assert (tmp_path / 'y').read_bytes() == b'y'
    with pytest.raises(FileNotFoundError):
        files.download('dbfs:/none', str(tmp_path / 'z'))
    with pytest.raises(_DeniedError, match='BUSY'):
        files.download('dbfs:/busy', str(tmp_path / 'z'))
    assert os.listdir(tmp_path) == ['y']
    uploader = CloudUploader.get((str(tmp_path / 'out'), 'dbfs:/a'))
    assert type(uploader) is DBFSUploader
    _file(tmp_path / 'out' / 'new', b'new')
    uploader.upload_file('new')
    assert objects['/a/new'] == b'new'
    with pytest.raises(FileNotFoundError):
        DBFSUploader('dbfs:/none')


def test_sftp_downloads_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connected: list[dict[str, Any]] = []

    class Session:
        def __enter__(self) -> Session:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def get_channel(self) -> Any:
            return SimpleNamespace(settimeout=lambda _: None)

        def get(self, remotepath: str, localpath: str) -> None:
            with open(localpath, 'w') as file:
                file.write(remotepath)

    class Client:
        def load_system_host_keys(self, path: Optional[str]) -> None:
            pass

        def connect(self, **options: Any) -> None:
            connected.append(options)

        def open_sftp(self) -> Session:
            return Session()

        def close(self) -> None:
            connected.clear()

    _module(monkeypatch, 'paramiko', SSHClient=Client)
    downloader = SFTPDownloader()
    downloader.download('sftp://me@host/a/x', str(tmp_path / 'x'))
    downloader.download('sftp://me@host:22/a/y', str(tmp_path / 'y'))
    assert (tmp_path / 'y').read_text() == '/a/y'
    assert [(each['hostname'], each['port']) for each in connected] == [('host', 22)]
    for wrong in ('sftp://me@other/x', 'sftp:///x', 'sftp://me@host/x?y', 'sftp://host/x'):
        with pytest.raises(ValueError):
            downloader.download(wrong, str(tmp_path / 'z'))
    downloader.clean_up()
    assert not connected


def test_alipan_transfers_and_lists_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = {'/a/x': b'x'}
    tokens: list[str] = []

    class Api:
        def __init__(self, token: str, web_token_type: str) -> None:
            tokens.append(token)

        def refresh(self) -> None:
            pass

        def get_file(self, remotepath: str) -> Any:
            known = any(path.startswith(remotepath) for path in objects)
            return SimpleNamespace(file_id=remotepath, path=remotepath) if known else None

        def list_iter(self, file_id: str, recursive: bool) -> Any:
            return (SimpleNamespace(path=path[len(file_id) + 1 :]) for path in objects)

    def fetch(api: Api, found: Any, localdir: Path, **_: Any) -> None:
        _file(localdir / os.path.basename(found.path), objects[found.path])

    def put(api: Api, paths: tuple[str, str], mode: str, **options: Any) -> None:
        with open(paths[0], 'rb') as file:
            objects[paths[1]] = file.read()
        options['callback_for_monitor'](3)

    _module(monkeypatch, 'alipcs_py.alipcs', AliPCSApiMix=Api)
    _module(monkeypatch, 'alipcs_py.commands.download', download_file=fetch)
    _module(
        monkeypatch,
        'alipcs_py.commands.upload',
        upload_file=put,
        EncryptType=SimpleNamespace(No='no', Simple='simple'),
    )
    downloader = CloudDownloader.get('alipan:///a')
    with pytest.raises(ValueError, match='ALIPAN_WEB_REFRESH_TOKEN'):
        downloader.download('alipan:///a/x', str(tmp_path / 'x'))
    monkeypatch.setenv('ALIPAN_WEB_REFRESH_TOKEN', 'hush')
    downloader.download('alipan:///a/x', str(tmp_path / 'x'))
    assert (tmp_path / 'x').read_bytes() == b'x'
    with pytest.raises(FileNotFoundError):
        downloader.download('alipan:///none', str(tmp_path / 'y'))
    with pytest.raises(ValueError, match='alipan:///PATH'):
        downloader.download('alipan://host/x', str(tmp_path / 'y'))
    assert os.listdir(tmp_path) == ['x']
    uploader = CloudUploader.get((str(tmp_path / 'out'), 'alipan:///a'))
    _file(tmp_path / 'out' / 'new', b'new')
    uploader.upload_file('new')
    assert objects['/a/new'] == b'new'
    assert uploader.list_objects() == ['/a/new', '/a/x']
    assert set(tokens) == {'hush'}
    monkeypatch.setenv('ALIPAN_ENCRYPT_TYPE', 'other')
    with pytest.raises(ValueError, match='ALIPAN_ENCRYPT_TYPE'):
        CloudUploader.get('alipan:///a')


def test_gcs_missing_credentials_message_matches_streaming() -> None:
    words = upload.GCS_ERROR_NO_AUTHENTICATION
    assert words is download.GCS_ERROR_NO_AUTHENTICATION
    assert words.startswith(
        'Either set the environment variables `GCS_KEY` and `GCS_SECRET` or use'
    )
    assert 'Application Default Credentials' in words
