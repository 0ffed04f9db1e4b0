"""Encodes and decodes the values of MDS columns.

An encoding has a name, such as ``int``, ``jpeg`` or ``ndarray:float32:2,3``, and a class with
`encode` and `decode`. To add your own encoding, or to replace one, add its class to `_encodings`, in every process that
writes or reads it.

Numbers are little-endian. NumPy and Pillow are imported on first use.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import struct
import sys
from abc import ABC, abstractmethod
from decimal import Decimal
from io import BytesIO
from typing import TYPE_CHECKING, Any, ClassVar, Optional

from shardmill.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray as Array
    from PIL import Image

__all__ = [
    'get_mds_encoded_size',
    'get_mds_encodings',
    'is_mds_encoding',
    'is_mds_encoding_safe',
    'mds_decode',
    'mds_encode',
    'stored_items',
]


class Encoding(ABC):
    """The storage of one kind of values.

    Attributes:
        size: The size of each value in bytes; ``None`` if it varies.
    """

    size: Optional[int] = None

    @abstractmethod
    def encode(self, obj: Any) -> bytes:
        """Encodes a value.

        Raises:
            AttributeError: The value is of another type.
            ValueError: The value cannot be stored this way.
        """

    @abstractmethod
    def decode(self, data: bytes) -> Any:
        """Decodes a value.

        Raises:
            ValueError: The bytes are not a valid value.
        """

    @staticmethod
    def _validate(data: Any, expected_type: Any) -> None:
        if not isinstance(data, expected_type):
            raise AttributeError(f'a value of {expected_type} is needed, not one of {type(data)}')


class Bytes(Encoding):
    """Bytes, stored unchanged."""

    def encode(self, obj: bytes) -> bytes:
        self._validate(obj, bytes)
        return obj

    def decode(self, data: bytes) -> bytes:
        return data


class Str(Encoding):
    """Text as UTF-8."""

    def encode(self, obj: str) -> bytes:
        self._validate(obj, str)
        return obj.encode()

    def decode(self, data: bytes) -> str:
        return data.decode()


class Int(Encoding):
    """A 64-bit Python integer."""

    size = 8

    def encode(self, obj: int) -> bytes:
        self._validate(obj, int)
        return int(obj).to_bytes(8, 'little', signed=True)

    def decode(self, data: bytes) -> int:
        if len(data) != 8:
            raise ValueError(f'an integer has 8 bytes, not {len(data)}')
        return int.from_bytes(data, 'little', signed=True)


class NDArray(Encoding):
    """A NumPy array of numbers, with at least one dimension and one item.

    A header stores the properties that are not declared. It begins with a byte for the type and a byte for the number
    of dimensions and their width (1, 2, 4 or 8 bytes). The dimensions follow. The numbers follow in row-major order.

    Args:
        dtype: The type of all arrays, by NumPy's name; ``None`` if it varies.
        shape: The shape of all arrays; ``None`` if it varies.
    """

    _codes: ClassVar[dict[str, int]] = {
        'uint8': 8,
        'int8': 9,
        'uint16': 16,
        'int16': 17,
        'float16': 18,
        'uint32': 32,
        'int32': 33,
        'float32': 34,
        'uint64': 64,
        'int64': 65,
        'float64': 66,
    }
    _dtypes: ClassVar[dict[int, str]] = {code: dtype for dtype, code in _codes.items()}
    _max_dims = 63

    def __init__(
        self, dtype: Optional[str] = None, shape: Optional[tuple[int, ...]] = None
    ) -> None:
        assert dtype is None or dtype in self._codes, f'{dtype!r} is no type of array'
        assert shape is None or min(shape) >= 1, f'{shape} has an empty dimension'
        self.dtype = dtype
        self.shape = shape
        self.size = None
        if dtype is not None and shape is not None:
            # The code of a type is its number of bits, plus 0 to 2 for its kind.
            self.size = math.prod(shape) * (self._codes[dtype] // 8)

    @classmethod
    def from_str(cls, text: str) -> NDArray:
        """Returns the encoding with the name ``ndarray:`` followed by this text."""
        parts = text.split(':') if text else []
        assert len(parts) <= 2, f'{text!r} is more than a type and a shape'
        dtype = parts[0] if parts else None
        shape = tuple(map(int, parts[1].split(','))) if len(parts) == 2 else None
        return cls(dtype, shape)

    def encode(self, obj: Any) -> bytes:
        array = self._array(obj)
        name = array.dtype.name
        code = self._codes.get(name)
        if code is None:
            raise ValueError(f'arrays of {name} cannot be stored')
        head = b''
        if self.dtype is None:
            head = bytes([code])
        elif name != self.dtype:
            raise ValueError(
                f'the array has numbers of type {name} and shape {array.shape}, and the column '
                f'stores {self.dtype}'
            )
        if array.size == 0:
            raise ValueError('Attempting to encode a numpy array with 0 elements')
        if self.shape is None:
            head += self._encode_shape(array.shape)
        elif array.shape != self.shape:
            raise ValueError(
                f'the array has numbers of type {name} and shape {array.shape}, and the column '
                f'stores shape {self.shape}'
            )
        return head + array.astype(array.dtype.newbyteorder('<'), copy=False).tobytes()

    def _array(self, obj: Any) -> Array[Any]:
        """Converts an array, a torch tensor, or nested lists of numbers to an array."""
        import numpy as np

        if isinstance(obj, (np.ndarray, np.generic)):
            return np.asarray(obj)
        if isinstance(obj, (list, tuple)):
            return self._array_of_numbers(obj)
        if not hasattr(obj, '__array__'):
            kind = type(obj).__name__
            raise AttributeError(f'an array, a tensor or a list of numbers is needed, not {kind}')
        if hasattr(obj, 'detach'):
            try:
                return np.asarray(obj.detach().cpu().numpy())
            except (RuntimeError, TypeError) as error:
                raise ValueError(
                    f'a tensor of {obj.dtype} with shape {tuple(obj.shape)} is no NumPy array: {error}'
                ) from error
        return np.asarray(obj)

    def _array_of_numbers(self, obj: Any) -> Array[Any]:
        """Converts nested lists to the column's type, if it represents these numbers exactly."""
        import numpy as np

        try:
            array = np.array(obj)
        except (ValueError, OverflowError) as error:
            raise ValueError(f'lists of different lengths are no array: {error}') from error
        if array.dtype.kind not in 'iuf':
            raise ValueError(f'a list of {array.dtype} with shape {array.shape} cannot be stored')
        dtype = array.dtype.name if self.dtype is None else self.dtype
        with np.errstate(all='ignore'):
            stored = array.astype(dtype)
        if dtype != array.dtype.name or array.dtype.kind == 'f':
            # NumPy has converted integers in a list with floats to floats, possibly with rounding.
            given, kept = np.array(obj, dtype=object), stored.astype(object)
            if not ((given == kept) | ((given != given) & (kept != kept))).all():
                raise ValueError(
                    f'a list of {array.dtype} with shape {array.shape} has numbers that {dtype} cannot '
                    f'hold exactly; round them with `numpy.asarray(value, {dtype!r})`'
                )
        return stored

    def _encode_shape(self, shape: tuple[int, ...]) -> bytes:
        if not shape:
            raise ValueError('Attempting to encode a scalar with NDArray encoding')
        if len(shape) > self._max_dims:
            raise ValueError(f'the array has {len(shape)} dimensions, more than {self._max_dims}')
        bits = max(shape).bit_length()
        width = next(code for code in range(4) if bits <= 8 << code)
        dims = (dim.to_bytes(1 << width, 'little') for dim in shape)
        return bytes([(len(shape) << 2) | width]) + b''.join(dims)

    def decode(self, data: bytes) -> Array[Any]:
        import numpy as np

        at = 0
        dtype, shape = self.dtype, self.shape
        if dtype is None:
            try:
                dtype = self._dtypes[data[0]]
            except (IndexError, KeyError):
                raise ValueError(f'no array begins with {data[:1]!r}') from None
            at = 1
        if shape is None:
            shape, at = self._decode_shape(data, at)
        return np.frombuffer(data[at:], dtype).reshape(shape)

    @staticmethod
    def _decode_shape(data: bytes, at: int) -> tuple[tuple[int, ...], int]:
        head = data[at : at + 1]
        if not head:
            raise ValueError('the array ends before its shape')
        dims, width = head[0] >> 2, 1 << (head[0] & 3)
        at += 1
        end = at + dims * width
        if end > len(data):
            raise ValueError('the array ends within its shape')
        starts = range(at, end, width)
        return tuple(int.from_bytes(data[i : i + width], 'little') for i in starts), end


class Scalar(Encoding):
    """A NumPy number.

    Args:
        dtype: The type, such as ``numpy.uint8``.
    """

    def __init__(self, dtype: type[np.generic]) -> None:
        self.dtype = dtype
        self.size = dtype().nbytes

    def encode(self, obj: Any) -> bytes:
        # Accept anything that NumPy can convert to the type.
        make: Any = self.dtype
        number: bytes = make(obj).tobytes()
        return number

    def decode(self, data: bytes) -> Any:
        import numpy as np

        return np.frombuffer(data, self.dtype)[0]


def _scalar(name: str) -> type[Scalar]:
    """Returns the class of this name, for the NumPy type of the same name in lower case."""

    def init(self: Scalar) -> None:
        import numpy as np

        Scalar.__init__(self, getattr(np, name.lower()))

    doc = f'A NumPy number of the type `{name.lower()}`.'
    return type(name, (Scalar,), {'__init__': init, '__doc__': doc, '__module__': __name__})


UInt8, UInt16, UInt32, UInt64 = map(_scalar, ('UInt8', 'UInt16', 'UInt32', 'UInt64'))
Int8, Int16, Int32, Int64 = map(_scalar, ('Int8', 'Int16', 'Int32', 'Int64'))
Float16, Float32, Float64 = map(_scalar, ('Float16', 'Float32', 'Float64'))


class StrEncoding(Encoding):
    """A number as text, without a limit on its digits."""

    _type: ClassVar[type[Any]]

    def encode(self, obj: Any) -> bytes:
        self._validate(obj, self._type)
        return str(obj).encode()

    def decode(self, data: bytes) -> Any:
        return self._type(data.decode())


class StrInt(StrEncoding):
    """A Python integer as text."""

    _type = int


class StrFloat(StrEncoding):
    """A Python float as the shortest text that restores it exactly."""

    _type = float


class StrDecimal(StrEncoding):
    """A `decimal.Decimal` as text."""

    _type = Decimal


def _words(data: bytes, at: int, count: int) -> tuple[int, ...]:
    """Reads 32-bit numbers at an offset."""
    if len(data) - at < 4 * count:
        raise ValueError(f'{len(data)} bytes end before byte {at + 4 * count}')
    words: tuple[int, ...] = struct.unpack_from(f'<{count}I', data, at)
    return words


class PIL(Encoding):
    """The pixels of a Pillow image: width, height and length of the mode's name in 32 bits each, the name, the rows."""

    def encode(self, obj: Image.Image) -> bytes:
        from PIL import Image

        self._validate(obj, Image.Image)
        mode = obj.mode.encode()
        return struct.pack('<3I', *obj.size, len(mode)) + mode + obj.tobytes()

    def decode(self, data: bytes) -> Image.Image:
        from PIL import Image

        width, height, length = _words(data, 0, 3)
        end = 12 + length
        return Image.frombytes(data[12:end].decode(), (width, height), data[end:])


class _File(Encoding):
    """An image in a file format of Pillow."""

    format = ''

    def encode(self, obj: Image.Image) -> bytes:
        from PIL import Image

        self._validate(obj, Image.Image)
        file = BytesIO()
        obj.save(file, format=self.format)
        return file.getvalue()

    def decode(self, data: bytes) -> Image.Image:
        from PIL import Image

        return Image.open(BytesIO(data))


class JPEG(_File):
    """An image as a JPEG file. If the image was opened from a JPEG file that still exists, its bytes are stored."""

    format = 'JPEG'

    def encode(self, obj: Image.Image) -> bytes:
        from PIL.JpegImagePlugin import JpegImageFile

        path = getattr(obj, 'filename', None)
        if isinstance(obj, JpegImageFile) and path and os.path.exists(path):
            with open(path, 'rb') as file:
                return file.read()
        return super().encode(obj)


class PNG(_File):
    """An image as a PNG file."""

    format = 'PNG'


class Pickle(Encoding):
    """Any value as a pickle. Decoding runs code chosen by the author of the data."""

    def encode(self, obj: Any) -> bytes:
        return pickle.dumps(obj)

    def decode(self, data: bytes) -> Any:
        return pickle.loads(data)


class JSON(Encoding):
    """A value as JSON; a NumPy array as nested lists."""

    def encode(self, obj: Any) -> bytes:
        import numpy as np

        if isinstance(obj, np.ndarray):
            obj = obj.tolist()
        return json.dumps(obj).encode()

    def decode(self, data: bytes) -> Any:
        return json.loads(data.decode())


def _joined(items: Sequence[bytes]) -> bytes:
    """Returns the number of items, their lengths in 32 bits each, and the items."""
    return struct.pack(f'<{len(items) + 1}I', len(items), *map(len, items)) + b''.join(items)


def _items(data: bytes, at: int) -> list[bytes]:
    """Returns the items that `_joined` wrote at an offset."""
    (count,) = _words(data, at, 1)
    lengths = _words(data, at + 4, count)
    at += 4 + 4 * count
    if len(data) - at < sum(lengths):
        raise ValueError(f'a list of {count} items ends before the last of them')
    items = []
    for length in lengths:
        items.append(data[at : at + length])
        at += length
    return items


class List(Encoding):
    """A list of values of one encoding: 32 zero bits, the number of values, their lengths, the values."""

    _item: ClassVar[type[Encoding]]

    def underlying_encoder(self) -> Encoding:
        """Returns the encoding of each value."""
        return self._item()

    def encode(self, obj: list[Any]) -> bytes:
        self._validate(obj, list)
        encoder = self.underlying_encoder()
        items = [encoder.encode(item) for item in obj]
        return bytes(4) + _joined(items)

    def decode(self, data: bytes) -> list[Any]:
        encoder = self.underlying_encoder()
        return [encoder.decode(item) for item in _items(data, 4)]


class PILList(List):
    """A list of Pillow images."""

    _item = PIL


class JPEGList(List):
    """A list of images as JPEG files."""

    _item = JPEG


class PNGList(List):
    """A list of images as PNG files."""

    _item = PNG


class JPEGArray(Encoding):
    """Encodes JPEG files and decodes images: the number of files, their lengths, the files."""

    def encode(self, obj: Sequence[bytes]) -> bytes:
        return _joined(obj)

    def decode(self, data: bytes) -> list[Image.Image]:
        files = _items(data, 0)
        if not files:
            raise ValueError('a list of files is empty')
        return [JPEG().decode(file) for file in files]


def stored_items(encoding: str, data: bytes) -> list[bytes]:
    """Returns the stored items of a list of images or of a ``jpeg_array``, without decoding them.

    Raises:
        ValueError: The list ends before the last of them.
    """
    return _items(data, 0 if encoding in ('jpeg_array', 'jpegarray') else 4)


_encodings: dict[str, Any] = {
    'bytes': Bytes,
    'str': Str,
    'int': Int,
    'ndarray': NDArray,
    'uint8': UInt8,
    'uint16': UInt16,
    'uint32': UInt32,
    'uint64': UInt64,
    'int8': Int8,
    'int16': Int16,
    'int32': Int32,
    'int64': Int64,
    'float16': Float16,
    'float32': Float32,
    'float64': Float64,
    'str_int': StrInt,
    'str_float': StrFloat,
    'str_decimal': StrDecimal,
    'pil': PIL,
    'jpeg': JPEG,
    'jpeg_array': JPEGArray,
    'jpegarray': JPEGArray,
    'png': PNG,
    'list[pil]': PILList,
    'list[jpeg]': JPEGList,
    'list[png]': PNGList,
    'pkl': Pickle,
    'json': JSON,
}

#: The classes that have an implementation in Rust.
_stock = dict(_encodings)

_unsafe_encodings = {'pkl'}

#: Encoders without parameters, with their class. They have no state.
_coders: dict[str, tuple[Any, Encoding]] = {}


def _of_streaming() -> dict[str, Any]:
    """Returns the encodings of mosaicml-streaming by name, if it is imported beside this package."""
    module = sys.modules.get('streaming.base.format.mds.encodings')
    return {} if module is sys.modules[__name__] else getattr(module, '_encodings', {})


def registered(name: str) -> Any:
    """Returns the class that the program registered for an encoding, by its name without parameters.

    It may have registered it here or in mosaicml-streaming. ``None`` if it registered none.
    """
    found = _encodings.get(name)
    if found is not _stock.get(name):
        return found
    other = _of_streaming().get(name)
    is_own = other is None or getattr(other, '__module__', '').startswith('streaming.')
    return None if is_own else other


def registered_names() -> set[str]:
    """Returns the names of the encodings that the program registered, without parameters."""
    return set(filter(registered, {*_encodings, *_of_streaming()}))


def is_stock(encoding: str) -> bool:
    """Returns whether an encoding is one of the format that the program has not replaced."""
    name = encoding.partition(':')[0]
    return name in _stock and registered(name) is None


def get_mds_encodings() -> set[str]:
    """Returns the names of all encodings, without parameters."""
    return {*_encodings, *registered_names()}


def _class_of(encoding: str) -> Any:
    """Returns the class of an encoding; ``None`` if it is unknown."""
    name = encoding.partition(':')[0]
    return registered(name) or _encodings.get(name)


def _get_coder(encoding: str) -> Optional[Encoding]:
    """Returns the encoder of an encoding; ``None`` if a name without parameters is unknown."""
    name, colon, parameters = encoding.partition(':')
    made_by = _class_of(encoding)
    if colon:
        if made_by is None:
            raise KeyError(name)
        with_parameters: Encoding = made_by.from_str(parameters)
        return with_parameters
    if made_by is None:
        return None
    known = _coders.get(name)
    if known is None or known[0] is not made_by:
        known = _coders[name] = (made_by, made_by())
    return known[1]


def _require_coder(encoding: str) -> Encoding:
    coder = None if _class_of(encoding) is None else _get_coder(encoding)
    if coder is None:
        raise UnsupportedError(
            f'there is no encoding {encoding!r}',
            'encoding-unknown',
            encoding,
            f'register its class in `{__name__}._encodings`, in every process that reads it',
        )
    return coder


def is_mds_encoding(encoding: str) -> bool:
    """Returns whether the encoding exists.

    Raises:
        AttributeError, KeyError, AssertionError: The parameters after the colon are invalid.
    """
    return _get_coder(encoding) is not None


def is_mds_encoding_safe(encoding: str) -> bool:
    """Returns whether decoding never runs code from the data."""
    return encoding not in _unsafe_encodings


def mds_encode(encoding: str, obj: Any) -> bytes:
    """Encodes a value. Bytes are considered encoded already, whatever the encoding.

    Raises:
        ValueError: The encoding is unknown or cannot store the value.
        AttributeError: The value is of another type.
    """
    if isinstance(obj, bytes):
        return obj
    return _require_coder(encoding).encode(obj)


def mds_decode(encoding: str, data: bytes) -> Any:
    """Decodes a value.

    Raises:
        ValueError: The encoding is unknown, or the bytes are not a valid value.
    """
    return _require_coder(encoding).decode(data)


def get_mds_encoded_size(encoding: str) -> Optional[int]:
    """Returns the size of each value of an encoding in bytes; ``None`` if it varies.

    Raises:
        ValueError: The encoding is unknown.
    """
    return _require_coder(encoding).size
