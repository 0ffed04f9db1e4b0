"""Copying files to stores and from them."""

from __future__ import annotations

import logging
import os
import pickle
import signal
import sys
import threading
import time
from types import ModuleType
from typing import TYPE_CHECKING, Any, Optional

import pytest
from support.bucket import Answer, Bucket, Request

from shardmill import MDSWriter, Stream, StreamingDataset, _core, parts
from shardmill.base.storage import (
    CloudDownloader,
    CloudUploader,
    DBFSDownloader,
    HFDownloader,
    LocalDownloader,
    LocalUploader,
    S3Downloader,
    S3Uploader,
    _s3,
    download_file,
)
from shardmill.caching import CacheClient
from shardmill.errors import (
    AccessError,
    ConflictError,
    NotFoundError,
    RemoteError,
    ShardmillError,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MIB = 1 << 20
#: Seconds in which an interrupt has to be obeyed.
PROMPT = 3.0


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings and no files of whoever runs the tests."""
    for name in list(os.environ):
        if name.startswith(('AWS_', 'S3_', 'GCS_', 'AZURE_', 'MOSAICML_', 'ALIPAN_', 'HF_')):
            monkeypatch.delenv(name)
    monkeypatch.setenv('AWS_EC2_METADATA_DISABLED', 'true')
    monkeypatch.setenv('HOME', str(tmp_path / 'home'))
    monkeypatch.setattr('shardmill.base._retrying.sleep', lambda _: None)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """A store, which the environment leads to."""
    bucket = Bucket()
    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)
    yield bucket
    bucket.close()


def _file(path: Path, data: bytes = b'bytes of a file') -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return str(path)


def _pattern(size: int) -> bytes:
    return (bytes(range(251)) * (size // 251 + 1))[:size]


class TestCore:
    """`_core.upload`, `download`, `list_objects`, `check_bucket`."""

    @pytest.mark.parametrize('size', [0, 1, 5 * MIB + 3])
    def test_upload_and_download_round_trip(
        self, bucket: Bucket, tmp_path: Path, size: int
    ) -> None:
        data = _pattern(size)
        url = 's3://bucket/a folder/x+y'
        _core.upload(_file(tmp_path / 'in', data), url)
        assert bucket.objects == {'a folder/x+y': data}
        assert _core.download(url, tmp_path / 'deep' / 'out') == size
        assert (tmp_path / 'deep' / 'out').read_bytes() == data
        assert os.listdir(tmp_path / 'deep') == ['out']
        assert all('authorization' in request.headers for request in bucket.requests)

    def test_large_files_use_multipart_upload(self, bucket: Bucket, tmp_path: Path) -> None:
        data = _pattern(65 * MIB + 1)
        steps: list[int] = []
        _core.upload(_file(tmp_path / 'in', data), 's3://bucket/big', progress=steps.append)
        assert bucket.objects['big'] == data
        assert sorted(bucket.methods()) == ['POST', 'POST', *['PUT'] * 5]
        assert not bucket.uploads
        assert steps == sorted(steps) and steps[-1] == len(data)
        steps.clear()
        _core.download('s3://bucket/big', tmp_path / 'out', progress=steps.append)
        assert (tmp_path / 'out').read_bytes() == data
        assert steps == sorted(steps) and steps[-1] == len(data)

    def test_failed_multipart_upload_is_aborted(self, bucket: Bucket, tmp_path: Path) -> None:
        bucket.fault = lambda request: (
            (403, {}, b'') if request.query.get('partNumber') == '3' else None
        )
        with pytest.raises(AccessError, match='the store denied access'):
            _core.upload(_file(tmp_path / 'in', _pattern(65 * MIB)), 's3://bucket/big')
        assert not bucket.objects and not bucket.uploads
        assert 'DELETE' in bucket.methods()

    def test_storage_options_override_environment(self, bucket: Bucket, tmp_path: Path) -> None:
        other = Bucket()
        try:
            path = _file(tmp_path / 'in')
            _core.upload(path, 's3://bucket/x', other.environment)
            assert 'x' in other.objects and 'x' not in bucket.objects
            assert _core.list_objects('s3://bucket', other.environment) == [('x', 15)]
            _core.download('s3://bucket/x', tmp_path / 'out', other.environment, 10.0)
        finally:
            other.close()

    def test_listings_contain_objects_under_prefix(self, bucket: Bucket) -> None:
        bucket.objects.update({f'a/{at:03}<&>': b'x' * at for at in range(25)})
        bucket.objects['ab'] = b''
        bucket.page = 10
        assert len(_core.list_objects('s3://bucket/a')) == 26
        assert len(_core.list_objects('s3://bucket/a/')) == 25
        assert _core.list_objects('s3://bucket/a/02')[0] == ('a/020<&>', 20)
        assert _core.list_objects('s3://bucket/none') == []
        with pytest.raises(NotFoundError, match='NoSuchBucket'):
            _core.list_objects('s3://elsewhere/a')
        _core.check_bucket('s3://bucket/a')
        with pytest.raises(NotFoundError, match='NoSuchBucket'):
            _core.check_bucket('s3://elsewhere')

    def test_local_paths_and_file_urls_are_copied(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = _file(tmp_path / 'in', _pattern(3 * MIB))
        _core.upload(path, str(tmp_path / 'new' / 'out'))
        _core.upload(path, (tmp_path / 'new' / 'a b').as_uri())
        _core.download((tmp_path / 'new' / 'a b').as_uri(), tmp_path / 'again')
        for name in ('new/out', 'new/a b', 'again'):
            assert (tmp_path / name).read_bytes() == _pattern(3 * MIB)
        monkeypatch.chdir(tmp_path)
        _core.upload('in', 'here')
        assert (tmp_path / 'here').exists()
        with pytest.raises(UsageError, match='url-scheme'):
            _core.list_objects(str(tmp_path))

    def test_invalid_urls_and_timeouts_are_errors(self, bucket: Bucket, tmp_path: Path) -> None:
        path = _file(tmp_path / 'in')
        for url, error in [
            ('s3://bucket', 'url-path'),
            ('s3://bucket/../x', 'url-path'),
            ('s3://key:hush@bucket/x', 'url-user'),
            ('oci://bucket/x', 'url-scheme'),
            ('', 'url-empty'),
        ]:
            with pytest.raises(UsageError) as caught:
                _core.upload(path, url)
            assert caught.value.id == error
            assert 'hush' not in str(caught.value)
        with pytest.raises(FileNotFoundError, match='No such file'):
            _core.upload(str(tmp_path / 'none'), 's3://bucket/x')
        for timeout in (0, -1, float('nan'), float('inf')):
            with pytest.raises(ValueError, match='timeout'):
                _core.download('s3://bucket/x', tmp_path / 'out', None, timeout)
        with pytest.raises(NotFoundError, match='404'):
            _core.download('s3://bucket/none', tmp_path / 'out')
        assert os.listdir(tmp_path) == ['in']
        assert bucket.methods() == ['HEAD']

    def test_stalled_download_times_out(self, bucket: Bucket, tmp_path: Path) -> None:
        bucket.objects['x'] = b'x'

        def stall(_: Request) -> Optional[Answer]:
            bucket.ended.wait()
            return None

        bucket.fault = stall
        start = time.monotonic()
        with pytest.raises(RemoteError) as caught:
            _core.download('s3://bucket/x', tmp_path / 'out', None, 0.2)
        assert caught.value.id == 'stalled'
        assert time.monotonic() - start < 60
        assert os.listdir(tmp_path) == []

    @pytest.mark.parametrize('call', ['upload', 'parts', 'download', 'check', 'list'])
    def test_interrupt_stops_storage_calls(self, bucket: Bucket, tmp_path: Path, call: str) -> None:
        reached = threading.Event()

        def stall(request: Request) -> Optional[Answer]:
            if call == 'parts' and request.method in ('POST', 'DELETE'):
                return None
            if call == 'download' and request.method == 'HEAD':
                return None
            reached.set()
            bucket.ended.wait()
            return None

        bucket.objects['x'] = b'x'
        bucket.fault = stall
        path = _file(tmp_path / 'in', _pattern(65 * MIB if call == 'parts' else 9))

        def interrupt() -> None:
            reached.wait()
            interrupted.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        interrupted: list[float] = []
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            if call == 'download':
                _core.download('s3://bucket/x', tmp_path / 'out')
            elif call == 'check':
                _core.check_bucket('s3://bucket/x')
            elif call == 'list':
                _core.list_objects('s3://bucket/x')
            else:
                _core.upload(path, 's3://bucket/x')
        took = time.monotonic() - interrupted[0]
        thread.join()
        assert took < PROMPT
        assert bucket.objects == {'x': b'x'} and not bucket.uploads
        assert os.listdir(tmp_path) == ['in']

    def test_progress_callback_exception_stops_upload(self, bucket: Bucket, tmp_path: Path) -> None:
        def refuse(_: int) -> None:
            raise LookupError('enough')

        path = _file(tmp_path / 'in', _pattern(65 * MIB))
        with pytest.raises(LookupError, match='enough'):
            _core.upload(path, 's3://bucket/x', None, refuse)
        assert not bucket.objects and not bucket.uploads
        with pytest.raises(LookupError, match='enough'):
            _core.upload(path, str(tmp_path / 'out'), None, refuse)
        assert os.listdir(tmp_path) == ['in']

    def test_transfers_release_the_gil(self, bucket: Bucket, tmp_path: Path) -> None:
        # The store itself runs on threads of this interpreter: nothing would ever be answered.
        errors: list[BaseException] = []

        def copy(at: int) -> None:
            try:
                path = _file(tmp_path / str(at), _pattern(at * 1000))
                _core.upload(path, f's3://bucket/{at}')
                _core.download(f's3://bucket/{at}', tmp_path / f'{at}.out')
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=copy, args=(at,)) for at in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        for at in range(16):
            assert (tmp_path / f'{at}.out').read_bytes() == _pattern(at * 1000)

    @pytest.mark.filterwarnings('ignore:.*fork.*:DeprecationWarning')
    def test_forked_child_opens_its_own_connections(self, bucket: Bucket, tmp_path: Path) -> None:
        path = _file(tmp_path / 'in')
        _core.upload(path, 's3://bucket/parent')
        child = os.fork()
        if child == 0:
            status = 1
            try:
                _core.upload(path, 's3://bucket/child')
                status = 0
            finally:
                os._exit(status)
        _core.upload(path, 's3://bucket/again')
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert set(bucket.objects) == {'parent', 'child', 'again'}


class TestSettings:
    """What is known about S3."""

    @pytest.fixture
    def profiles(self, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A home directory with profiles, and no credentials in the environment."""
        folder = tmp_path / 'home' / '.aws'
        _file(
            folder / 'credentials',
            b'[default]\naws_access_key_id = one\naws_secret_access_key = hush%\n'
            b'[other]\naws_access_key_id = two\naws_secret_access_key = b\naws_session_token = c\n'
            b'[half]\naws_access_key_id = hush\n',
        )
        _file(
            folder / 'config',
            b'[default]\nregion = r1\n[profile other]\nregion = r2\n'
            b'[profile sso]\nsso_session = corp\nsso_account_id = 1\nsso_role_name = r\n'
            b'[sso-session corp]\nsso_region = r3\nsso_start_url = https://corp.awsapps.com/start\n',
        )
        for name in ('AWS_ACCESS_KEY_ID', 'AWS_SECRET_ACCESS_KEY', 'AWS_REGION'):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv('HOME', str(tmp_path / 'home'))
        bucket.objects['x'] = b'x'
        return folder

    @staticmethod
    def signer(bucket: Bucket) -> tuple[str, str]:
        """Returns the key and the region that signed the last request."""
        _, _, scope = bucket.requests[-1].headers['authorization'].partition('Credential=')
        key, _, region, *_ = scope.split('/')
        return key, region

    @pytest.mark.usefixtures('profiles')
    def test_profiles_provide_credentials_and_region(
        self, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        url, path = 's3://bucket/x', str(tmp_path / 'x')
        _core.download(url, path)
        assert self.signer(bucket) == ('one', 'r1')
        _core.download(url, path, {'AWS_PROFILE': 'other'})
        assert self.signer(bucket) == ('two', 'r2')
        assert bucket.requests[-1].headers['x-amz-security-token'] == 'c'
        monkeypatch.setenv('AWS_PROFILE', 'other')
        S3Downloader().download(url, str(tmp_path / 'y'))
        assert self.signer(bucket) == ('two', 'r2')
        # Keys of the environment win over a profile of the environment, and not over one that is given.
        monkeypatch.setenv('AWS_ACCESS_KEY_ID', 'environment')
        monkeypatch.setenv('AWS_SECRET_ACCESS_KEY', 'b')
        _core.download(url, path)
        assert self.signer(bucket) == ('environment', 'r2')
        _core.download(url, path, {'aws_profile': 'default', 'AWS_REGION': 'r9'})
        assert self.signer(bucket) == ('one', 'r9')

    def test_unusable_profiles_are_errors(
        self, profiles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for profile, id, texts in [
            ('half', 'url-profile', ('aws_secret_access_key',)),
            ('none', 'url-profile', ('"default", "half", "other", "sso"',)),
            ('sso', 'credentials', ('no login', '`aws sso login` for the profile "sso"')),
        ]:
            monkeypatch.setenv('AWS_PROFILE', profile)
            for caught in (
                lambda: _core.download('s3://bucket/x', str(tmp_path / 'x')),
                lambda: S3Downloader().download('s3://bucket/x', str(tmp_path / 'x')),
                lambda: StreamingDataset(remote='s3://bucket', local=str(tmp_path / 'local')),
            ):
                with pytest.raises(ShardmillError) as raised:
                    caught()
                shown = f'{raised.value} {raised.value.object} {raised.value.hint}'
                assert raised.value.id == id
                assert all(text in shown for text in texts), shown
                assert 'hush' not in shown
        monkeypatch.delenv('AWS_PROFILE')
        _file(profiles / 'config', b'[default]\nhush\n')
        with pytest.raises(UsageError, match='line 2') as wrong:
            _core.download('s3://bucket/x', str(tmp_path / 'x'))
        assert wrong.value.object == '~/.aws/config'
        assert 'hush' not in str(wrong.value)

    @pytest.mark.usefixtures('profiles')
    def test_every_entry_point_accepts_storage_options(
        self, bucket: Bucket, tmp_path: Path
    ) -> None:
        options = {'AWS_PROFILE': 'other'}
        with MDSWriter(
            out=(str(tmp_path / 'out'), 's3://bucket/set'),
            columns={'a': 'int'},
            storage_options=options,
        ) as writer:
            writer.write({'a': 7})
        assert self.signer(bucket) == ('two', 'r2')
        datasets: tuple[Callable[[str], StreamingDataset[Any]], ...] = (
            lambda local: StreamingDataset(
                remote='s3://bucket/set', local=local, batch_size=1, storage_options=options
            ),
            lambda local: StreamingDataset(
                streams=[Stream(remote='s3://bucket/set', local=local, storage_options=options)],
                storage_options={'AWS_PROFILE': 'default'},
                batch_size=1,
            ),
        )
        for at, dataset in enumerate(datasets):
            assert list(dataset(str(tmp_path / f'local{at}'))) == [{'a': 7}]
            assert self.signer(bucket) == ('two', 'r2')
        client = CacheClient('s3://bucket/set', str(tmp_path / 'cache'), storage_options=options)
        assert 'index.json' in client.names()
        assert self.signer(bucket) == ('two', 'r2')
        calls: tuple[Callable[[dict[str, str]], Any], ...] = (
            lambda options: _core.download('s3://bucket/x', str(tmp_path / 'x'), options),
            lambda options: StreamingDataset(
                remote='s3://bucket/set', local=str(tmp_path / 'new'), storage_options=options
            ),
            lambda options: parts.begin('s3://bucket/parts', storage_options=options),
            lambda options: MDSWriter(
                out='s3://bucket/other', columns={'a': 'int'}, storage_options=options
            ),
        )
        for wrong in calls:
            with pytest.raises(UsageError) as caught:
                wrong({'AWS_SECRET': 'hush'})
            assert (caught.value.id, caught.value.object) == ('url-setting', 'storage_options')
            assert 'AWS_SECRET' in str(caught.value)
            assert 'hush' not in str(caught.value)
        not_options: tuple[Any, ...] = ({'AWS_REGION': 5}, ['AWS_REGION'], {5: 'x'})
        for value in not_options:
            with pytest.raises(TypeError, match='storage_options'):
                Stream(remote='s3://bucket/set', storage_options=value)

    def test_requester_pays_applies_to_listed_buckets(
        self, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bucket.objects['x'] = b'x'
        monkeypatch.setenv('MOSAICML_STREAMING_AWS_REQUESTER_PAYS', 'one, bucket')
        assert 'AWS_REQUEST_PAYER' not in _s3.settings('other')
        S3Downloader().download('s3://bucket/x', str(tmp_path / 'x'))
        assert all(
            request.headers.get('x-amz-request-payer') == 'requester' for request in bucket.requests
        )

    def test_public_bucket_is_read_without_credentials(
        self, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv('AWS_ACCESS_KEY_ID')
        monkeypatch.delenv('AWS_SECRET_ACCESS_KEY')
        bucket.objects['x'] = b'x'
        S3Downloader().download('s3://bucket/x', str(tmp_path / 'x'))
        assert (tmp_path / 'x').read_bytes() == b'x'
        assert bucket.requests
        assert all('authorization' not in request.headers for request in bucket.requests)


class TestUploader:
    """`CloudUploader` and those of S3 and of paths."""

    def test_url_scheme_selects_implementation(self, bucket: Bucket, tmp_path: Path) -> None:
        places: list[tuple[Any, type[CloudUploader]]] = [
            (str(tmp_path / 'a'), LocalUploader),
            ((str(tmp_path / 'b'), str(tmp_path / 'c')), LocalUploader),
            ('s3://bucket/x', S3Uploader),
            ((str(tmp_path / 'd'), 's3://bucket/x'), S3Uploader),
        ]
        for out, served in places:
            found: CloudUploader = CloudUploader.get(out)
            assert type(found) is served
            assert os.path.isdir(found.local)
        assert found.remote == 's3://bucket/x'
        for wrong in [(), ('s3://bucket',), ('a', 'b', 'c')]:
            with pytest.raises(ValueError, match='Invalid `out` argument'):
                CloudUploader.get(wrong)  # type: ignore[arg-type]
        for other in ['s9://bucket', ('a', 'ftp://x'), ('a', None)]:
            with pytest.raises(ValueError, match='Invalid Cloud provider prefix'):
                CloudUploader.get(other)  # type: ignore[arg-type]

    def test_non_empty_output_folder_is_an_error(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        _file(tmp_path / 'out' / 'x')
        with pytest.raises(FileExistsError, match='Directory is not empty') as caught:
            CloudUploader.get(str(tmp_path / 'out'))
        assert isinstance(caught.value, ConflictError)
        with caplog.at_level(logging.WARNING):
            CloudUploader.get(str(tmp_path / 'out'), exist_ok=True)
        assert 'is not empty' in caplog.text
        with pytest.raises(ValueError, match='needs a location'):
            S3Uploader(str(tmp_path / 'empty'))

    @pytest.mark.parametrize('keep', [True, False])
    def test_uploader_copies_files_to_remote(
        self, bucket: Bucket, tmp_path: Path, keep: bool
    ) -> None:
        for remote in ('s3://bucket/some/data/', str(tmp_path / 'copies')):
            local = tmp_path / remote[:2].strip('/')
            uploader = CloudUploader.get((str(local), remote), keep_local=keep)
            _file(local / 'part' / 'shard', b'shard')
            uploader.upload_file('part/shard')
            assert (local / 'part' / 'shard').exists() is keep
        assert bucket.objects == {'some/data/part/shard': b'shard'}
        assert (tmp_path / 'copies' / 'part' / 'shard').read_bytes() == b'shard'

    def test_uploader_without_remote_keeps_files(self, tmp_path: Path) -> None:
        uploader = LocalUploader(str(tmp_path))
        _file(tmp_path / 'x')
        uploader.upload_file('x')
        assert os.listdir(tmp_path) == ['x']
        with pytest.raises(NotImplementedError, match='does not list'):
            CloudUploader(str(tmp_path), exist_ok=True).list_objects()
        base = CloudUploader((str(tmp_path), str(tmp_path / 'to')), exist_ok=True)
        with pytest.raises(NotImplementedError, match='does not upload'):
            base.upload_file('x')

    def test_upload_of_missing_file_is_an_error(self, bucket: Bucket, tmp_path: Path) -> None:
        for remote in (str(tmp_path / 'to'), 's3://bucket/x'):
            uploader = CloudUploader.get((str(tmp_path / remote[:2]), remote))
            with pytest.raises(FileNotFoundError, match=r'No such file or directory: .*shard'):
                uploader.upload_file('shard')

    def test_failed_upload_is_attempted_retry_times(self, tmp_path: Path) -> None:
        class Failing(LocalUploader):
            tries = 0

            def _upload(self, *_: Any) -> None:
                self.tries += 1
                raise OSError('no')

        for attempts in (1, 3):
            local = tmp_path / str(attempts)
            uploader = Failing((str(local), str(tmp_path / 'to')), retry=attempts)
            _file(local / 'x')
            with pytest.raises(OSError, match='no'):
                uploader.upload_file('x')
            assert uploader.tries == attempts
            assert (local / 'x').exists()
        with pytest.raises(ValueError, match='num_attempts'):
            Failing((str(tmp_path / 'l'), str(tmp_path / 'to')), retry=0).upload_file('x')

    def test_listings_contain_objects_under_prefix(self, bucket: Bucket, tmp_path: Path) -> None:
        bucket.objects.update({'data/a': b'', 'data/b/c': b'', 'database': b''})
        uploader = S3Uploader('s3://bucket/data')
        assert uploader.list_objects() == ['data/a', 'data/b/c']
        assert uploader.list_objects('b') == ['data/b/c']
        assert S3Uploader('s3://bucket').list_objects() == ['data/a', 'data/b/c', 'database']
        for name in ('b/two', 'b/one', 'a'):
            _file(tmp_path / 'out' / name)
        local = LocalUploader(str(tmp_path / 'out'), exist_ok=True)
        expected = [str(tmp_path / 'out' / name) for name in ('a', 'b/one', 'b/two')]
        assert local.list_objects() == expected
        assert local.list_objects('b/o') == expected[1:2]

    def test_canned_acl_is_sent_from_environment(
        self, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        uploader = S3Uploader((str(tmp_path / 'out'), 's3://bucket'))
        for acl in (None, 'bucket-owner-full-control'):
            if acl is not None:
                monkeypatch.setenv('S3_CANNED_ACL', acl)
            _file(tmp_path / 'out' / 'x')
            uploader.upload_file('x')
            assert bucket.requests[-1].headers.get('x-amz-acl') == acl
        with pytest.raises(ValueError, match='Metadata: only ACL'):
            uploader.s3.upload_file('x', 'bucket', 'x', ExtraArgs={'Metadata': 'x'})

    def test_progress_bar_reports_uploaded_bytes(
        self, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        told: list[int] = []

        class Bar:
            def __init__(self, **options: Any) -> None:
                told.append(-options['total'])

            def __enter__(self) -> Bar:
                return self

            def __exit__(self, *_: object) -> None:
                pass

            def update(self, more: int) -> None:
                told.append(more)

        module = ModuleType('tqdm')
        module.tqdm = Bar  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, 'tqdm', module)
        size = 65 * MIB
        uploader = S3Uploader((str(tmp_path / 'out'), 's3://bucket'), progress_bar=True)
        _file(tmp_path / 'out' / 'x', _pattern(size))
        uploader.upload_file('x')
        assert told[0] == -size and sum(told[1:]) == size and min(told[1:]) > 0
        monkeypatch.setitem(sys.modules, 'tqdm', None)
        _file(tmp_path / 'out' / 'x')
        with pytest.raises(ImportError, match='pip install tqdm'):
            uploader.upload_file('x')

    def test_missing_and_denied_buckets_are_errors(self, bucket: Bucket) -> None:
        with pytest.raises(FileNotFoundError, match='NoSuchBucket'):
            S3Uploader('s3://elsewhere/x')
        bucket.fault = lambda _: (403, {}, b'<Error><Code>AccessDenied</Code></Error>')
        with pytest.raises(PermissionError, match='AccessDenied') as caught:
            S3Uploader('s3://bucket/x')
        assert 'hush' not in repr(caught.value.__dict__)

    def test_errors_subclass_botocore_client_error(self, bucket: Bucket) -> None:
        exceptions = pytest.importorskip('botocore.exceptions')
        with pytest.raises(exceptions.ClientError) as caught:
            S3Uploader('s3://elsewhere/x')
        error: Any = caught.value
        assert isinstance(caught.value, NotFoundError)
        assert error.response['Error']['Code'] == 'NoSuchBucket'
        assert error.response['ResponseMetadata']['HTTPStatusCode'] == 404
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is NotFoundError and copy.id == error.id
        with pytest.raises(exceptions.ClientError):
            S3Downloader().download('s3://bucket/none', '/tmp/shardmill-none')


class TestDownloader:
    """`CloudDownloader` and those of S3 and of paths."""

    def test_url_scheme_selects_implementation(self) -> None:
        for url, served in [
            (None, LocalDownloader),
            ('/data', LocalDownloader),
            ('file:///data', LocalDownloader),
            ('s3://bucket/x', S3Downloader),
            ('hf://datasets/a/b/c', HFDownloader),
        ]:
            assert type(CloudDownloader.get(url)) is served
        with pytest.raises(ValueError, match='Unsupported remote path'):
            CloudDownloader.get('ftp://host/x')

    def test_existing_files_are_not_downloaded_again(self, bucket: Bucket, tmp_path: Path) -> None:
        bucket.objects['data/x'] = _pattern(9 * MIB)
        local = str(tmp_path / 'new' / 'x')
        downloader = CloudDownloader.get('s3://bucket/data')
        downloader.download('s3://bucket/data/x', local, 60)
        assert (tmp_path / 'new' / 'x').read_bytes() == _pattern(9 * MIB)
        before = len(bucket.requests)
        downloader.download('s3://bucket/data/x', local)
        downloader.clean_up()
        download_file('s3://bucket/data/x', local)
        assert len(bucket.requests) == before
        CloudDownloader.direct_download(local, str(tmp_path / 'copy'))
        assert (tmp_path / 'copy').read_bytes() == _pattern(9 * MIB)

    def test_missing_remote_files_are_errors(self, bucket: Bucket, tmp_path: Path) -> None:
        for url in ('s3://bucket/none', str(tmp_path / 'none'), 's3://elsewhere/x'):
            with pytest.raises(FileNotFoundError):
                CloudDownloader.get(url).download(url, str(tmp_path / 'out'))
        for remote in (None, ''):
            with pytest.raises(ValueError, match='no remote'):
                CloudDownloader.get().download(remote, str(tmp_path / 'out'))
        for scheme in ('s9', 'gs'):
            with pytest.raises(ValueError, match='Expected remote path to start with s3'):
                S3Downloader().download(f'{scheme}://bucket/x', str(tmp_path / 'out'))
        assert os.listdir(tmp_path) == []

    def test_access_denied_error_mentions_requester_pays(
        self, bucket: Bucket, tmp_path: Path
    ) -> None:
        bucket.fault = lambda _: (403, {}, b'')
        with pytest.raises(PermissionError, match='MOSAICML_STREAMING_AWS_REQUESTER_PAYS'):
            S3Downloader().download('s3://bucket/x', str(tmp_path / 'out'))

    def test_downloaders_can_be_pickled(self) -> None:
        downloader = S3Downloader()
        assert type(pickle.loads(pickle.dumps(downloader))) is S3Downloader
        hub = DBFSDownloader.__new__(DBFSDownloader)
        hub._databricks_client = threading.Lock()
        assert pickle.loads(pickle.dumps(hub))._databricks_client is None


class TestAnotherStore:
    """What moto, a store by other people, makes of it."""

    @pytest.fixture
    def moto(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
        server = pytest.importorskip('moto.server')
        boto3 = pytest.importorskip('boto3')
        started = server.ThreadedMotoServer('127.0.0.1', 0, verbose=False)
        started.start()
        host, port = started.get_host_and_port()
        monkeypatch.setenv('AWS_ENDPOINT_URL', f'http://{host}:{port}')
        monkeypatch.setenv('AWS_ACCESS_KEY_ID', 'test')
        monkeypatch.setenv('AWS_SECRET_ACCESS_KEY', 'test')
        monkeypatch.setenv('AWS_DEFAULT_REGION', 'us-east-1')
        client = boto3.client('s3')
        client.create_bucket(Bucket='bucket')
        yield client
        started.stop()

    @pytest.mark.parametrize('size', [0, 5, 65 * MIB + 7])
    def test_transfers_are_compatible_with_moto(self, moto: Any, tmp_path: Path, size: int) -> None:
        data = _pattern(size)
        uploader = S3Uploader((str(tmp_path / 'out'), 's3://bucket/a b'), keep_local=True)
        _file(tmp_path / 'out' / 'x+y', data)
        uploader.upload_file('x+y')
        assert moto.get_object(Bucket='bucket', Key='a b/x+y')['Body'].read() == data
        assert not moto.list_multipart_uploads(Bucket='bucket').get('Uploads')
        moto.put_object(Bucket='bucket', Key='a b/z', Body=data[::-1])
        S3Downloader().download('s3://bucket/a b/z', str(tmp_path / 'z'))
        assert (tmp_path / 'z').read_bytes() == data[::-1]
        assert uploader.list_objects() == ['a b/x+y', 'a b/z']
        with pytest.raises(ShardmillError):
            S3Uploader('s3://elsewhere')

    def test_paginated_listings_are_complete(self, moto: Any) -> None:
        for at in range(1005):
            moto.put_object(Bucket='bucket', Key=f'a/{at:04}&<', Body=b'')
        found = _core.list_objects('s3://bucket/a/')
        assert found == [(f'a/{at:04}&<', 0) for at in range(1005)]


def test_zero_download_retry_sends_one_request(bucket: Bucket, tmp_path: Path) -> None:
    asked: list[str] = []

    def fault(request: Request) -> Answer:
        asked.append(request.key)
        return 500, {}, b''

    bucket.fault = fault
    with pytest.raises(RemoteError):
        StreamingDataset(
            remote='s3://bucket/data', local=str(tmp_path), batch_size=1, download_retry=0
        )
    assert asked.count('data/index.json') == 1
