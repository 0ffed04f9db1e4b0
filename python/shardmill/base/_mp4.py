"""Reads the tables of an MP4 file: where its frames are stored, and when they are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, NoReturn, Optional

from shardmill.errors import DataError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

#: The decoders of sample entries, by their four-character code, and the box with the decoder's configuration.
_CODECS = {
    b'avc1': ('h264', b'avcC'),
    b'avc3': ('h264', b'avcC'),
    b'hev1': ('hevc', b'hvcC'),
    b'hvc1': ('hevc', b'hvcC'),
    b'av01': ('libdav1d', b'av1C'),
    b'vp09': ('vp9', None),
    b'mp4v': ('mpeg4', b'esds'),
}
#: Bytes of a video sample entry before its boxes.
_ENTRY_BYTES = 78
#: The largest header that is read. Its tables take about 16 bytes for each frame.
MOST_HEADER_BYTES = 256 << 20


def damaged(reason: str) -> NoReturn:
    """Raises the error for a file whose tables are invalid."""
    raise DataError(f'the MP4 file is damaged: {reason}', 'video-damaged')


def refuse(reason: str) -> NoReturn:
    """Raises the error for a file in another format."""
    raise UnsupportedError(
        f'the video cannot be read in parts: {reason}', 'video-format', hint='decode it as a whole'
    )


def _boxes(data: bytes, start: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Yields the type of each box, and the range of its content."""
    at = start
    while at < end:
        if at + 8 > end:
            damaged(f'a box at byte {at} is incomplete')
        size, kind, head = int.from_bytes(data[at : at + 4], 'big'), data[at + 4 : at + 8], 8
        if size == 1:
            size, head = int.from_bytes(data[at + 8 : at + 16], 'big'), 16
        elif size == 0:
            size = end - at
        if size < head or at + size > end:
            damaged(f'a box at byte {at} has {size} bytes, and {end - at} are left')
        yield kind, at + head, at + size
        at += size


def find_header(data: bytes) -> tuple[int, int]:
    """Returns the range of the content of the box `moov` of a whole file."""
    if data[4:8] not in (b'ftyp', b'moov', b'mdat', b'free', b'skip', b'wide'):
        refuse('it is not an MP4 file')
    found: Optional[tuple[int, int]] = None
    for kind, start, end in _boxes(data, 0, len(data)):
        if kind == b'moof':
            refuse('the MP4 file is fragmented')
        if kind == b'moov':
            found = start, end
    if found is None:
        damaged('it has no header (`moov`)')
    return found


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
    """Reads the first video track from the content of the box `moov`.

    Args:
        header: The content.
        file_bytes: The length of the file.

    Raises:
        DataError: The tables are invalid.
        UnsupportedError: There is no video, or one that cannot be read in parts.
    """
    movie_scale = 0
    for kind, start, end in _boxes(header, 0, len(header)):
        if kind == b'mvhd':
            movie_scale = _timescale(header, start)
        elif kind == b'mvex':
            refuse('the MP4 file is fragmented')
        elif kind == b'trak':
            track = {kind: (start, end) for kind, start, end in _boxes(header, start, end)}
            media = _inner(header, track, b'mdia')
            handler = _content(header, media, b'hdlr')
            if handler[8:12] == b'vide':
                return _track(header, track, media, movie_scale, file_bytes)
    refuse('it has no video')


_Boxes = dict[bytes, tuple[int, int]]


def _inner(header: bytes, boxes: _Boxes, kind: bytes) -> _Boxes:
    """Returns the boxes in the box of a type."""
    if kind not in boxes:
        damaged(f'it has no box `{kind.decode()}`')
    return {kind: (start, end) for kind, start, end in _boxes(header, *boxes[kind])}


def _content(header: bytes, boxes: _Boxes, kind: bytes) -> bytes:
    if kind not in boxes:
        damaged(f'it has no box `{kind.decode()}`')
    return header[slice(*boxes[kind])]


def _timescale(header: bytes, start: int) -> int:
    """Returns the ticks per second of a box `mvhd` or `mdhd`."""
    at = start + (20 if header[start] == 1 else 12)
    return int.from_bytes(header[at : at + 4], 'big')


def _table(data: bytes, columns: int, dtype: str = '>u4', skip: int = 4) -> NDArray[np.int64]:
    """Returns the rows of a table after its version, flags and number of rows."""
    import numpy as np

    rows = int.from_bytes(data[skip : skip + 4], 'big')
    width = columns * np.dtype(dtype).itemsize
    body = data[skip + 4 : skip + 4 + rows * width]
    if len(body) != rows * width:
        damaged(f'a table of {rows} rows is incomplete')
    return np.frombuffer(body, dtype).reshape(rows, columns).astype(np.int64)


def _track(
    header: bytes, track: _Boxes, media: _Boxes, movie_scale: int, file_bytes: int
) -> VideoTrack:
    import numpy as np

    timescale = _timescale(header, media.get(b'mdhd', (0, 0))[0])
    tables = _inner(header, _inner(header, media, b'minf'), b'stbl')
    codec, extradata = _codec(_content(header, tables, b'stsd'))
    sizes = _sizes(_content(header, tables, b'stsz'), file_bytes)
    count = len(sizes)
    if not count or not timescale:
        damaged('it has no frames, or no unit of time')
    durations = _expanded(_table(_content(header, tables, b'stts'), 2), count)
    decode_times = np.cumsum(durations) - durations
    times = decode_times
    if b'ctts' in tables:
        data = _content(header, tables, b'ctts')
        rows = _table(data, 2)
        if data[:1] == b'\1':
            rows[:, 1] = rows[:, 1].astype(np.int32)
        times = decode_times + _expanded(rows, count)
    keyframes = np.arange(count)
    if b'stss' in tables:
        keyframes = _table(_content(header, tables, b'stss'), 1)[:, 0] - 1
        if not len(keyframes) or keyframes[0] != 0 or (np.diff(keyframes) < 1).any():
            damaged('its keyframes are out of order')
        if keyframes[-1] >= count:
            damaged('it has a keyframe beyond its last frame')
    offsets = _offsets(header, tables, sizes)
    if offsets.min() < 0 or (offsets + sizes).max() > file_bytes:
        damaged('it has frames beyond its end')
    start, end = _edits(header, track, movie_scale, timescale)
    shown = np.argsort(times, kind='stable')
    shown = shown[times[shown] >= start]
    if end is not None:
        shown = shown[times[shown] < end]
    if len(np.unique(times)) != count:
        damaged('two frames are shown at the same time')
    if not len(shown):
        damaged('its edit list leaves out all frames')
    return VideoTrack(
        codec,
        extradata,
        timescale,
        offsets,
        sizes,
        decode_times,
        times,
        keyframes,
        shown,
        int(times[shown[0]]),
    )


def _codec(entries: bytes) -> tuple[str, bytes]:
    """Returns the decoder of a video and its configuration."""
    boxes = list(_boxes(entries, 8, len(entries)))
    if len(boxes) != 1:
        refuse(f'it has {len(boxes)} descriptions of its frames')
    kind, start, end = boxes[0]
    if kind not in _CODECS:
        refuse(f'its codec is {kind.decode("latin-1")!r}')
    codec, wanted = _CODECS[kind]
    if wanted is None:
        return codec, b''
    for own, begin, stop in _boxes(entries, start + _ENTRY_BYTES, end):
        if own == wanted:
            data = entries[begin:stop]
            return codec, _decoder_info(data[4:]) if wanted == b'esds' else data
    damaged(f'it has no box `{wanted.decode()}`')


def _decoder_info(data: bytes) -> bytes:
    """Returns the configuration of the decoder from the descriptors of the box `esds`."""
    at = 0
    while at + 2 <= len(data):
        tag, size, at = data[at], 0, at + 1
        while at < len(data):
            byte, at = data[at], at + 1
            size = size << 7 | byte & 0x7F
            if not byte & 0x80:
                break
        if tag == 3:
            flags = data[at + 2] if at + 2 < len(data) else 0
            at += 3 + (2 if flags & 0x80 else 0) + (2 if flags & 0x20 else 0)
        elif tag == 4:
            at += 13
        elif tag == 5:
            return data[at : at + size]
        else:
            at += size
    damaged('its decoder has no configuration')


def _sizes(data: bytes, file_bytes: int) -> NDArray[np.int64]:
    import numpy as np

    size, count = int.from_bytes(data[4:8], 'big'), int.from_bytes(data[8:12], 'big')
    if not size:
        return _table(data, 1, skip=8)[:, 0]
    if size * count > file_bytes:
        damaged('it has frames beyond its end')
    return np.full(count, size, np.int64)


def _expanded(rows: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Returns a value for each frame from rows of counts and values."""
    import numpy as np

    if int(rows[:, 0].sum()) != count:
        damaged(f'a table is of {int(rows[:, 0].sum())} frames, and there are {count}')
    return np.repeat(rows[:, 1], rows[:, 0])


def _offsets(header: bytes, tables: _Boxes, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the first byte of each frame."""
    import numpy as np

    if b'co64' in tables:
        chunks = _table(_content(header, tables, b'co64'), 1, '>u8')[:, 0]
    else:
        chunks = _table(_content(header, tables, b'stco'), 1)[:, 0]
    runs = _table(_content(header, tables, b'stsc'), 3)
    firsts = runs[:, 0] - 1
    if not len(runs) or firsts[0] != 0 or (np.diff(firsts) < 1).any() or firsts[-1] >= len(chunks):
        damaged('its chunks are out of order')
    lengths = np.diff(np.append(firsts, len(chunks)))
    if int((runs[:, 1] * lengths).sum()) != len(sizes):
        damaged('its chunks do not have the number of its frames')
    counts = np.repeat(runs[:, 1], lengths)
    chunk_of = np.repeat(np.arange(len(chunks)), counts)
    before = np.cumsum(sizes) - sizes
    first_of = np.cumsum(counts) - counts
    in_chunk = before - before[np.minimum(first_of, len(sizes) - 1)][chunk_of]
    offsets: NDArray[np.int64] = chunks[chunk_of] + in_chunk
    return offsets


def _edits(
    header: bytes, track: _Boxes, movie_scale: int, timescale: int
) -> tuple[int, Optional[int]]:
    """Returns the first tick that is shown, and the one after the last."""
    if b'edts' not in track:
        return -(1 << 62), None
    data = _content(header, _inner(header, track, b'edts'), b'elst')
    if data[:1] == b'\1':
        edits = _table(data + bytes(4), 5)
        rows = [
            ((int(row[0]) << 32) + int(row[1]), (int(row[2]) << 32) + int(row[3])) for row in edits
        ]
        rows = [(length, -1 if start >= 1 << 63 else start) for length, start in rows]
    else:
        edits = _table(data, 3)
        rows = [(int(row[0]), -1 if row[1] >= 1 << 31 else int(row[1])) for row in edits]
    rows = [row for row in rows if row[1] >= 0]
    if len(rows) > 1:
        refuse('its edit list has several parts')
    if not rows:
        return -(1 << 62), None
    length, start = rows[0]
    if not length or not movie_scale:
        return start, None
    return start, start + (length * timescale + movie_scale // 2) // movie_scale
