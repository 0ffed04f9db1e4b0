"""Describes the shards listed in an index, and reads single samples from them.

Datasets read through Rust. These classes list the files of a shard and its sizes on disk,
and read single samples for programs that inspect a shard.
"""

from __future__ import annotations

import os
import struct
from abc import ABC, abstractmethod
from bisect import bisect_right
from dataclasses import dataclass
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any, ClassVar, Optional

from shardmill.base._arguments import bytes_to_int
from shardmill.base.array import Array

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from typing_extensions import Self

__all__ = ['FileInfo', 'JointReader', 'Reader', 'SplitReader', 'leave_out']


@dataclass
class FileInfo:
    """A file of a shard.

    Attributes:
        basename: Its name, relative to the index.
        bytes: Its size in bytes.
        hashes: Its hashes as hexadecimal digits, by hash name.
    """

    basename: str
    bytes: int
    hashes: dict[str, str]


class Reader(Array, ABC):
    """A shard, as a sequence of its samples.

    The constructor takes the fields of an index entry: those that the class and its bases annotate, after `dirname` and
    `split` in the order of their names.

    Args:
        dirname: The folder of the dataset.
        split: The subfolder that holds the index; ``None`` or ``''`` for none.

    Attributes:
        compression: The compression of the stored files; ``None`` for none.
        hashes: The names of the hashes of each file.
        samples: The number of samples, without those that are left out.
        size_limit: The maximum size in bytes that its writer used.
        file_pairs: The raw and the compressed file of each pair; the latter is ``None`` without compression.
    """

    format: ClassVar[str] = ''

    compression: Optional[str]
    hashes: list[str]
    samples: int
    size_limit: Optional[int]

    #: The files of a shard, as the part of their names after ``raw_`` and ``zip_``.
    _FILES: ClassVar[tuple[str, ...]] = ()
    _arguments: ClassVar[Signature]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if '__init__' in vars(cls):
            return
        # A field with a value in a class is the same for all its shards.
        annotated = (vars(each).get('__annotations__', {}) for each in cls.__mro__)
        fields = {name for names in annotated for name in names if not hasattr(cls, name)}
        names = ('dirname', 'split', *sorted(fields - {'_arguments'}))
        cls._arguments = Signature(
            [Parameter(each, Parameter.POSITIONAL_OR_KEYWORD) for each in names]
        )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        fields = self._arguments.bind(*args, **kwargs).arguments
        limit = fields['size_limit']
        limit = bytes_to_int(limit) if isinstance(limit, str) else limit
        if limit is not None and limit < 0:
            raise ValueError(f'a size limit is not negative: {limit}')
        self.dirname: str = fields['dirname']
        self.split: str = fields['split'] or ''
        vars(self).update({**fields, 'split': self.split, 'size_limit': limit})
        self._gaps: tuple[list[int], list[int]] = [], []
        self.file_pairs: list[tuple[FileInfo, Optional[FileInfo]]] = [
            (fields[f'raw_{part}'], fields[f'zip_{part}']) for part in self._FILES
        ]

    @classmethod
    def from_json(cls, dirname: str, split: Optional[str], obj: dict[str, Any]) -> Self:
        """Creates the shard that an index entry describes.

        Raises:
            ValueError: The entry has another version or format.
            TypeError: A field is missing, or the entry has an unknown field.
        """
        fields = dict(obj)
        version, format_ = fields.pop('version'), fields.pop('format')
        if version != 2:
            raise ValueError(f'shards of version {version} are not supported, only of 2')
        if format_ != cls.format:
            raise ValueError(f'a shard of {cls.format} is needed, not of {format_}')
        for name in ('raw_data', 'raw_meta', 'zip_data', 'zip_meta'):
            if fields.get(name):
                fields[name] = FileInfo(**fields[name])
        return cls(dirname, split, **fields)

    def validate(self, allow_unsafe_types: bool) -> None:
        """Checks that samples may be decoded.

        Raises:
            ValueError: Decoding would run code from the data, which `allow_unsafe_types` does not allow.
        """

    @property
    def size(self) -> int:
        """The number of samples."""
        return self.samples

    def __len__(self) -> int:
        return self.samples

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for idx in range(self.samples):
            yield self.get_item(idx)

    def leave_out(self, deleted: Sequence[tuple[int, int]]) -> None:
        """Leaves out samples. The others are renumbered from 0.

        Args:
            deleted: Ranges of sample numbers to leave out, as start and exclusive end; sorted.
        """
        starts, shifts = self._gaps
        for start, end in deleted:
            before = shifts[-1] if shifts else 0
            starts.append(start - before)
            shifts.append(before + end - start)
            self.samples -= end - start

    def _stored_number(self, idx: int) -> int:
        """Converts a sample number to the number under which the sample is stored."""
        starts, shifts = self._gaps
        gap = bisect_right(starts, idx)
        return idx + shifts[gap - 1] if gap else idx

    def _path(self, info: FileInfo) -> str:
        return os.path.join(self.dirname, self.split, info.basename)

    def _remove(self, infos: Iterable[Optional[FileInfo]], listing: Container[str]) -> int:
        removed = 0
        for info in infos:
            if info is None or self._path(info) not in listing:
                continue
            try:
                os.remove(self._path(info))
            except FileNotFoundError:
                continue
            removed += info.bytes
        return removed

    def evict(self) -> int:
        """Removes the files of the shard. Returns how many bytes they had."""
        infos = [info for pair in self.file_pairs for info in pair if info]
        return self._remove(infos, {self._path(info) for info in infos})

    def set_up_local(self, listing: set[str], safe_keep_zip: bool) -> int:
        """Removes incomplete and unnecessary local files.

        Args:
            listing: The paths of all files in the folder.
            safe_keep_zip: Whether compressed files are kept after decompression.

        Returns:
            The size of the remaining files in bytes; 0 if the shard is not local.
        """
        raws = [raw for raw, _ in self.file_pairs]
        zips = [zipped for _, zipped in self.file_pairs]
        has_raw = all(self._path(raw) in listing for raw in raws)
        has_zip = all(zipped is not None and self._path(zipped) in listing for zipped in zips)
        if safe_keep_zip and self.compression and not has_zip:
            # With `safe_keep_zip`, raw files without their compressed ones are incomplete.
            has_raw = False
        if not safe_keep_zip and has_raw:
            has_zip = False
        if not has_raw:
            self._remove(raws, listing)
        if not has_zip:
            self._remove(zips, listing)
        raw_bytes = self.get_raw_size() if has_raw else 0
        zip_bytes = (self.get_zip_size() or 0) if has_zip else 0
        return raw_bytes + zip_bytes

    def get_raw_size(self) -> int:
        """Returns the size of the raw files in bytes."""
        return sum(raw.bytes for raw, _ in self.file_pairs)

    def get_zip_size(self) -> Optional[int]:
        """Returns the size of the compressed files in bytes; ``None`` without compression."""
        total = 0
        for _, zipped in self.file_pairs:
            if zipped is None:
                return None
            total += zipped.bytes
        return total

    def get_max_size(self) -> int:
        """Returns the size in bytes during decompression: raw and compressed files together."""
        return self.get_raw_size() + (self.get_zip_size() or 0)

    def get_persistent_size(self, keep_zip: bool) -> int:
        """Returns the size in bytes after decompression.

        Args:
            keep_zip: Whether compressed files are kept.
        """
        return self.get_max_size() if keep_zip else self.get_raw_size()

    @abstractmethod
    def decode_sample(self, data: bytes) -> dict[str, Any]:
        """Decodes a sample."""

    @abstractmethod
    def get_sample_data(self, idx: int) -> bytes:
        """Returns the bytes of a sample.

        Raises:
            FileNotFoundError: A raw file is missing.
            IndexError: The sample does not exist.
        """

    def get_item(self, idx: int) -> dict[str, Any]:
        """Returns a decoded sample."""
        return self.decode_sample(self.get_sample_data(idx))

    def _read_sample(self, idx: int, data: FileInfo, offsets: FileInfo) -> bytes:
        """Reads a sample from a file, using the offset table in the same or another file."""
        if not 0 <= idx < self.samples:
            raise IndexError(f'sample {idx} of {self.samples} in {data.basename}')
        idx = self._stored_number(idx)
        with open(self._path(offsets), 'rb', 0) as file:
            pair = os.pread(file.fileno(), 8, 4 * (1 + idx))
        if len(pair) < 8:
            raise IndexError(f'{offsets.basename} ends before the offsets of sample {idx}')
        begin, end = struct.unpack('<2I', pair)
        with open(self._path(data), 'rb', 0) as file:
            sample = os.pread(file.fileno(), end - begin, begin) if begin < end else b''
        if len(sample) < end - begin or end < begin:
            raise IndexError(f'{data.basename} ends before the end of sample {idx}')
        return sample


class JointReader(Reader):
    """A shard with samples and offset table in one file.

    Attributes:
        raw_data: The raw file.
        zip_data: The compressed file; ``None`` without compression.
    """

    _FILES = ('data',)
    raw_data: FileInfo
    zip_data: Optional[FileInfo]

    def get_sample_data(self, idx: int) -> bytes:
        return self._read_sample(idx, self.raw_data, self.raw_data)


class SplitReader(Reader):
    """A shard with samples in one file and the offset table in another.

    Attributes:
        raw_data: The raw file of samples.
        raw_meta: The raw file of the offset table.
        zip_data: The compressed file of samples; ``None`` without compression.
        zip_meta: The compressed file of the offset table; ``None`` without compression.
    """

    _FILES = ('meta', 'data')
    raw_data: FileInfo
    raw_meta: FileInfo
    zip_data: Optional[FileInfo]
    zip_meta: Optional[FileInfo]

    def get_sample_data(self, idx: int) -> bytes:
        return self._read_sample(idx, self.raw_data, self.raw_meta)


def leave_out(shards: Iterable[Reader], deleted: Sequence[tuple[int, int]]) -> None:
    """Leaves samples out of the shards of a dataset.

    Args:
        shards: All shards of the dataset, in order.
        deleted: Ranges of sample numbers to leave out, as start and exclusive end; sorted.
    """
    if not deleted:
        return
    first = at = 0
    for shard in shards:
        end = first + shard.samples
        own = []
        while at < len(deleted) and deleted[at][0] < end:
            start, stop = deleted[at]
            own.append((max(start, first) - first, min(stop, end) - first))
            if stop > end:
                # The range continues in the next shard.
                break
            at += 1
        shard.leave_out(own)
        first = end
