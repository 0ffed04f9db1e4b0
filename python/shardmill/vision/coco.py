"""COCO: images and the objects in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Optional

from shardmill.base._legacy import NamedDataset, NamedDatasetOptions, shows_options

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ['StreamingCOCO']


class StreamingCOCO(NamedDataset):
    """COCO images and the objects in them.

    Samples have the columns ``img``, ``img_id``, ``htot``, ``wtot``, ``bbox_sizes`` and ``bbox_labels``.

    Args:
        transform: Called with the image, its height and width as a tuple, the sizes and the labels
            of the boxes; returns these four.
    """

    @shows_options
    def __init__(
        self,
        *,
        transform: Optional[Callable[..., Any]] = None,
        **options: Unpack[NamedDatasetOptions],
    ) -> None:
        super().__init__(**options)
        self.transform = transform

    def get_item(self, idx: int, retry: int = 7) -> Any:
        """Returns the RGB image, its id, its height and width as a tuple, sizes and labels of boxes."""
        sample = super().get_item(idx, retry)
        image, size = sample['img'].convert('RGB'), (sample['htot'], sample['wtot'])
        boxes, labels = sample['bbox_sizes'], sample['bbox_labels']
        if self.transform:
            image, size, boxes, labels = self.transform(image, size, boxes, labels)
        return image, sample['img_id'], size, boxes, labels
