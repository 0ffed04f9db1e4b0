"""MDS shards listed in an index."""

from __future__ import annotations

import struct
from typing import Any, Optional

from shardmill.base.format.base.reader import JointReader
from shardmill.base.format.mds.encodings import is_mds_encoding_safe, mds_decode

__all__ = ['MDSReader']


class MDSReader(JointReader):
    """An MDS shard, as a sequence of its samples.

    Attributes:
        column_encodings: The encoding of each column.
        column_names: The name of each column.
        column_sizes: The size of each column's values in bytes; ``None`` if it varies.
    """

    format = 'mds'
    column_encodings: list[str]
    column_names: list[str]
    column_sizes: list[Optional[int]]

    def validate(self, allow_unsafe_types: bool) -> None:
        if allow_unsafe_types:
            return
        for name, encoding in zip(self.column_names, self.column_encodings):
            if not is_mds_encoding_safe(encoding):
                raise ValueError(
                    f'column {name} contains an unsafe type, {encoding}: reading it runs code '
                    f'from the data; pass allow_unsafe_types=True where that is wanted'
                )

    def decode_sample(self, data: bytes) -> dict[str, Any]:
        at = 0
        sizes: list[int] = []
        for size in self.column_sizes:
            if not size:
                (size,) = struct.unpack_from('<I', data, at)
                at += 4
            sizes.append(size)
        sample = {}
        for name, encoding, size in zip(self.column_names, self.column_encodings, sizes):
            sample[name] = mds_decode(encoding, data[at : at + size])
            at += size
        return sample
