"""Videos in columns, read in parts."""

from __future__ import annotations

import io
import pickle
import random
import tarfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import shardmill
from shardmill import (
    LocalDataset,
    MDSWriter,
    StreamingDataset,
    VideoIndex,
    Window,
    index_videos,
    select,
)
from shardmill._core import video_header as header_of
from shardmill.errors import ConflictError, DataError, UnsupportedError, UsageError
from shardmill.videos import read_track, whole_clip

if TYPE_CHECKING:
    from pathlib import Path

    from support.store import Store

av: Any = pytest.importorskip('av')

#: Encoder, frames of a group of pictures, B-frames, and where the header is.
KINDS = [
    ('libx264', 12, 0, ''),
    ('libx264', 12, 3, 'faststart'),
    ('libx264', 250, 2, ''),
    ('libx264', 1, 0, 'faststart'),
    ('mpeg4', 10, 0, ''),
    ('mpeg4', 10, 2, 'faststart'),
]
FRAMES = 60


def encode(
    folder: Path,
    codec: str,
    group: int,
    b_frames: int,
    flags: str,
    size: tuple[int, int] = (96, 64),
) -> bytes:
    """Encodes frames of moving noise."""
    path = folder / 'encoded.mp4'
    width, height = size
    noise = np.random.default_rng(group).integers(0, 255, (height, width, 3), np.uint8)
    with av.open(str(path), 'w', options={'movflags': flags} if flags else {}) as out:
        stream = out.add_stream(codec, rate=30)
        stream.width, stream.height, stream.pix_fmt = width, height, 'yuv420p'
        stream.codec_context.gop_size = group
        stream.codec_context.max_b_frames = b_frames
        for number in range(FRAMES):
            image = np.roll(noise, 3 * number, axis=1)
            image[:16, :16] = 4 * number
            frame = av.VideoFrame.from_ndarray(image, format='rgb24')
            frame.pts = number
            out.mux(stream.encode(frame))
        out.mux(stream.encode())
    return path.read_bytes()


def decode(folder: Path, data: bytes) -> list[Any]:
    """Decodes all frames of a file."""
    path = folder / 'decoded.mp4'
    path.write_bytes(data)
    with av.open(str(path)) as opened:
        return [frame.to_ndarray(format='rgb24') for frame in opened.decode(video=0)]


@pytest.fixture(scope='module')
def videos(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    folder = tmp_path_factory.mktemp('videos')
    return [encode(folder, *kind) for kind in KINDS]


def write(folder: Path, videos: list[bytes], **options: Any) -> Path:
    columns = {'n': 'int', 'clip': 'bytes', 'name': 'str'}
    with MDSWriter(out=str(folder), columns=columns, size_limit=300_000, **options) as out:
        for number, video in enumerate(videos):
            out.write({'n': number, 'clip': video, 'name': f'video {number}'})
    return folder


@pytest.mark.parametrize('kind', range(len(KINDS)))
def test_decoded_frames_equal_full_decode(tmp_path: Path, videos: list[bytes], kind: int) -> None:
    wanted = decode(tmp_path, videos[kind])
    clip = whole_clip(videos[kind])
    assert len(clip) == len(wanted) == FRAMES
    assert np.array_equal(clip.frames(range(FRAMES)), np.stack(wanted))
    assert np.allclose(clip.times, np.arange(FRAMES) / 30)
    assert clip.numbers_at([0, 0.999, 1, 1.01, 9]) == [0, 29, 30, 30, FRAMES - 1]
    draw = random.Random(kind)
    for _ in range(20):
        numbers = [draw.randrange(-FRAMES, FRAMES) for _ in range(draw.randint(1, 4))]
        assert np.array_equal(clip.frames(numbers), np.stack([wanted[each] for each in numbers]))
    assert clip.frames([5], format='gray').shape == (1, *wanted[0].shape[:2])


def test_local_dataset_reads_video_frames(tmp_path: Path, videos: list[bytes]) -> None:
    folder = write(tmp_path / 'shards', videos)
    index = index_videos(folder, 'clip')
    index.save(tmp_path / 'clip.videos')
    with pytest.raises(ConflictError):
        index.save(tmp_path / 'clip.videos')
    saved = VideoIndex(tmp_path / 'clip.videos')
    assert (saved.to_bytes(), len(saved), saved.column) == (index.to_bytes(), len(videos), 'clip')
    dataset: LocalDataset[Any] = LocalDataset(folder)
    for number, video in enumerate(videos):
        wanted = decode(tmp_path, video)
        for clip in (
            dataset.video(number, 'clip'),
            dataset.video(number, videos=saved),
            dataset.video(number, videos=pickle.loads(pickle.dumps(index))),
        ):
            assert np.array_equal(
                clip.frames([7, 3, 50]), np.stack([wanted[n] for n in (7, 3, 50)])
            )
    # A view numbers other samples.
    chosen: LocalDataset[Any] = LocalDataset(folder, view=select(folder, samples=[2, 4]))
    assert np.array_equal(
        chosen.video(1, videos=saved).frames([9]), dataset.video(4, 'clip').frames([9])
    )


def test_conversion_writes_equal_video_index(
    tmp_path: Path, videos: list[bytes], served: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    source = write(tmp_path / 'source', videos)
    wanted = index_videos(source, 'clip').to_bytes()
    options: dict[str, Any] = {'size_limit': 300_000, 'video': ['clip']}
    for compression in ('none', 'zstd'):
        out = served / f'converted-{compression}'
        shardmill.convert(source, out, compression=compression, **options)
        side = out / 'index.videos.clip'
        written = side.read_bytes()
        # The index found by reading every sample.
        side.rename(tmp_path / 'moved')
        found = index_videos(out, 'clip')
        assert found.to_bytes() == written and len(found) == len(videos)
        (tmp_path / 'moved').rename(side)
        assert shardmill.verify(out).ok
        assert index_videos(f's3://bucket/{out.name}', 'clip').to_bytes() == written
    assert written[-32:] != wanted[-32:]
    dataset: LocalDataset[Any] = LocalDataset(served / 'converted-none')
    index = index_videos(served / 'converted-none', 'clip')
    for number, video in enumerate(videos):
        frames = dataset.video(number, videos=index).frames([7])
        assert np.array_equal(frames[0], decode(tmp_path, video)[7])
    for columns in (['name'], ['none']):
        with pytest.raises(UsageError, match='video: '):
            shardmill.convert(source, tmp_path / 'refused', video=columns)
    with pytest.raises(UnsupportedError, match='video-format'):
        with MDSWriter(out=str(tmp_path / 'text'), columns={'clip': 'bytes'}) as out_text:
            out_text.write({'clip': b'no video'})
        shardmill.convert(tmp_path / 'text', tmp_path / 'refused', video=['clip'])


@pytest.mark.parametrize('kind', range(len(KINDS)))
def test_only_needed_frame_groups_are_fetched(
    tmp_path: Path,
    served: Path,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    kind: int,
) -> None:
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    codec, group, b_frames, flags = KINDS[kind]
    video = encode(tmp_path, codec, group, b_frames, flags, (320, 240))
    prefix = f'videos-{kind}'
    folder = write(served / prefix, [video, video, video])
    index = index_videos(folder, 'clip')
    dataset: StreamingDataset[Any] = StreamingDataset(
        remote=f's3://bucket/{prefix}', local=tmp_path / 'cache', batch_size=1
    )
    wanted = decode(tmp_path, video)
    header = header_of(video)
    track = read_track(video[slice(*header)], len(video))
    for sample, number in ((0, 0), (1, 30), (2, FRAMES - 1)):
        before = dataset.stats()
        clip = dataset.video(sample, videos=index)
        assert np.array_equal(clip.frames([number])[0], wanted[number])
        after = dataset.stats()
        assert after['requests'] - before['requests'] == 2
        (own,) = track.groups_of(track.shown[number : number + 1])
        start, end = track.bytes_of(own)
        assert clip.fetched_bytes == end - start + header[1] - header[0]
        if group > 1:
            assert clip.fetched_bytes <= 1.2 * (end - start)
        assert after['fetched_shards'] == 0
    # Without an index, the shard is fetched.
    assert np.array_equal(dataset.video(0, 'clip').frames([30])[0], wanted[30])
    assert dataset.stats()['fetched_shards'] == 1


def test_videos_in_compressed_remote_shards_need_whole_shard(
    tmp_path: Path, videos: list[bytes], served: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    folder = write(served / 'videos-zstd', videos[:2], compression='zstd')
    index = index_videos(folder, 'clip')
    dataset: StreamingDataset[Any] = StreamingDataset(
        remote='s3://bucket/videos-zstd', local=tmp_path / 'cache', batch_size=1
    )
    with pytest.raises(UnsupportedError, match='shard-indivisible'):
        dataset.video(0, videos=index).frames([0])
    whole = dataset.video(0, 'clip').frames([0])
    # The shard is on this machine now.
    assert np.array_equal(dataset.video(0, videos=index).frames([0]), whole)


def test_invalid_video_requests_are_errors(tmp_path: Path, videos: list[bytes]) -> None:
    folder = write(tmp_path / 'shards', videos[:2])
    dataset: LocalDataset[Any] = LocalDataset(folder)
    index = index_videos(folder, 'clip')
    with pytest.raises(IndexError):
        dataset.video(2, 'clip')
    with pytest.raises(IndexError):
        dataset.video(0, 'clip').frames([FRAMES])
    with pytest.raises(UsageError):
        dataset.video(0, 'clip').frames([])
    with pytest.raises(UsageError, match='video-column'):
        dataset.video(0, 'none')
    with pytest.raises(UsageError, match='video-column'):
        dataset.video(0, 'none', videos=index)
    with pytest.raises(UsageError):
        dataset.video(0)
    with pytest.raises(UsageError, match='video-column'):
        index_videos(folder, 'none')
    with pytest.raises(UnsupportedError, match='video-format'):
        dataset.video(0, 'name')
    with pytest.raises(UnsupportedError, match=r'sample 0.*video'):
        index_videos(folder, 'name')
    other = write(tmp_path / 'other', videos[1:3])
    with pytest.raises(ConflictError, match='video-index'):
        LocalDataset[Any](other).video(0, videos=index)
    damaged = bytearray(index.to_bytes())
    damaged[60] ^= 1
    (tmp_path / 'damaged').write_bytes(damaged)
    with pytest.raises(DataError, match='video-index'):
        VideoIndex(tmp_path / 'damaged')
    fragmented = encode(tmp_path, 'libx264', 10, 0, 'frag_keyframe+empty_moov')
    with pytest.raises(UnsupportedError, match='fragmented'):
        whole_clip(fragmented)


@pytest.mark.parametrize('seed', range(150))
def test_damaged_video_headers_do_not_crash(videos: list[bytes], seed: int) -> None:
    draw = random.Random(seed)
    data = bytearray(videos[seed % len(videos)])
    start, end = header_of(bytes(data))
    for _ in range(draw.randint(1, 6)):
        data[draw.randrange(start, end)] = draw.choice(
            [0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)]
        )
    if draw.random() < 0.2:
        del data[draw.randrange(len(data)) :]
    try:
        clip = whole_clip(bytes(data))
        assert len(clip.frames([0, len(clip) - 1])) == 2
    except DataError as error:
        assert error.id in ('video-damaged', 'video-format')


def test_tar_files_support_windows_and_videos(
    tmp_path: Path, videos: list[bytes], served: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    folder = served / 'video-tars'
    folder.mkdir()
    frames = [(drive, frame) for drive in range(2) for frame in range(3)]
    for shard in range(2):
        with tarfile.open(folder / f'{shard:05}.tar', 'w', format=tarfile.USTAR_FORMAT) as out:
            for number in range(3 * shard, 3 * shard + 3):
                drive, frame = frames[number]
                for ending, data in (('mp4', videos[number]), ('cls', str(number).encode())):
                    info = tarfile.TarInfo(f'drive-{drive}/{frame:04}.{ending}')
                    info.size = len(data)
                    out.addfile(info, io.BytesIO(data))
    window = Window({'cls': [-1, 0]}, episode='__key__', pad='repeat')
    remote = 's3://bucket/video-tars/{00000..00001}.tar'
    dataset: StreamingDataset[Any] = StreamingDataset(
        remote=remote, local=tmp_path / 'cache', window=window, batch_size=2
    )
    found = [[int(each) for each in sample['cls']] for sample in dataset]
    assert found == [[0, 0], [0, 1], [1, 2], [3, 3], [3, 4], [4, 5]]
    index = index_videos(folder, 'mp4')
    local: LocalDataset[Any] = LocalDataset(folder)
    for number, video in enumerate(videos):
        clip = local.video(number, videos=index)
        assert np.array_equal(clip.frames([20])[0], decode(tmp_path, video)[20])
        assert np.array_equal(dataset.video(number, 'mp4').frames([20]), clip.frames([20]))
    cold: StreamingDataset[Any] = StreamingDataset(
        remote=remote, local=tmp_path / 'cold', batch_size=2
    )
    before = cold.stats()
    assert len(cold.video(4, videos=index_videos(remote, 'mp4')).frames([20])) == 1
    after = cold.stats()
    assert after['requests'] - before['requests'] == 2
    assert after['fetched_shards'] == 0
