"""The types of values that are stored as text, in JSON, XSV, CSV and TSV shards."""

from __future__ import annotations

from typing import Any, Callable, ClassVar


class Encoding:
    """A type of values that are stored as text."""

    _type: ClassVar[type]

    @classmethod
    def is_encoded(cls, obj: Any) -> bool:
        """Returns ``True`` for a value of the type.

        Raises:
            AttributeError: The value is of another type.
        """
        return cls._validate(obj, cls._type)

    @classmethod
    def encode(cls, obj: Any) -> str:
        """Encodes a value as text.

        Raises:
            AttributeError: The value is of another type.
        """
        cls._validate(obj, cls._type)
        return obj if cls._type is str else str(obj)

    @classmethod
    def decode(cls, obj: str) -> Any:
        """Decodes a value from text.

        Raises:
            ValueError: The text is not a valid value.
        """
        return cls._type(obj)

    @staticmethod
    def _validate(data: Any, expected_type: Any) -> bool:
        if not isinstance(data, expected_type):
            raise AttributeError(f'a value of {expected_type} is needed, not one of {type(data)}')
        return True


class Str(Encoding):
    """Text, stored unchanged in lines of separated values."""

    _type = str


class Int(Encoding):
    """An integer in decimal digits; booleans are accepted."""

    _type = int


class Float(Encoding):
    """A float as the shortest text that restores it exactly."""

    _type = float


#: The encodings by name, which have an implementation in Rust.
stock: dict[str, type[Encoding]] = {'str': Str, 'int': Int, 'float': Float}


class Coder:
    """Encodes one value of a column, by a function of the encoding and the value."""

    def __init__(self, encode: Callable[[str, Any], bytes], encoding: str) -> None:
        self._encode = encode
        self.encoding = encoding

    def encode(self, obj: Any) -> bytes:
        return self._encode(self.encoding, obj)


def registered_in(encodings: dict[str, type[Encoding]], name: str) -> Any:
    """Returns the class that the program registered for an encoding; ``None`` if it registered none."""
    found = encodings.get(name)
    return None if found is stock.get(name) else found
