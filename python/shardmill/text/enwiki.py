"""English Wikipedia of 2020-01-01, prepared for BERT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardmill.base._legacy import NamedDataset, NamedDatasetOptions, shows_options

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ['StreamingEnWiki']


class StreamingEnWiki(NamedDataset):
    """English Wikipedia of 2020-01-01, prepared for the pretraining of BERT.

    Attributes:
        field_dtypes: The number type of each column, by name.
    """

    @shows_options
    def __init__(self, **options: Unpack[NamedDatasetOptions]) -> None:
        super().__init__(**options)
        import numpy as np

        self.field_dtypes: dict[str, Any] = {
            'input_ids': np.int32,
            'input_mask': np.int32,
            'attention_mask': np.int32,
            'segment_ids': np.int32,
            'token_type_ids': np.int32,
            'masked_lm_positions': np.int32,
            'masked_lm_ids': np.int32,
            'masked_lm_weights': np.float32,
            'next_sentence_labels': np.int32,
            'labels': np.int32,
        }

    def get_item(self, idx: int, retry: int = 7) -> Any:
        """Returns the inputs and labels of a sample, by name, as arrays with one number per token.

        Labels are -100 at positions that are not masked.
        """
        import numpy as np

        sample = super().get_item(idx, retry)
        fields = {
            name: np.frombuffer(data, self.field_dtypes[name]) for name, data in sample.items()
        }
        labels = np.full(len(fields['input_ids']), -100)
        labels[fields['masked_lm_positions']] = fields['masked_lm_ids']
        return {
            'input_ids': fields['input_ids'].copy(),
            'token_type_ids': fields['segment_ids'].copy(),
            'attention_mask': fields['input_mask'].copy(),
            'labels': labels,
        }
