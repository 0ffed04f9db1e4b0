"""Converts Spark data frames to datasets. Importing this imports PySpark."""

from __future__ import annotations

from shardmill.base.converters.dataframe_to_mds import (
    SPARK_TO_MDS,
    dataframe_to_mds,
    infer_dataframe_schema,
    is_json_compatible,
)

__all__ = [
    'SPARK_TO_MDS',
    'dataframe_to_mds',
    'infer_dataframe_schema',
    'is_json_compatible',
]
