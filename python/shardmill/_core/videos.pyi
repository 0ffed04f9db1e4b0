from typing import Optional

class VideoTables:
    """The frames of a video track, in the order in which they are decoded. Numbers are little-endian, of 64 bits."""

    codec: str
    extradata: bytes
    timescale: int
    offsets: bytes
    sizes: bytes
    decode_times: bytes
    times: bytes
    keyframes: bytes
    shown: bytes

def video_header(file: bytes) -> tuple[int, int]:
    """Returns the range of the header of a whole MP4 file, and checks that its track can be read."""

def video_tables(header: bytes, file_bytes: int) -> VideoTables:
    """Reads the first video track from a header. `file_bytes` is the length of the file."""

def stored_videos(
    path: str, column: str, settings: Optional[dict[str, str]] = None
) -> Optional[bytes]:
    """Returns the bytes of the index of videos beside the index of a dataset; ``None`` if there is none."""
