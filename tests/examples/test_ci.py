"""Lints the CI files of `examples/ci`, and executes their steps against a store that enforces their policies."""

import copy
import io
import json
import re
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import pages
from guarded_store import GuardedStore, as_list
from support import EXAMPLES

CI = EXAMPLES / "ci"
WORKFLOWS = {"github.yml": "github-workflows", "github-parts.yml": "github-workflows", "gitlab-ci.yml": "gitlab-ci"}
#: Actions that a run needs only after a failure: a part of an upload was sent, and the rest cannot be.
ONLY_AFTER_FAILURES = {"s3:AbortMultipartUpload"}


def load(name):
    return yaml.safe_load((CI / name).read_text(encoding="utf-8"))


def policy(name):
    return json.loads((CI / "iam" / name).read_text(encoding="utf-8"))


@pytest.fixture
def store():
    store = GuardedStore()
    client = store.client()
    client.create_bucket(Bucket="bucket")
    table = pages.ROOT / "fixtures/delta/versions"
    for path in table.rglob("*"):
        if path.is_file():
            client.upload_file(str(path), "bucket", f"raw/clicks/{path.relative_to(table).as_posix()}")
    for number in range(4):
        body = io.BytesIO()
        pq.write_table(pa.table({"id": np.arange(number * 100, number * 100 + 100)}), body)
        client.put_object(Bucket="bucket", Key=f"raw/tables/{number}.parquet", Body=body.getvalue())
    yield store
    for page in client.get_paginator("list_objects_v2").paginate(Bucket="bucket"):
        for entry in page.get("Contents", []):
            client.delete_object(Bucket="bucket", Key=entry["Key"])
    client.delete_bucket(Bucket="bucket")
    store.close()


@pytest.fixture
def steps(run, store, tmp_path):
    """Runs commands with the credentials that the policy applies to."""

    def execute(commands, variables):
        environment = {
            **{name: str(value) for name, value in variables.items() if "${{" not in str(value)},
            "AWS_ENDPOINT_URL": store.address,
            "AWS_ACCESS_KEY_ID": "guarded",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "token"),
            "AWS_TOKEN": "token",
            "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        }
        return [run(command, **environment) for command in commands]

    return execute


def run_steps(job):
    return [step["run"] for step in job["steps"] if "run" in step]


def samples(store, prefix):
    index = store.client().get_object(Bucket="bucket", Key=f"{prefix}/index.json")
    return sum(shard["samples"] for shard in json.load(index["Body"])["shards"])


@pytest.mark.parametrize("name", WORKFLOWS)
def test_workflow_matches_its_schema(name):
    tool = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{WORKFLOWS[name]}"]
    done = subprocess.run([*tool, str(CI / name)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_nightly_workflow_steps_run(store, steps, tmp_path):
    store.policy = policy("s3-convert.json")
    workflow = load("github.yml")
    commands = run_steps(workflow["jobs"]["convert"])
    steps(commands, workflow["env"])
    first = samples(store, "shards/clicks")
    assert first > 0
    assert json.loads((tmp_path / "summary.md").read_text().splitlines()[-1])
    steps(commands, workflow["env"])
    assert samples(store, "shards/clicks") == first


def test_nightly_workflow_propagates_exit_code(store, steps):
    store.policy = policy("s3-convert.json")
    workflow = load("github.yml")
    with pytest.raises(AssertionError, match="ended with status 2"):
        steps(run_steps(workflow["jobs"]["convert"]), {**workflow["env"], "SOURCE": "s3://bucket/raw/missing"})


def test_parts_workflow_steps_run(store, steps):
    store.policy = policy("s3-convert.json")
    workflow = load("github-parts.yml")
    jobs = workflow["jobs"]
    parts = jobs["part"]["strategy"]["matrix"]["part"]
    assert parts == list(range(workflow["env"]["PARTS"]))
    for part in reversed(parts):
        steps(run_steps(jobs["part"]), {**workflow["env"], "PART": part})
    steps(run_steps(jobs["commit"]), workflow["env"])
    assert samples(store, "shards/tables") == 400


def test_gitlab_job_script_runs(store, steps):
    store.policy = policy("s3-convert.json")
    job = load("gitlab-ci.yml")["shards"]
    steps(["\n".join(job["script"])], job["variables"])
    assert samples(store, "shards/clicks") > 0


def without_one_action(whole):
    """Each policy that allows one action less."""
    for at, statement in enumerate(whole["Statement"]):
        for action in as_list(statement["Action"]):
            if action in ONLY_AFTER_FAILURES:
                continue
            less = copy.deepcopy(whole)
            less["Statement"][at]["Action"] = [other for other in as_list(statement["Action"]) if other != action]
            yield f"{statement['Sid']} without {action}", less


@pytest.mark.parametrize(
    ("name", "less"), [pytest.param(*case, id=case[0]) for case in without_one_action(policy("s3-convert.json"))]
)
def test_conversion_policy_is_minimal(name, less, store, steps):
    store.policy = less
    workflow = load("github.yml")
    with pytest.raises(AssertionError, match="ended with status 8"):
        steps(run_steps(workflow["jobs"]["convert"]), workflow["env"])


def test_training_policy_is_sufficient(store, steps, run, tmp_path):
    store.policy = policy("s3-convert.json")
    workflow = load("github.yml")
    steps(run_steps(workflow["jobs"]["convert"]), workflow["env"])
    store.policy = policy("s3-train.json")
    program = (
        "from shardmill import StreamingDataset\n"
        "dataset = StreamingDataset(remote='s3://bucket/shards/clicks', local='cache', batch_size=4)\n"
        "print(sum(1 for _ in dataset) >= len(dataset) > 0)"
    )
    (tmp_path / "read.py").write_text(program)
    assert steps([f"python {tmp_path / 'read.py'}"], workflow["env"]) == ["True\n"]


def test_container_and_workflows_pin_the_same_version():
    container = (CI / "Containerfile").read_text(encoding="utf-8")
    instructions = re.findall(r"^([A-Z]+) ", container, re.MULTILINE)
    assert instructions == ["FROM", "RUN", "USER", "WORKDIR", "ENV", "ENTRYPOINT"]
    files = [container, *((CI / name).read_text(encoding="utf-8") for name in WORKFLOWS)]
    versions = {version for text in files for version in re.findall(r'"shardmill==([\d.]+)"', text)}
    manifest = (pages.ROOT / "Cargo.toml").read_text(encoding="utf-8")
    assert versions == {re.search(r'^version = "(.+)"', manifest, re.MULTILINE)[1]}


def test_ci_guide_shows_the_example_files():
    shown = {block.title: block.text for block in pages.blocks(pages.ROOT / "docs/guide/ci.md") if block.title}
    titles = {".github/workflows/shards.yml": "github.yml", ".gitlab-ci.yml": "gitlab-ci.yml"}
    titles |= {name: name for name in ("Containerfile", "iam/s3-convert.json")}
    for title, name in titles.items():
        assert shown[title] == (CI / name).read_text(encoding="utf-8"), f"{title} in docs/guide/ci.md is not {name}"
