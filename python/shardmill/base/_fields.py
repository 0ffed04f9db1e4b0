"""Decodes fields of WebDataset samples by their extension."""

from __future__ import annotations

import io
import json
import re
from typing import TYPE_CHECKING, Any, Callable, Optional, Union

from shardmill import _core
from shardmill.base._arguments import refuse_type

if TYPE_CHECKING:
    from PIL.Image import Image

FieldDecoder = Callable[[str, bytes], Any]

#: Extensions that webdataset can write but does not decode.
_BYTES = frozenset(('class', 'count', 'htm', 'html', 'msgpack', 'tenbin'))
#: Extensions of images that are decoded on request: those that Pillow may open, as listed by webdataset 1.0.2, which
#: omits `img` and `image`.
_IMAGES = frozenset(
    (
        'apng blp bmp bufr bw cur dcx dds dib emf eps fit fits flc fli ftc ftu gbr gif grib h5 hdf icb icns ico iim im '
        'j2c j2k jfif jp2 jpc jpe jpeg jpf jpg jpx mpeg mpg msp pbm pcd pcx pgm png pnm ppm ps psd pxr ras rgb rgba '
        'sgi tga tif tiff vda vst webp wmf xbm xpm'
    ).split()
)
_IMAGE_SPEC = re.compile(r'(pil|torch)?(l|rgb|rgba)?(8)?')


def field_decoder(decode: Union[str, bool, FieldDecoder, None]) -> Optional[FieldDecoder]:
    """Returns the decoder for a value of the argument ``decode``.

    Args:
        decode: ``None`` or ``False`` leaves fields as bytes. ``True`` decodes text, numbers, JSON, arrays, and gzip.
            The name of an image form also decodes images. ``pil``, ``pill``, ``pilrgb`` and ``pilrgba`` give Pillow
            images; ``pil`` is ``pilrgb``. ``l8``, ``rgb8`` and ``rgba8`` give NumPy arrays of bytes; ``l``, ``rgb``
            and ``rgba`` give floats from 0 to 1, with the shape (height, width, channels). The prefix ``torch`` gives
            tensors of the shape (channels, height, width), without channels for ``l``. A callable receives the field
            and its bytes, and returns ``None`` to leave it to the decoders of ``True``.

    Raises:
        ValueError: The image form is unknown.
    """
    if decode is None or decode is False:
        return None
    if decode is True:
        return _Decoder(None)
    if isinstance(decode, str):
        return _Decoder(_ImageForm(decode))
    if not callable(decode):
        refuse_type('decode', decode, 'a callable, the form of images, True, False or None')
    return _Decoder(decode)


class _Decoder:
    """Applies the user's decoder, then decodes by extension. It is pickled with its dataset."""

    def __init__(self, first: Optional[FieldDecoder]) -> None:
        self.first = first

    def __call__(self, field: str, data: bytes) -> Any:
        if self.first is not None:
            name, plain = _unzipped(field, data)
            value = self.first(name, plain)
            if value is not None:
                return value
        extension = field[: -len('.gz')] if field.endswith('.gz') else field
        extension = extension.rpartition('.')[2]
        if extension in _BYTES:
            return _unzipped(field, data)[1]
        kind, value = _core.decode_field(field, data)
        if kind == 'json':
            return json.loads(value)
        if kind == 'array':
            return _array(value)
        if kind == 'arrays':
            return [_array(each) for each in value]
        if kind == 'named':
            return {each[0]: _array(each) for each in value}
        if extension in ('mp', 'msg'):
            import msgpack

            return msgpack.unpackb(value)
        if extension == 'cbor':
            import cbor

            return cbor.loads(value)
        return value


def _unzipped(field: str, data: bytes) -> tuple[str, bytes]:
    """Removes gzip compression from a field; returns the name without ``.gz`` and the bytes."""
    if not field.endswith('.gz'):
        return field, data
    name = field[: -len('.gz')]
    # No decoder handles `bin`, so this only decompresses.
    return name, _core.decode_field('bin.gz', data)[1]


def _array(described: tuple[str, str, list[int], bytes]) -> Any:
    """Returns a NumPy array that owns its memory."""
    import numpy as np

    _, dtype, shape, data = described
    if dtype == 'npy':
        # A complete npy file: Fortran order, big-endian numbers, text, times or records.
        return np.load(io.BytesIO(data), allow_pickle=False)
    return np.frombuffer(bytearray(data), dtype).reshape(shape)


class _ImageForm:
    """Decodes images to one form."""

    def __init__(self, spec: str) -> None:
        wrong = ValueError(
            f'{spec!r} is not a form of images: use pil, torch, or l, rgb or rgba: alone (rgb), with 8 (rgb8), '
            f'or after pil or torch (torchrgb)'
        )
        match = _IMAGE_SPEC.fullmatch(spec + 'rgb' if spec in ('pil', 'torch') else spec)
        if match is None or not spec:
            raise wrong
        self.target, mode, self.bytes = match[1], match[2], match[3] is not None
        if mode is None or (self.bytes and self.target == 'pil'):
            raise wrong
        self.mode = mode.upper()

    def __call__(self, field: str, data: bytes) -> Any:
        if field.rpartition('.')[2].lower() not in _IMAGES:
            return None
        image = self._open(data)
        if self.target == 'pil':
            return image
        import numpy as np

        array = np.asarray(image)
        if not self.bytes:
            array = array.astype(np.float32) / 255.0
        if self.target is None:
            return array
        import torch

        return torch.tensor(array.transpose(2, 0, 1) if array.ndim == 3 else array)

    def _open(self, data: bytes) -> Image:
        from PIL import Image

        image = Image.open(io.BytesIO(data))
        image.load()
        return image.convert(self.mode)
