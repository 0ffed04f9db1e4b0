"""ADE20K: images of scenes with annotations of their pixels."""

from __future__ import annotations

from typing import Any, Callable, Optional

from shardmill.base.dataset import StreamingDataset

__all__ = ['StreamingADE20K']


class StreamingADE20K(StreamingDataset):
    """ADE20K images and their annotations. Samples have the columns ``x`` and ``y``.

    The other arguments are those of `StreamingDataset`, with the defaults of older runs: ``orig``
    partition, ``py1s`` shuffle, blocks of 2^18 samples.

    Args:
        joint_transform: Called first, with a tuple of image and annotation; returns both.
        transform: Called with the image.
        target_transform: Called with the annotation.
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
        joint_transform: Optional[Callable[[tuple[Any, Any]], tuple[Any, Any]]] = None,
        transform: Optional[Callable[[Any], Any]] = None,
        target_transform: Optional[Callable[[Any], Any]] = None,
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
        self.joint_transform = joint_transform
        self.transform = transform
        self.target_transform = target_transform

    def get_item(self, idx: int, retry: int = 7) -> tuple[Any, Any]:
        """Returns the transformed image and annotation of a sample."""
        sample = super().get_item(idx, retry)
        x, y = sample['x'], sample['y']
        if self.joint_transform:
            x, y = self.joint_transform((x, y))
        if self.transform:
            x = self.transform(x)
        if self.target_transform:
            y = self.target_transform(y)
        return x, y
