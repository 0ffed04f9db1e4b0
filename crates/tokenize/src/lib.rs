//! Turns a column of text into a column of token ids with Hugging Face tokenizer files (`tokenizer.json`).
//!
//! [`Tokenizer`] opens a file. [`ColumnTokenizer`] turns Arrow columns of text into lists of tokens, on several threads.
//! The tokens are those of the Python package `tokenizers`, whatever the number of threads.

// The modules, from the bottom up: each uses only modules above it in this list.

mod error; // The error of this crate.

mod word_cache; // Tokens of words that repeat.

mod scores; // Scores of Unigram models.

mod tokenizer; // Tokenizer files, and the tokens of one text.

mod column; // Columns of text as columns of tokens.

pub use column::{ColumnTokenizer, EmptyTokens, TextKind};
pub use error::TokenizeError;
pub use tokenizer::{TokenOptions, Tokenizer};

#[cfg(test)]
mod tests;
