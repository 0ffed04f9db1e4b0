"""COCO: images and the objects in them."""

from __future__ import annotations

from typing import Any, Callable, Optional

from shardmill.base.dataset import StreamingDataset

__all__ = ['StreamingCOCO']


class StreamingCOCO(StreamingDataset):
    """COCO images and the objects in them.

    Samples have the columns ``img``, ``img_id``, ``htot``, ``wtot``, ``bbox_sizes`` and
    ``bbox_labels``.

    The other arguments are those of `StreamingDataset`, with the defaults of older runs: ``orig``
    partition, ``py1s`` shuffle, blocks of 2^18 samples.

    Args:
        transform: Called with the image, its height and width as a tuple, the sizes and the labels
            of the boxes; returns these four.
    """

    def __init__(
        self,
        *,
        remote: Optional[str] = None,
        local: Optional[str] = None,
        split: Optional[str] = None,
        download_retry: int = 2,
        download_timeout: float = 60,
        validate_hash: Optional[str] = None,
        keep_zip: bool = False,
        epoch_size: Optional[int] = None,
        predownload: Optional[int] = None,
        cache_limit: Optional[int] = None,
        partition_algo: str = 'orig',
        num_canonical_nodes: Optional[int] = None,
        batch_size: Optional[int] = None,
        shuffle: bool = False,
        shuffle_algo: str = 'py1s',
        shuffle_seed: int = 9176,
        shuffle_block_size: int = 1 << 18,
        transform: Optional[Callable[..., Any]] = None,
    ) -> None:
        super().__init__(
            remote=remote,
            local=local,
            split=split,
            download_retry=download_retry,
            download_timeout=download_timeout,
            validate_hash=validate_hash,
            keep_zip=keep_zip,
            epoch_size=epoch_size,
            predownload=predownload,
            cache_limit=cache_limit,
            partition_algo=partition_algo,
            num_canonical_nodes=num_canonical_nodes,
            batch_size=batch_size,
            shuffle=shuffle,
            shuffle_algo=shuffle_algo,
            shuffle_seed=shuffle_seed,
            shuffle_block_size=shuffle_block_size,
        )
        self.transform = transform

    def get_item(self, idx: int, retry: int = 7) -> Any:
        """Returns the RGB image, its id, its height and width as a tuple, sizes and labels of boxes."""
        sample = super().get_item(idx, retry)
        image, size = sample['img'].convert('RGB'), (sample['htot'], sample['wtot'])
        boxes, labels = sample['bbox_sizes'], sample['bbox_labels']
        if self.transform:
            image, size, boxes, labels = self.transform(image, size, boxes, labels)
        return image, sample['img_id'], size, boxes, labels
