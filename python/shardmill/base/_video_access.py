"""Access to the videos of samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from shardmill.base import _arguments as check
from shardmill.base._stored import Stored
from shardmill.errors import UsageError

if TYPE_CHECKING:
    from shardmill.videos import Clip, VideoIndex


class VideoAccess(Stored):
    """Access to videos in columns."""

    def video(
        self, sample_id: int, column: Optional[str] = None, *, videos: Optional[VideoIndex] = None
    ) -> Clip:
        """Returns the video of a sample, whose frames are decoded when they are requested.

        Args:
            sample_id: The number of the sample, from 0.
            column: The column. May be omitted with an index.
            videos: Where the videos are stored, as `index_videos` returns. Only the header and the needed parts of the
                video are then read. Without an index, the shard or sample is read whole.

        Raises:
            ConflictError: The index is of another dataset.
            DataError: The video is damaged.
            IndexError: The sample does not exist.
            UnsupportedError: The value is not an MP4 file, or the shard is compressed.
            UsageError: The sample does not have the column.
        """
        from shardmill.videos import whole_clip

        number = check.sample_number(sample_id, self.num_samples)
        if videos is not None:
            if column not in (None, videos.column):
                raise UsageError(
                    f'the index is of column `{videos.column}`, not of `{column}`', 'video-column'
                )
            return videos.clip_of(self._here(), number)
        if column is None:
            raise UsageError('give `column` or `videos`', 'config-value', 'column')
        self._make_local(number, number + 1)
        found = self._here().value_at(number, check.text('column', column))
        if found is None:
            raise UsageError(f'sample {number} has no column `{column}`', 'video-column', column)
        return whole_clip(found[1])
