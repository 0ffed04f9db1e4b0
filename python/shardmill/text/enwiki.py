"""English Wikipedia of 2020-01-01, prepared for BERT."""

from __future__ import annotations

from typing import Any, Optional

from shardmill.base.dataset import StreamingDataset

__all__ = ['StreamingEnWiki']


class StreamingEnWiki(StreamingDataset):
    """English Wikipedia of 2020-01-01, prepared for the pretraining of BERT.

    The arguments are those of `StreamingDataset`, with the defaults of older runs: ``orig``
    partition, ``py1s`` shuffle, blocks of 2^18 samples.

    Attributes:
        field_dtypes: The number type of each column, by name.
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
