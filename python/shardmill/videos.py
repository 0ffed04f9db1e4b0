"""Videos in columns: reads the frames that are needed, without the rest of the file."""

from __future__ import annotations

import hashlib
import os
import struct
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Optional

from shardmill import _core
from shardmill.base import _arguments as check
from shardmill.base._files import whole
from shardmill.base._live import stream_at
from shardmill.errors import ConflictError, DataError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from shardmill.base._typing import Path

__all__ = ['Clip', 'VideoIndex', 'index_videos']

#: The first bytes of the file of an index, and its version.
_MAGIC = b'smvideo\r\n'
_VERSION = 1

#: Returns the bytes of ranges of a file.
Fetch = Callable[['Sequence[tuple[int, int]]'], 'list[bytes]']


class VideoTrack(NamedTuple):
    """The frames of the first video track, in the order in which they are decoded.

    Attributes:
        codec: The name of the decoder.
        extradata: The configuration of the decoder.
        timescale: Ticks per second.
        offsets: The first byte of each frame in the file.
        sizes: The bytes of each frame.
        decode_times: When each frame is decoded, in ticks.
        times: When each frame is shown, in ticks.
        keyframes: The frames that begin a group of pictures.
        shown: The frames in the order in which they are shown, without those that the edit list leaves out.
        start: The time of the first shown frame, in ticks.
    """

    codec: str
    extradata: bytes
    timescale: int
    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    decode_times: NDArray[np.int64]
    times: NDArray[np.int64]
    keyframes: NDArray[np.int64]
    shown: NDArray[np.int64]
    start: int

    def groups_of(self, frames: NDArray[np.int64]) -> list[tuple[int, int]]:
        """Returns the ranges of frames to decode for some frames: whole groups of pictures, merged where they touch."""
        import numpy as np

        ends = np.append(self.keyframes[1:], len(self.sizes))
        groups = np.searchsorted(self.keyframes, frames, 'right') - 1
        # A frame that is shown before its keyframe also needs the group before.
        leads = self.times[frames] < self.times[self.keyframes[groups]]
        wanted = {int(group) for group in groups}
        wanted.update(int(group) - 1 for group in groups[leads] if group > 0)
        ranges: list[tuple[int, int]] = []
        for group in sorted(wanted):
            first, end = int(self.keyframes[group]), int(ends[group])
            if ranges and ranges[-1][1] == first:
                ranges[-1] = ranges[-1][0], end
            else:
                ranges.append((first, end))
        return ranges

    def bytes_of(self, frames: tuple[int, int]) -> tuple[int, int]:
        """Returns the range of bytes of a range of frames."""
        own = slice(*frames)
        offsets, sizes = self.offsets[own], self.sizes[own]
        return int(offsets.min()), int((offsets + sizes).max())


def read_track(header: bytes, file_bytes: int) -> VideoTrack:
    """Reads the first video track from the content of the box `moov` of a file of so many bytes.

    Raises:
        DataError: The tables are invalid.
        UnsupportedError: There is no video, or one that cannot be read in parts.
    """
    import numpy as np

    codec, extradata, timescale, tables = _core.video_tables(header, file_bytes)
    offsets, sizes, decode_times, times, keyframes, shown = (
        np.frombuffer(each, '<i8').astype(np.int64) for each in tables
    )
    start = int(times[shown[0]])
    frames = offsets, sizes, decode_times, times, keyframes, shown
    return VideoTrack(codec, extradata, timescale, *frames, start)


class Clip:
    """A video whose frames are decoded when they are requested.

    The header is fetched first, then the groups of pictures of the requested frames: two rounds of requests.

    Attributes:
        fetched_bytes: The bytes that were read so far.
    """

    def __init__(self, fetch: Fetch, size: int, header: tuple[int, int]) -> None:
        self._fetch = fetch
        self._size = size
        self._header = header
        self._known: Optional[VideoTrack] = None
        self.fetched_bytes = 0

    def _read(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        read = self._fetch(ranges)
        self.fetched_bytes += sum(map(len, read))
        return read

    @property
    def _track(self) -> VideoTrack:
        if self._known is None:
            self._known = read_track(self._read([self._header])[0], self._size)
        return self._known

    def __len__(self) -> int:
        """Returns the number of frames."""
        return len(self._track.shown)

    @property
    def times(self) -> NDArray[np.float64]:
        """When each frame is shown, in seconds after the first one."""
        track = self._track
        times: NDArray[np.float64] = (track.times[track.shown] - track.start) / track.timescale
        return times

    def numbers_at(self, seconds: Iterable[float]) -> list[int]:
        """Returns for each time the number of the frame that is shown then. The first frame is shown at 0."""
        import numpy as np

        numbers = np.searchsorted(self.times, np.asarray(list(seconds)) + 1e-9, 'right') - 1
        return [int(number) for number in np.maximum(numbers, 0)]

    def frames(self, numbers: Iterable[int], *, format: str = 'rgb24') -> NDArray[Any]:
        """Returns frames, by their numbers in the order in which they are shown.

        Args:
            numbers: The numbers. Negative ones count from the end.
            format: A pixel format of PyAV, such as ``'rgb24'`` or ``'gray'``.

        Returns:
            The frames: ``[frames, height, width, 3]`` for ``'rgb24'``.

        Raises:
            ImportError: PyAV is not installed.
            IndexError: A frame does not exist.
            DataError: The video is damaged.
            UnsupportedError: The format or the codec is not supported.
        """
        import numpy as np

        track = self._track
        count = len(track.shown)
        wanted = []
        for number in numbers:
            place = check._index(number)
            if place is None:
                check.refuse_type('numbers', number, 'an integer')
            if not -count <= place < count:
                raise IndexError(f'there is no frame {place}: the video has {count}')
            wanted.append(int(track.shown[place]))
        if not wanted:
            raise UsageError('no frame is requested', 'config-value', 'numbers')
        groups = track.groups_of(np.array(wanted))
        ranges = [track.bytes_of(group) for group in groups]
        decoded: dict[int, Any] = {}
        for group, (start, _), stored in zip(groups, ranges, self._read(ranges)):
            decoded.update(_decoded(track, group, start, stored, set(wanted), format))
        missing = [frame for frame in wanted if frame not in decoded]
        if missing:
            raise DataError(
                f'the decoder returned no frame for {len(missing)} of {len(wanted)} requested ones',
                'video-damaged',
            )
        return np.stack([decoded[frame] for frame in wanted])


def _decoded(
    track: VideoTrack,
    group: tuple[int, int],
    start: int,
    data: bytes,
    wanted: set[int],
    format: str,
) -> dict[int, Any]:
    """Decodes groups of pictures, and returns the wanted frames by number."""
    try:
        import av
        from av.error import FFmpegError
    except ImportError as error:
        raise ImportError('decoding videos needs PyAV: pip install "shardmill[video]"') from error

    numbers = {int(track.times[number]): number for number in range(*group)}
    found: dict[int, Any] = {}

    def keep(frames: Iterable[Any]) -> None:
        for frame in frames:
            number = numbers.get(frame.pts)
            if number in wanted:
                found[number] = frame.to_ndarray(format=format)

    try:
        codec: Any = av.CodecContext.create(track.codec, 'r')
        if track.extradata:
            codec.extradata = track.extradata
        for number in range(*group):
            at = int(track.offsets[number]) - start
            size = int(track.sizes[number])
            # Decoders read a little beyond the end: only memory of PyAV has the padding for it.
            packet = av.Packet(size)
            packet.update(data[at : at + size])
            packet.pts, packet.dts = int(track.times[number]), int(track.decode_times[number])
            keep(codec.decode(packet))
        keep(codec.decode(None))
    except FFmpegError as error:
        raise DataError(f'the video cannot be decoded: {error}', 'video-damaged') from error
    return found


class VideoIndex:
    """Where the videos of a column and their headers are stored, so that parts of them can be read.

    Like a view, an index names its dataset by the hash of `index.json`.

    Args:
        file: A local file.

    Raises:
        DataError: The file is damaged, or is none.
    """

    def __init__(self, file: Path) -> None:
        with open(check.path('file', file), 'rb') as opened:
            self._set(*_parsed(opened.read()))

    def _set(self, index: str, column: str, places: Any) -> None:
        self.index = index
        self.column = column
        #: For each stored sample: the offset of the video in the shard, its length, and the range of its header.
        self._places = places

    @classmethod
    def _of(cls, index: str, column: str, places: Any) -> VideoIndex:
        made = cls.__new__(cls)
        made._set(index, column, places)
        return made

    def __len__(self) -> int:
        """Returns the number of stored samples."""
        return len(self._places)

    def to_bytes(self) -> bytes:
        """Returns the bytes of the file."""
        name = self.column.encode()
        digest = bytes.fromhex(self.index.partition(':')[2])
        content = _MAGIC + struct.pack('<I32sQI', _VERSION, digest, len(self), len(name)) + name
        places: bytes = self._places.astype('<u8').tobytes()
        content += places
        return content + hashlib.sha256(content).digest()

    def save(self, file: Path, *, overwrite: bool = False) -> None:
        """Writes the index to a local file.

        Raises:
            ConflictError: The file exists.
        """
        path = check.path('file', file)
        if not check.flag('overwrite', overwrite) and os.path.exists(path):
            raise ConflictError('the file exists', 'dest-exists', path)
        with whole(path) as part, open(part, 'wb') as opened:
            opened.write(self.to_bytes())

    def __reduce__(self) -> tuple[Any, ...]:
        return VideoIndex._of, (self.index, self.column, self._places)

    def clip_of(self, reader: _core.Reader, sample: int) -> Clip:
        """Returns the video of a sample of the dataset of a reader.

        Raises:
            ConflictError: The index is of another dataset.
        """
        _, stored, index = reader.stored_place(sample)
        if index != self.index or stored >= len(self):
            raise ConflictError(
                f'the index of videos is of the dataset whose index is {self.index}, and the index of this one is '
                f'{index}',
                'video-index',
                hint='make it again, from this dataset',
            )
        offset, size, start, end = (int(place) for place in self._places[stored])

        def fetch(ranges: Sequence[tuple[int, int]]) -> list[bytes]:
            return reader.read_ranges(sample, [(offset + a, offset + b) for a, b in ranges])

        return Clip(fetch, size, (start, end))


def _parsed(data: bytes) -> tuple[str, str, Any]:
    """Returns the index of the dataset, the column and the places in the bytes of a file."""
    import numpy as np

    content, digest = data[:-32], data[-32:]
    head = struct.Struct('<I32sQI')
    if not data.startswith(_MAGIC) or hashlib.sha256(content).digest() != digest:
        raise DataError('the file is no index of videos, or is damaged', 'video-index')
    rest = content[len(_MAGIC) :]
    version, index, count, name_bytes = (
        head.unpack_from(rest) if len(rest) >= head.size else (0, b'', 0, 0)
    )
    name = rest[head.size : head.size + name_bytes]
    places = rest[head.size + name_bytes :]
    if version != _VERSION or len(places) != 32 * count:
        raise DataError(
            f'the index of videos has version {version} and {len(places)} bytes for {count} '
            f'samples; this program reads version {_VERSION}',
            'video-index',
        )
    column = name.decode(errors='replace')
    return f'sha256:{index.hex()}', column, np.frombuffer(places, '<u8').reshape(count, 4)


def whole_clip(data: bytes) -> Clip:
    """Returns the video in the bytes of a whole file."""

    def fetch(ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return [data[start:end] for start, end in ranges]

    return Clip(fetch, len(data), _core.video_header(data))


def clip_of(
    dataset: Any, sample_id: int, column: Optional[str], videos: Optional[VideoIndex]
) -> Clip:
    """Returns the video of a sample, as `StreamingDataset.video` describes."""
    number = check.sample_number(sample_id, dataset.num_samples)
    if videos is not None:
        if column not in (None, videos.column):
            raise UsageError(
                f'the index is of column `{videos.column}`, not of `{column}`', 'video-column'
            )
        return videos.clip_of(dataset._here(), number)
    if column is None:
        raise UsageError('give `column` or `videos`', 'config-value', 'column')
    dataset._make_local(number, number + 1)
    found = dataset._here().value_at(number, check.text('column', column))
    if found is None:
        raise UsageError(f'sample {number} has no column `{column}`', 'video-column', column)
    return whole_clip(found[1])


def index_videos(
    location: Path,
    column: str,
    *,
    local: Optional[Path] = None,
    storage_options: Optional[Mapping[str, str]] = None,
) -> VideoIndex:
    """Finds the videos of a column and their headers.

    If the dataset has an index of videos that `convert --video` wrote, this reads only that. Otherwise it reads every
    sample once.

    Args:
        location: The dataset, in a directory or in a store.
        column: The column, whose values are MP4 files.
        local: The folder that shards are fetched to. Defaults to a temporary folder for a store.
        storage_options: Store settings that are not in the environment.

    Raises:
        DataError: A video is damaged.
        UnsupportedError: A video is no MP4 file, is fragmented, or has an unknown codec.
        UsageError: A sample does not have the column.
    """
    import numpy as np

    name = check.text('column', column)
    settings = check.storage_options(storage_options)
    stored = _core.stored_videos(check.path('location', location), name, settings)
    if stored is not None:
        return VideoIndex._of(*_parsed(stored))
    with stream_at(location, local, storage_options, with_deleted=True) as stream:
        reader = _core.Reader([stream], _core.ReaderOptions())
        places = np.zeros((reader.samples, 4), np.uint64)
        for sample in range(reader.samples):
            found = reader.value_at(sample, name)
            if found is None:
                raise UsageError(f'sample {sample} has no column `{name}`', 'video-column', name)
            try:
                start, end = _core.video_header(found[1])
            except DataError as error:
                raise type(error)(f'sample {sample}: {error.message}', error.id, name) from error
            places[sample] = found[0], len(found[1]), start, end
        index = reader.stored_place(0)[2] if reader.samples else 'sha256:' + '0' * 64
        return VideoIndex._of(index, name, places)
