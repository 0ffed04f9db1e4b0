"""Executes the notebook, and compares what it shows with the outputs that are stored in it.

    UPDATE_DOCS=1 pytest tests/examples -k notebook    # stores the outputs
"""

import os

import nbformat
import pytest
from nbclient import NotebookClient

from support import EXAMPLES, SECONDS

NOTEBOOK = EXAMPLES / "look.ipynb"
MOST_BYTES = 120_000


def shown(notebook):
    """What each code cell prints, and whether it shows a picture."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    texts = ["".join(output.text for output in cell.outputs if output.output_type == "stream") for cell in cells]
    pictures = [
        any("image/jpeg" in output.get("data", {}) for output in cell.outputs if output.output_type != "stream")
        for cell in cells
    ]
    return list(zip(texts, pictures))


def tidy(notebook):
    """Removes what differs from run to run."""
    for cell in notebook.cells:
        cell.metadata = {}
        for output in cell.get("outputs", []):
            if output.output_type == "stream":
                output.text = output.text.replace("\r\n", "\n")
            elif output.output_type == "execute_result":
                output.data = {"image/jpeg": output.data["image/jpeg"]}


@pytest.fixture
def executed(run, tmp_path, monkeypatch):
    """The notebook after all of its cells ran."""
    run("true")
    programs = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    for name, value in {"PATH": programs, "OMP_NUM_THREADS": "1", "IPYTHONDIR": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES.parent / "python"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = NotebookClient(notebook, timeout=SECONDS, resources={"metadata": {"path": tmp_path / "scratch"}})
    client.execute()
    tidy(notebook)
    return notebook


def test_notebook_outputs_match_stored_outputs(executed):
    if os.environ.get("UPDATE_DOCS") == "1":
        nbformat.write(executed, NOTEBOOK)
    stored = nbformat.read(NOTEBOOK, as_version=4)
    assert shown(executed) == shown(stored)
    assert sum(has_picture for _, has_picture in shown(stored)) == 3
    assert NOTEBOOK.stat().st_size < MOST_BYTES
