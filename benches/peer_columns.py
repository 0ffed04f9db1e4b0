"""How the columns of an Arrow table are written by packages that take Python objects."""

from __future__ import annotations

import resource

import pyarrow as pa


def encoding(field: pa.Field) -> str:
    if pa.types.is_string(field.type):
        return "str"
    if pa.types.is_binary(field.type):
        return "bytes"
    if pa.types.is_fixed_size_list(field.type):
        return f"ndarray:{field.type.value_type}:{field.type.list_size}"
    return {"double": "float64", "float": "float32"}.get(str(field.type), str(field.type))


def column_values(column: pa.Array):
    """One Python value a row, by the shortest way there is."""
    if pa.types.is_fixed_size_list(column.type):
        return column.flatten().to_numpy().reshape(len(column), column.type.list_size)
    return column.to_pylist()


def cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)
