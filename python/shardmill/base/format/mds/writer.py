"""Writes MDS shards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Optional

from shardmill.base import _arguments as check
from shardmill.base.format.base.samples import encoded, value_of
from shardmill.base.format.base.writer import JointWriter, lists_writer_arguments, table
from shardmill.base.format.mds import encodings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from shardmill.base._typing import Destination, WriterOptions

__all__ = ['MDSWriter']


class MDSWriter(JointWriter):
    """Writes a dataset of MDS shards.

    Args:
        columns: The encodings of the columns, by name.
        out: A folder, which must be empty or missing; or a URL; or both, as a tuple.
        keep_local: Whether to keep local files after upload.
        compression: A compression, optionally with a level: ``zstd``, ``zstd:7``, ``gz``, ``snappy``.
        hashes: The names of the hashes of all files, sorted.
        size_limit: Maximum raw bytes per shard, as a number or as text such as ``'64mb'``; ``None`` for a single shard.
        progress_bar: Whether to show progress bars for uploads.
        max_workers: Maximum concurrent uploads.
        retry: How many times an upload is attempted.
        exist_ok: Whether to remove an existing local folder first.
        jobs: Threads that compress, hash and write; ``None`` for one per core.
        storage_options: Store settings that are not in the environment, such as ``{'AWS_PROFILE': 'train'}``,
            for ``s3:`` locations.

    Attributes:
        column_names: The names of the columns, sorted, which is their order in the shards.
        column_encodings: The encoding of each column.
        column_sizes: The size of each column's values in bytes; ``None`` if it varies.
        config_data: The configuration stored in every shard.

    Raises:
        TypeError: An encoding is unknown.
        ValueError: Another argument has an invalid value.
        FileExistsError: The local folder is not empty.
    """

    format = 'mds'
    extra_bytes_per_sample = 4
    _codec: ClassVar[Any] = encodings

    @lists_writer_arguments
    def __init__(
        self,
        *,
        columns: Mapping[str, str],
        out: Destination,
        **kwargs: Unpack[WriterOptions],
    ) -> None:
        # Check before a folder is created or, with `exist_ok`, removed.
        columns = check.encodings(columns, encodings.is_mds_encoding, encodings.get_mds_encodings())
        super().__init__(
            out=out,
            extra_bytes_per_sample=self.extra_bytes_per_sample,
            **kwargs,
        )
        self.columns = columns
        self.column_names: list[str] = []
        self.column_encodings: list[str] = []
        self.column_sizes: list[Optional[int]] = []
        for name in sorted(columns):
            encoding = columns[name]
            self.column_names.append(name)
            self.column_encodings.append(encoding)
            self.column_sizes.append(encodings.get_mds_encoded_size(encoding))
        self.config_data = self._config_text().encode()
        self.extra_bytes_per_shard = 8 + len(self.config_data)
        self._reset_cache()

    def encode_sample(self, sample: dict[str, Any]) -> bytes:
        head, body = b'', b''
        columns = zip(self.column_names, self.column_encodings, self.column_sizes)
        for name, encoding, size in columns:
            datum = encoded(encodings.mds_encode, name, encoding, value_of(sample, name))
            if size is None:
                head += len(datum).to_bytes(4, 'little')
            elif size != len(datum):
                raise KeyError(f'column {name!r}: {len(datum)} bytes are no {encoding} of {size}')
            body += datum
        return head + body

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            'column_names': self.column_names,
            'column_encodings': self.column_encodings,
            'column_sizes': self.column_sizes,
        }

    def encode_joint_shard(self) -> bytes:
        config = self.config_data.decode()
        first = 8 + 4 * len(self._samples) + len(self.config_data)
        return table(first, self._samples, config) + b''.join(self._samples)
