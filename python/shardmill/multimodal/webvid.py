"""WebVid: videos and their captions."""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Optional

from shardmill.base._legacy import NamedDataset, NamedDatasetOptions, shows_options
from shardmill.base.constant import DEFAULT_TIMEOUT
from shardmill.base.dataset import StreamingDataset
from shardmill.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Unpack

__all__ = ['StreamingInsideWebVid', 'StreamingOutsideDTWebVid', 'StreamingOutsideGIWebVid']

# Maximum concurrent downloads of videos.
_THREADS = 4


class StreamingInsideWebVid(StreamingDataset):
    """WebVid with the videos in the shards."""

    def get_item(self, idx: int, retry: int = 7) -> Any:
        """Returns a sample as stored in its shard."""
        return super().get_item(idx, retry)

    def _is_plain(self) -> bool:
        return self._reads_like(StreamingInsideWebVid)


class _Outside(NamedDataset):
    """WebVid with one file per video; samples have its path as ``content_path``."""

    @shows_options
    def __init__(
        self,
        *,
        extra_local: Optional[str] = None,
        extra_remote: Optional[str] = None,
        **options: Unpack[NamedDatasetOptions],
    ) -> None:
        super().__init__(**options)
        self.download_timeout = options.get('download_timeout', DEFAULT_TIMEOUT)
        self.extra_local = extra_local
        self.extra_remote = extra_remote

    def get_item(self, idx: int, retry: int = 7) -> Any:
        """Returns a sample; if both extra locations are set, ``content`` holds the bytes of its video."""
        sample = super().get_item(idx, retry)
        self._fill(sample)
        return sample

    def _fill(self, sample: dict[str, Any]) -> None:
        path = self._download(sample)
        if path is not None:
            with open(path, 'rb') as file:
                sample['content'] = file.read()

    def _download(self, sample: dict[str, Any]) -> Optional[str]:
        """Returns the local path of the video, after downloading it if necessary."""
        if not self.extra_local or not self.extra_remote:
            return None
        name = sample['content_path']
        if os.path.isabs(name) or '..' in name.split('/'):
            raise DataError(f'the video {name!r} is outside of its folder', 'path-traversal', name)
        path = os.path.join(self.extra_local, name)
        if not os.path.exists(path):
            from shardmill.base.storage.download import CloudDownloader

            url = os.path.join(self.extra_remote, name)
            CloudDownloader.direct_download(url, path, self.download_timeout)
        return path


class StreamingOutsideGIWebVid(_Outside):
    """WebVid with one file per video, downloaded when its sample is requested.

    Args:
        extra_local: The folder that videos are downloaded to.
        extra_remote: The location that videos are downloaded from.
    """


class StreamingOutsideDTWebVid(_Outside):
    """WebVid with one file per video, prefetched by threads.

    `predownload` is the number of samples to prefetch, 64 by default.

    Args:
        extra_local: The folder that videos are downloaded to.
        extra_remote: The location that videos are downloaded from.
    """

    _is_ahead = False

    def get_item(self, idx: int, retry: int = 7) -> Any:
        """Returns a sample; if both extra locations are set, ``content`` holds the bytes of its video."""
        if self._is_ahead:
            return StreamingDataset.get_item(self, idx, retry)
        return super().get_item(idx, retry)

    def __iter__(self) -> Iterator[Any]:
        """Iterates over the samples of an epoch."""
        ahead = self.predownload or 64
        waiting: deque[tuple[dict[str, Any], Future[Optional[str]]]] = deque()
        samples = super().__iter__()
        pool = ThreadPoolExecutor(_THREADS)
        try:
            while True:
                self._is_ahead = True
                try:
                    sample = next(samples, None)
                finally:
                    self._is_ahead = False
                if sample is not None:
                    waiting.append((sample, pool.submit(self._download, sample)))
                if not waiting:
                    return
                if sample is None or len(waiting) > ahead:
                    sample, download = waiting.popleft()
                    download.result()
                    self._fill(sample)
                    yield sample
        finally:
            pool.shutdown(cancel_futures=True)
