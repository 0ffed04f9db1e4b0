"""Tokenizes text with a Hugging Face tokenizer."""

from __future__ import annotations

from typing import Any

from shardmill.base.util import missing_package


def make_tokenizer(name: str) -> Any:
    """Loads a tokenizer. Without a padding token, it pads with its end-of-text token."""
    try:
        import transformers
    except ImportError as error:
        raise ImportError(missing_package('transformers', 'transformers')) from error
    auto: Any = transformers.AutoTokenizer
    tokenizer = auto.from_pretrained(name)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def tokens_of(tokenizer: Any, text: str, length: int) -> Any:
    """Tokenizes a text, truncating or padding it to a length."""
    return tokenizer(text, truncation=True, padding='max_length', max_length=length)
