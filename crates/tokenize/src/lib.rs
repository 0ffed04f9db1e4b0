//! Turns a column of text into a column of token ids with Hugging Face tokenizer files (`tokenizer.json`).
