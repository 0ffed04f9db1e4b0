"""ADE20K: images of scenes with annotations of their pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Optional

from shardmill.base._legacy import NamedDataset, NamedDatasetOptions, shows_options

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ['StreamingADE20K']


class StreamingADE20K(NamedDataset):
    """ADE20K images and their annotations. Samples have the columns ``x`` and ``y``.

    Args:
        joint_transform: Called first, with a tuple of image and annotation; returns both.
        transform: Called with the image.
        target_transform: Called with the annotation.
    """

    @shows_options
    def __init__(
        self,
        *,
        joint_transform: Optional[Callable[[tuple[Any, Any]], tuple[Any, Any]]] = None,
        transform: Optional[Callable[[Any], Any]] = None,
        target_transform: Optional[Callable[[Any], Any]] = None,
        **options: Unpack[NamedDatasetOptions],
    ) -> None:
        super().__init__(**options)
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
