"""Writes XSV, CSV and TSV shards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from shardmill.base import _arguments as check
from shardmill.base.format.base.samples import encoded, value_of
from shardmill.base.format.base.writer import SplitWriter, lists_writer_arguments, table
from shardmill.base.format.xsv import encodings
from shardmill.base.format.xsv.encodings import is_xsv_encoding, xsv_encode
from shardmill.errors import ColumnNameError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from shardmill.base._typing import Destination, WriterOptions

__all__ = ['CSVWriter', 'TSVWriter', 'XSVWriter']


class XSVWriter(SplitWriter):
    r"""Writes a dataset of unquoted values in lines, after a header line with the column names.

    Arguments that are not listed are those of `MDSWriter`.

    Args:
        columns: The encodings of the columns, ``str``, ``int`` or ``float``, by name.
        separator: The text between two values. No value may contain it, nor end in a way that
            makes its position ambiguous.
        newline: The line ending, with the same restrictions.
        out: A folder, which must be empty or missing; or a URL; or both, as a tuple.

    Attributes:
        column_names: The names of the columns, sorted, which is their order in the shards.
        column_encodings: The encoding of each column.

    Raises:
        AssertionError: An encoding is unknown, or a name contains the separator or the newline.
        ValueError: Another argument has an invalid value.
        FileExistsError: The local folder is not empty.
    """

    format = 'xsv'
    _codec: ClassVar[Any] = encodings
    separator: str

    @lists_writer_arguments
    def __init__(
        self,
        *,
        columns: Mapping[str, str],
        separator: str,
        newline: str = '\n',
        out: Destination,
        **kwargs: Unpack[WriterOptions],
    ) -> None:
        # Check before a folder is created or, with `exist_ok`, removed.
        columns = check.encodings(columns, is_xsv_encoding, encodings._encodings)
        separator = check.text('separator', separator)
        newline = check.text('newline', newline)
        _check_layout(columns, separator, newline)
        super().__init__(out=out, **kwargs)
        self.columns = columns
        self.column_names = sorted(columns)
        self.column_encodings = [columns[name] for name in self.column_names]
        self.separator = separator
        self.newline = newline

    def encode_sample(self, sample: dict[str, Any]) -> bytes:
        values = []
        for name, encoding in zip(self.column_names, self.column_encodings):
            value = encoded(xsv_encode, name, encoding, value_of(sample, name))
            for what, end in (('newline', self.newline), ('separator', self.separator)):
                if end in value:
                    raise ColumnNameError(
                        f'column {name!r}: {value!r} contains the {what}', 'sample-value', name
                    )
            values.append(value)
        return (self.separator.join(values) + self.newline).encode()

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            'column_names': self.column_names,
            'column_encodings': self.column_encodings,
            'separator': self.separator,
            'newline': self.newline,
        }

    def encode_split_shard(self) -> tuple[bytes, bytes]:
        header = (self.separator.join(self.column_names) + self.newline).encode()
        meta = table(len(header), self._samples, self._config_text())
        return header + b''.join(self._samples), meta


def _check_layout(columns: Mapping[str, str], separator: str, newline: str) -> None:
    """Rejects names, separators and newlines that make lines or values ambiguous."""
    if not separator:
        check.refuse_value('separator', separator, 'a text that is not empty')
    if not newline or separator in newline or newline in separator:
        check.refuse_value('newline', newline, f'a text without the separator {separator!r}')
    for name in columns:
        for what, end in (('newline', newline), ('separator', separator)):
            if end in name:
                raise ColumnNameError(
                    f'the name of column {name!r} contains the {what} {end!r}',
                    'config-column-name',
                    name,
                )


class _FixedWriter(XSVWriter):
    """A format with a fixed separator."""

    separator: str

    @lists_writer_arguments
    def __init__(
        self,
        *,
        columns: Mapping[str, str],
        newline: str = '\n',
        out: Destination,
        **kwargs: Unpack[WriterOptions],
    ) -> None:
        super().__init__(
            columns=columns,
            separator=self.separator,
            newline=newline,
            out=out,
            **kwargs,
        )

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        del config['separator']
        return config


class CSVWriter(_FixedWriter):
    """Writes a dataset of comma-separated values: an `XSVWriter` with a fixed separator."""

    format = 'csv'
    separator = ','


class TSVWriter(_FixedWriter):
    """Writes a dataset of tab-separated values: an `XSVWriter` with a fixed separator."""

    format = 'tsv'
    separator = '\t'
