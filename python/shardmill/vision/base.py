"""Image datasets with labels, in the style of torchvision."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any, Callable, Optional

from shardmill import _torch
from shardmill.base._legacy import NamedDataset, NamedDatasetOptions, shows_options
from shardmill.base.storage._sdk import sdk
from shardmill.errors import UsageError

if TYPE_CHECKING:
    from typing_extensions import Unpack

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
        transform = (
            self.transform or sdk('torchvision', 'torchvision').transforms.functional.to_tensor
        )
        image = transform(x)
        return image, self.target_transform(y) if self.target_transform else y


class StreamingVisionDataset(NamedDataset, _torch.Placeholder):
    """Images with labels. Samples have the columns ``x`` and ``y``.

    If torchvision is installed, this becomes a ``torchvision.datasets.VisionDataset`` when the first
    object is constructed.

    Args:
        transforms: Called with an image and its label; returns both.
        transform: Called with an image; cannot be combined with `transforms`.
        target_transform: Called with a label; cannot be combined with `transforms`.

    Raises:
        ValueError: `transforms` is combined with another transform.
    """

    @shows_options
    def __init__(
        self,
        *,
        transforms: Optional[Callable[[Any, Any], tuple[Any, Any]]] = None,
        transform: Optional[Callable[[Any], Any]] = None,
        target_transform: Optional[Callable[[Any], Any]] = None,
        **options: Unpack[NamedDatasetOptions],
    ) -> None:
        if transforms is not None and (transform is not None or target_transform is not None):
            raise UsageError(
                'transforms do not go together with transform and target_transform', 'config-value'
            )
        _adopt()
        super().__init__(**options)
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
