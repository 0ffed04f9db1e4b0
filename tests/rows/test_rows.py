"""The recipes of docs/guide/rows.md: each one runs on data that its library wrote, and what it gives is converted."""

import json
import os
import re
import subprocess
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shardmill

PAGE = Path(__file__).resolve().parents[2] / "docs/guide/rows.md"
TABLE = pa.table({"id": range(1000), "text": [f"text {number}" for number in range(1000)]})


def recipes():
    """The code blocks below each heading of the recipes."""
    found = []
    text = PAGE.read_text(encoding="utf-8").split("## Recipes")[1]
    for section in text.split("\n### ")[1:]:
        name = section.partition("\n")[0]
        for number, code in enumerate(re.findall(r"```python\n(.*?)```", section, re.DOTALL)):
            found.append(pytest.param(name, code, id=name if number == 0 else f"{name} {number}"))
    return found


def parquet():
    os.mkdir("data")
    for number in range(2):
        pq.write_table(TABLE.slice(number * 500, 500), f"data/{number}.parquet")


def memory():
    import fsspec

    with fsspec.open("memory://data/0.parquet", "wb") as file:
        pq.write_table(TABLE, file)
    with zipfile.ZipFile("photos.zip", "w") as file:
        for number in range(3):
            file.writestr(f"photos/{number}.jpg", bytes([number]) * 10)


def iceberg():
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("default", type="sql", uri="sqlite:///catalog.db", warehouse=f"file://{os.getcwd()}")
    catalog.create_namespace("examples")
    catalog.create_table("examples.texts", schema=TABLE.schema).append(TABLE)


def lance():
    import lance

    lance.write_dataset(TABLE, "texts.lance")


def sample(number):
    return {"id": number, "text": f"text {number}"}


def litdata():
    import litdata

    litdata.optimize(fn=sample, inputs=list(range(1000)), output_dir="litdata", chunk_bytes="64KB", num_workers=1)


def array_record():
    from array_record.python.array_record_module import ArrayRecordWriter

    writer = ArrayRecordWriter("texts.array_record", "group_size:1")
    for number in range(1000):
        writer.write(f"text {number}".encode())
    writer.close()


MAKE = {
    "pyarrow over fsspec": memory,
    "PyIceberg": iceberg,
    "Lance": lance,
    "LitData": litdata,
    "ArrayRecord": array_record,
}


def converted(folder):
    """The samples, as `cat` prints them."""
    command = [os.environ["SHARDMILL_BIN"], "cat", folder, "--json", "--limit", "2000"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize(("name", "code"), recipes())
def test_recipe_is_converted(name, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    MAKE.get(name, parquet)()
    variables = {}
    exec(code, variables)
    report = shardmill.convert(variables["source"], "shards", progress=False)
    samples = [each.get("sample", each) for each in converted("shards")]
    assert report.samples == len(samples)
    if "zip" in code:
        assert [each["name"] for each in samples] == [f"photos/{number}.jpg" for number in range(3)]
    elif name == "ArrayRecord":
        assert len(samples) == 1000
    else:
        ids = sorted(each["id"] for each in samples)
        assert ids == list(range(500 if "500" in code else 1000))
        for each in samples:
            text = f"text {each['id']}"
            assert each["text"] in (text, text.upper())
