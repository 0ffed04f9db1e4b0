"""Image datasets with labels, in the style of torchvision."""

from __future__ import annotations

import importlib.util
from typing import Any, Callable, Optional

from shardmill import _torch
from shardmill.base.dataset import StreamingDataset
from shardmill.base.util import missing_package
from shardmill.errors import UsageError

__all__ = ['StandardTransform', 'StreamingVisionDataset']


class StandardTransform:
    """Combines a transform of images and a transform of labels.

    Args:
        transform: For images. By default images become tensors, as with torchvision's `to_tensor`.
        target_transform: For labels. By default labels are unchanged.
    """

    def __init__(
        self,
        transform: Optional[Callable[[Any], Any]] = None,
        target_transform: Optional[Callable[[Any], Any]] = None,
    ) -> None:
        self.transform = transform
        self.target_transform = target_transform

    def __call__(self, x: Any, y: Any) -> tuple[Any, Any]:
        """Returns the transformed image and label."""
        image = self.transform(x) if self.transform else _to_tensor(x)
        return image, self.target_transform(y) if self.target_transform else y


def _to_tensor(image: Any) -> Any:
    try:
        from torchvision.transforms import functional  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except ImportError as error:
        raise ImportError(missing_package('torchvision', 'torchvision')) from error
    return functional.to_tensor(image)


class StreamingVisionDataset(StreamingDataset, _torch.Placeholder):
    """Images with labels. Samples have the columns ``x`` and ``y``.

    If torchvision is installed, this becomes a ``torchvision.datasets.VisionDataset`` when the first
    object is constructed. The other arguments are those of `StreamingDataset`, with the defaults of
    older runs: ``orig`` partition, ``py1s`` shuffle, blocks of 2^18 samples.

    Args:
        transforms: Called with an image and its label; returns both.
        transform: Called with an image; cannot be combined with `transforms`.
        target_transform: Called with a label; cannot be combined with `transforms`.

    Raises:
        ValueError: `transforms` is combined with another transform.
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
        batch_size: int,
        shuffle: bool = False,
        shuffle_algo: str = 'py1s',
        shuffle_seed: int = 9176,
        shuffle_block_size: int = 1 << 18,
        transforms: Optional[Callable[[Any, Any], tuple[Any, Any]]] = None,
        transform: Optional[Callable[[Any], Any]] = None,
        target_transform: Optional[Callable[[Any], Any]] = None,
    ) -> None:
        if transforms is not None and (transform is not None or target_transform is not None):
            raise UsageError(
                'transforms do not go together with transform and target_transform', 'config-value'
            )
        _adopt()
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
        self.target_transform = target_transform
        self.transforms = transforms or StandardTransform(transform, target_transform)

    def get_item(self, idx: int, retry: int = 7) -> Any:
        """Returns the transformed image and label of a sample."""
        sample = super().get_item(idx, retry)
        return self.transforms(sample['x'], sample['y'])


def _adopt() -> None:
    """Replaces the placeholder base by torchvision's class, if torchvision is installed."""
    bases = StreamingVisionDataset.__bases__
    if _torch.Placeholder in bases and importlib.util.find_spec('torchvision') is not None:
        from torchvision import datasets  # type: ignore[import-untyped, import-not-found, unused-ignore]

        StreamingVisionDataset.__bases__ = tuple(
            datasets.VisionDataset if base is _torch.Placeholder else base for base in bases
        )
