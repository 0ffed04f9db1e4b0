"""The frames of a video in an MP4 file: where they are stored, and when they are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from shardmill import _core

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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
