"""Datasets of texts that a Hugging Face tokenizer converts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardmill.base._legacy import NamedDataset, NamedDatasetOptions, shows_options
from shardmill.base.storage._sdk import sdk
from shardmill.errors import UsageError

if TYPE_CHECKING:
    from typing_extensions import Unpack


class TokenizedDataset(NamedDataset):
    """Tokenized texts. Samples have a column ``text``.

    Args:
        tokenizer_name: The name of a Hugging Face tokenizer, or its folder.
        max_seq_len: Tokens per sample: longer texts are truncated, shorter ones padded.
        group_method: Must be ``truncate``.
    """

    @shows_options
    def __init__(
        self,
        *,
        tokenizer_name: str,
        max_seq_len: int,
        group_method: str,
        **options: Unpack[NamedDatasetOptions],
    ) -> None:
        if group_method != 'truncate':
            raise UsageError(
                f'group_method is {group_method!r}, which is not truncate', 'config-value'
            )
        super().__init__(**options)
        self.tokenizer_name = tokenizer_name
        self.max_seq_len = max_seq_len
        self.group_method = group_method
        self.tokenizer = make_tokenizer(tokenizer_name)

    def get_item(self, idx: int, retry: int = 7) -> Any:
        """Returns the tokenizer's result for the text of a sample."""
        text = super().get_item(idx, retry)['text']
        return self.tokenizer(
            text, truncation=True, padding='max_length', max_length=self.max_seq_len
        )


def make_tokenizer(name: str) -> Any:
    """Loads a tokenizer. Without a padding token, it pads with its end-of-text token."""
    tokenizer = sdk('transformers', 'transformers').AutoTokenizer.from_pretrained(name)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer
