"""Writes shards of JSON lines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar

from shardmill.base import _arguments as check
from shardmill.base.format.base.samples import encoded, value_of
from shardmill.base.format.base.writer import SplitWriter, lists_writer_arguments, table
from shardmill.base.format.json import encodings
from shardmill.base.format.json.encodings import is_json_encoded, is_json_encoding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from shardmill.base._typing import Destination, WriterOptions

__all__ = ['JSONWriter']


class JSONWriter(SplitWriter):
    r"""Writes a dataset of JSON lines. Arguments that are not listed are those of `MDSWriter`.

    Args:
        columns: The encodings of the columns, ``str``, ``int`` or ``float``, by name.
        newline: The line ending.
        out: A folder, which must be empty or missing; or a URL; or both, as a tuple.

    Raises:
        AssertionError: An encoding is unknown.
        ValueError: Another argument has an invalid value.
        FileExistsError: The local folder is not empty.
    """

    format = 'json'
    _codec: ClassVar[Any] = encodings

    @lists_writer_arguments
    def __init__(
        self,
        *,
        columns: Mapping[str, str],
        newline: str = '\n',
        out: Destination,
        **kwargs: Unpack[WriterOptions],
    ) -> None:
        # Check before a folder is created or, with `exist_ok`, removed.
        columns = check.encodings(columns, is_json_encoding, encodings._encodings)
        newline = check.text('newline', newline)
        if not newline or newline.strip(' \t\r\n'):
            check.refuse_value('newline', newline, 'spaces, tabs, carriage returns or line feeds')
        super().__init__(out=out, **kwargs)
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
