"""Sessions of Spark on this machine, in both manners.

    SHARDMILL_MOSAIC=.venv/bin/python .cache/venv-spark-4/bin/python -m pytest tests/spark

The tests run in an environment with PySpark and without torch; what mosaicml-streaming makes of the results is asked in the
other one.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

# Tasks run the Python of the tests.
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
#: A task may be tried three times.
MASTER = "local[2,3]"
# Functions of the tests are found by their tasks.
os.environ["PYTHONPATH"] = os.pathsep.join(
    path for path in (str(Path(__file__).parent), os.environ.get("PYTHONPATH")) if path
)


def pytest_addoption(parser):
    parser.addoption("--connect", action="store_true", help="by Spark Connect, not in a session of this process")


@pytest.fixture(scope="session")
def spark(request):
    builder = SparkSession.builder
    if request.config.getoption("--connect"):
        # The server is started by the client, in another process.
        builder = builder.remote("local[2]")
    else:
        builder = builder.master(MASTER).config("spark.ui.enabled", "false")
    session = builder.config("spark.sql.shuffle.partitions", "3").getOrCreate()
    if not request.config.getoption("--connect"):
        session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def mosaic():
    """The Python that has mosaicml-streaming."""
    path = os.environ.get("SHARDMILL_MOSAIC")
    if path is None:
        pytest.exit("SHARDMILL_MOSAIC is to name a Python with mosaicml-streaming", returncode=2)
    return path
