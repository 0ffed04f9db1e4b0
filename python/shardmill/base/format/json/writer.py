"""Writes shards of JSON lines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Optional, Union

from shardmill.base import _arguments as check
from shardmill.base.format.base.samples import encoded, value_of
from shardmill.base.format.base.writer import SplitWriter, lists_writer_arguments, table
from shardmill.base.format.json import encodings
from shardmill.base.format.json.encodings import is_json_encoded, is_json_encoding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from shardmill.base._typing import Destination, WriterOptions
    from shardmill.base.format.base.writer import Columns

__all__ = ['JSONWriter']


class JSONWriter(SplitWriter):
    r"""Writes a dataset of JSON lines.

    Args:
        columns: The encodings of the columns, ``str``, ``int`` or ``float``, by name.
        newline: The line ending.
        out: A folder, which must be empty or missing; or a URL; or both, as a tuple.
        keep_local: Whether to keep local files after upload.
        compression: A compression, optionally with a level.
        hashes: The names of the hashes of all files, sorted.
        size_limit: Maximum raw bytes of the lines per shard, as a number or as text such as
            ``'64mb'``; ``None`` for a single shard.
        **kwargs: `progress_bar`, `max_workers`, `retry`, `exist_ok` and `jobs`, as in every
            writer.

    Raises:
        AssertionError: An encoding is unknown.
        ValueError: Another argument has an invalid value.
        FileExistsError: The local folder is not empty.
    """

    format = 'json'

    @lists_writer_arguments
    def __init__(
        self,
        *,
        columns: Mapping[str, str],
        newline: str = '\n',
        out: Destination,
        keep_local: bool = False,
        compression: Optional[str] = None,
        hashes: Optional[list[str]] = None,
        size_limit: Optional[Union[int, str]] = 1 << 26,
        **kwargs: Unpack[WriterOptions],
    ) -> None:
        # Check before a folder is created or, with `exist_ok`, removed.
        columns = check.encodings(columns, is_json_encoding, encodings._encodings)
        newline = check.text('newline', newline)
        if not newline or newline.strip(' \t\r\n'):
            check.refuse_value('newline', newline, 'spaces, tabs, carriage returns or line feeds')
        super().__init__(
            out=out,
            keep_local=keep_local,
            compression=compression,
            hashes=hashes,
            size_limit=size_limit,
            **kwargs,
        )
        self.columns = columns
        self.newline = newline

    def encode_sample(self, sample: dict[str, Any]) -> bytes:
        values = {name: value_of(sample, name) for name in self.columns}
        for name, value in values.items():
            encoded(is_json_encoded, name, self.columns[name], value)
        return (json.dumps(values, sort_keys=True) + self.newline).encode()

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), 'columns': self.columns, 'newline': self.newline}

    def encode_split_shard(self) -> tuple[bytes, bytes]:
        return b''.join(self._samples), table(0, self._samples, self._config_text())

    def _columns(self) -> Optional[Columns]:
        columns: Columns = []
        for name, encoding in self.columns.items():
            if encodings._encodings[encoding] is not encodings._stock.get(encoding):
                return None
            columns.append((name, encoding, encodings._Coder(encoding), False))
        return columns

    def _layout(self) -> tuple[str, Optional[str]]:
        return self.newline, None
