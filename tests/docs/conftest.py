"""What the examples of the documentation run with: the program, the package, small data, and a stand-in for S3."""

import os
import shutil
import tempfile
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

import data
from pages import ROOT


def find_binary():
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    path = Path(os.environ.get("SHARDMILL_BIN", target / "release" / "shardmill"))
    if not path.is_file():
        pytest.exit(f"no shardmill binary at {path}: build it, or set SHARDMILL_BIN", returncode=2)
    return path


@pytest.fixture(scope="session")
def prepared(tmp_path_factory):
    """The folder that each page gets a copy of."""
    folder = tmp_path_factory.mktemp("prepared") / "data"
    folder.mkdir()
    data.make(folder)
    return folder


@pytest.fixture(scope="session")
def store():
    """The address of a store that speaks the protocol of S3."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def scratch(tmp_path, prepared):
    folder = tmp_path / "scratch"
    shutil.copytree(prepared, folder)
    return folder


@pytest.fixture
def environment(tmp_path, scratch, store):
    """The environment of a new user: nothing is configured except for a store with the bucket `bucket`."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "shardmill").symlink_to(find_binary())
    (programs / "pip").symlink_to(ROOT / "tests/docs/installed.py")
    (tmp_path / "home").mkdir()
    # The paths of sockets have at most 107 bytes, of which torch's workers need some for themselves.
    temporary = tempfile.TemporaryDirectory(prefix="docs-")
    environment = {
        "PATH": f"{programs}:{ROOT / '.venv/bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "python"),
        "HOME": str(tmp_path / "home"),
        "TMPDIR": temporary.name,
        "LANG": "C.UTF-8",
        "COLUMNS": "100",
        "AWS_ENDPOINT_URL": store,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    fill_bucket(store, scratch)
    with temporary:
        yield environment


def fill_bucket(store, scratch):
    """Empties the bucket, then puts the prepared data into it."""
    client = boto3.client(
        "s3", endpoint_url=store, aws_access_key_id="key", aws_secret_access_key="secret", region_name="us-east-1"
    )
    client.create_bucket(Bucket="bucket")
    for page in client.get_paginator("list_objects_v2").paginate(Bucket="bucket"):
        for entry in page.get("Contents", []):
            client.delete_object(Bucket="bucket", Key=entry["Key"])
    for path in sorted(scratch.rglob("*")):
        if path.is_file():
            client.put_object(Bucket="bucket", Key=path.relative_to(scratch).as_posix(), Body=path.read_bytes())
