"""C4, the cleaned web crawl of Common Crawl."""

from __future__ import annotations

from typing import Any, Optional

from shardmill.base.dataset import StreamingDataset
from shardmill.errors import UsageError
from shardmill.text._tokens import make_tokenizer, tokens_of

__all__ = ['StreamingC4']


class StreamingC4(StreamingDataset):
    """Tokenized texts of C4. Samples have a column ``text``.

    The other arguments are those of `StreamingDataset`, with the defaults of older runs: ``orig``
    partition, ``py1s`` shuffle, blocks of 2^18 samples.

    Args:
        tokenizer_name: The name of a Hugging Face tokenizer, or its folder.
        max_seq_len: Tokens per sample: longer texts are truncated, shorter ones padded.
        group_method: Must be ``truncate``.

    Raises:
        ValueError: The group method is not ``truncate``.
        ImportError: transformers is not installed.
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
        tokenizer_name: str,
        max_seq_len: int,
        group_method: str,
    ) -> None:
        if group_method != 'truncate':
            raise UsageError(
                f'group_method is {group_method!r}, which is not truncate', 'config-value'
            )
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
        self.tokenizer_name = tokenizer_name
        self.max_seq_len = max_seq_len
        self.group_method = group_method
        self.tokenizer = make_tokenizer(tokenizer_name)

    def get_item(self, idx: int, retry: int = 7) -> Any:
        """Returns the tokenizer's result for the text of a sample."""
        sample = super().get_item(idx, retry)
        return tokens_of(self.tokenizer, sample['text'], self.max_seq_len)
