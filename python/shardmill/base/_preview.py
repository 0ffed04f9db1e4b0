"""The first samples of a dataset, for notebooks: images as thumbnails, other values shortened."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from typing import Any, Optional

from shardmill._text import html_table
from shardmill.base._columns import stored_value
from shardmill.base._representation import dataset_facts
from shardmill.errors import ShardmillError
from shardmill.schema import TEXTS, Schema

#: How many samples a notebook shows.
_SAMPLES = 5
#: Maximum characters of a value.
_SHOWN = 60
#: Width and height of a thumbnail, and the maximum pixels and bytes of an image that is opened for it.
_THUMBNAIL = 96
_PIXELS = 64 << 20
_BYTES = 64 << 20
_FORMATS = {'GIF': b'GIF8', 'JPEG': b'\xff\xd8\xff', 'PNG': b'\x89PNG\r\n', 'WEBP': b'RIFF'}


@dataclass(frozen=True)
class Preview:
    """The first samples of a dataset as they are stored.

    Attributes:
        schema: The columns.
        samples: The values by column; images are bytes.
    """

    schema: Schema
    samples: tuple[dict[str, Any], ...]

    def __repr__(self) -> str:
        encodings = {name: column.encoding for name, column in self.schema.items()}
        lines = [
            ', '.join(f'{name}={_line(encodings[name], each[name])}' for name in each)
            for each in self.samples
        ]
        return '\n'.join(f'{number}: {line}' for number, line in enumerate(lines))

    def _repr_html_(self) -> str:
        rows: list[list[Any]] = []
        for number, sample in enumerate(self.samples):
            cells = (_cell(self.schema[name].encoding, sample.get(name)) for name in self.schema)
            rows.append([str(number), *cells])
        return html_table(rows, ('', *self.schema))


def read_preview(dataset: Any, count: int) -> Preview:
    """Reads the first samples of a dataset, as they are stored."""
    import numpy as np

    schema = dataset._sample_columns
    samples: list[dict[str, Any]] = []
    if count:
        dataset._make_local(0, count)
        _, batch = dataset._here().ranges(stored_value).read(0, count)
        if isinstance(batch, dict):
            made = {
                name: values if isinstance(values, list) else np.asarray(values)
                for name, values in batch.items()
            }
            samples = [{name: made[name][at] for name in made} for at in range(count)]
        else:
            samples = batch
    for name in schema:
        mask = dataset._columns.null_mask(name)
        if mask is not None and mask not in schema:
            for sample in samples:
                if sample.pop(mask, 0) == 1:
                    sample[name] = None
    return Preview(schema, tuple(samples))


def preview_html(dataset: Any) -> str:
    """Returns facts, columns, and the first samples that are on this machine."""
    facts = dataset_facts(dataset)
    known = vars(dataset)
    title = html_table(
        [(name.replace('_', ' '), value) for name, value in facts.items() if value is not None],
        caption=type(dataset).__name__,
    )
    if '_reader' not in known:
        return title
    parts = [title, dataset._sample_columns._repr_html_()]
    count = min(_SAMPLES, int(known.get('num_samples') or 0))
    try:
        # All of them in the first shard: another one may be missing.
        count = next((at for at in range(count) if not dataset._is_local(at)), count)
        if count:
            parts.append(read_preview(dataset, count)._repr_html_())
        else:
            parts.append(
                '<p>No samples are on this machine; <code>preview()</code> fetches some.</p>'
            )
    except ShardmillError as error:
        # A damaged shard must not hide the facts.
        parts.append(html_table([(str(error),)]))
    return f'<div>{"".join(parts)}</div>'


def _line(encoding: str, value: Any) -> str:
    if isinstance(value, bytes) and encoding in TEXTS:
        value = value.decode(errors='replace')
    return _shown(value)


def _shown(value: Any) -> str:
    """Formats a value in one short line."""
    if isinstance(value, (bytes, bytearray)):
        return f'{len(value):,} bytes'
    if isinstance(value, list) and value and isinstance(value[0], bytes):
        return f'{len(value)} files'
    if hasattr(value, 'dtype') and value.ndim:
        text = f'{value.dtype}{list(value.shape)} {value.reshape(-1)[:8].tolist()}'
    elif hasattr(value, 'item'):
        text = str(value.item())
    else:
        text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _SHOWN else f'{text[:_SHOWN]}…'


class _Thumbnail:
    """An image in a cell of an HTML table."""

    def __init__(self, png: bytes, title: str) -> None:
        self._png = base64.b64encode(png).decode()
        self._title = title

    def _repr_html_(self) -> str:
        return f'<img src="data:image/png;base64,{self._png}" title="{self._title}">'


def _cell(encoding: str, value: Any) -> Any:
    """Returns the cell of a value: a thumbnail for an image."""
    if isinstance(value, list) and value and isinstance(value[0], bytes):
        value = value[0]
        encoding = 'pil' if encoding == 'list[pil]' else 'bytes'
    thumbnail = None
    if isinstance(value, bytes) and encoding not in TEXTS:
        thumbnail = _thumbnail(encoding, value)
    return thumbnail or (None if value is None else _line(encoding, value))


def _thumbnail(encoding: str, data: bytes) -> Optional[_Thumbnail]:
    """Returns a thumbnail; ``None`` if this is no image, it is too large, or Pillow is not installed."""
    kind = next((name for name, magic in _FORMATS.items() if data.startswith(magic)), None)
    if len(data) > _BYTES or (kind is None and encoding != 'pil'):
        return None
    try:
        from PIL import Image
    except ImportError:
        return None
    try:
        if encoding == 'pil':
            from shardmill.base.format.mds.encodings import PIL

            image = PIL().decode(data)
        else:
            image = Image.open(io.BytesIO(data), formats=[str(kind)])
        width, height = image.size
        if width * height > _PIXELS:
            return None
        image.thumbnail((_THUMBNAIL, _THUMBNAIL))
        made = io.BytesIO()
        image.convert('RGB').save(made, 'PNG')
    except (OSError, SyntaxError, ValueError):
        # Damaged or not an image: the cell shows its size.
        return None
    return _Thumbnail(made.getvalue(), f'{width} x {height}, {len(data):,} bytes')
