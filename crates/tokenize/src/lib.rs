//! Turns a column of text into a column of token ids with Hugging Face tokenizer files (`tokenizer.json`).
//!
//! [`Tokenizer`] opens a file. [`ColumnTokenizer`] turns Arrow columns of text into lists of tokens, on several threads.
//! The tokens are those of the Python package `tokenizers`, whatever the number of threads.

mod column;
mod error;
mod scores;
mod tokenizer;
mod word_cache;

pub use column::{ColumnTokenizer, EmptyTokens, TextKind};
pub use tokenizer::{TokenOptions, Tokenizer};

#[cfg(test)]
mod tests;
