//! The errors of tokenizers.

use std::io;

use shardmill_core::{Diagnostic, ErrorKind, escape, io_error_id};

/// The most special tokens that a message lists.
const SHOWN_TOKENS: usize = 20;

/// An error of opening a tokenizer, or of turning text into tokens.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages explain the fields")]
pub enum TokenizeError {
    /// The tokenizer file cannot be read.
    #[error("cannot read the tokenizer")]
    Read {
        path: String,
        #[source]
        source: io::Error,
    },
    /// The file does not hold a tokenizer.
    #[error("is not a tokenizer: {reason}")]
    File { path: String, reason: String },
    /// The tokenizer drops merges at random, so the same text has different tokens each time.
    #[error("has a BPE dropout of {dropout}, so the tokens of a text are random")]
    Random { path: String, dropout: f32 },
    /// The post-processor does not keep the tokens of a text together.
    #[error("its post-processor repeats or rearranges the tokens of a text")]
    Template { path: String },
    /// The tokenizer does not have a token.
    #[error("the tokenizer has no token `{}`", escape(.token))]
    Token {
        /// The option that names the token, without dashes.
        option: &'static str,
        token: String,
        /// The special tokens of the tokenizer, by their ids.
        known: Vec<String>,
    },
    /// A text is not valid UTF-8.
    #[error("the text is not UTF-8: the byte at {at} cannot be decoded")]
    NotUtf8 {
        column: String,
        place: String,
        /// The position of the first invalid byte, from 0.
        at: usize,
    },
    /// The tokenizer failed for a text.
    #[error("the tokenizer failed: {reason}")]
    Failed {
        column: String,
        place: String,
        reason: String,
    },
    /// A text has no tokens, and the format cannot store an empty array.
    #[error("the text has no tokens, and an array of MDS has at least one")]
    NoTokens { column: String, place: String },
    /// The threads could not be started.
    #[error("cannot start threads for the tokenizer: {reason}")]
    Threads { reason: String },
    /// A broken invariant inside this crate.
    #[error("{what}")]
    Bug { what: &'static str },
}

impl Diagnostic for TokenizeError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Read { source, .. } => source.into(),
            Self::File { .. }
            | Self::NotUtf8 { .. }
            | Self::Failed { .. }
            | Self::NoTokens { .. } => ErrorKind::Corrupt,
            Self::Random { .. } | Self::Template { .. } => ErrorKind::Unsupported,
            Self::Token { .. } => ErrorKind::InvalidInput,
            Self::Threads { .. } => ErrorKind::Resource,
            Self::Bug { .. } => ErrorKind::Bug,
        }
    }

    fn id(&self) -> &'static str {
        match self {
            Self::Read { source, .. } => io_error_id(source),
            Self::File { .. } => "tokenizer-file",
            Self::Random { .. } => "tokenizer-random",
            Self::Template { .. } => "tokenizer-template",
            Self::Token { .. } => "tokenizer-token",
            Self::NotUtf8 { .. } => "text-utf8",
            Self::Failed { .. } => "tokenizer-failed",
            Self::NoTokens { .. } => "tokens-none",
            Self::Threads { .. } => "tokenizer-threads",
            Self::Bug { .. } => "bug",
        }
    }

    fn object(&self) -> Option<String> {
        match self {
            Self::Read { path, .. }
            | Self::File { path, .. }
            | Self::Random { path, .. }
            | Self::Template { path } => Some(escape(path).into_owned()),
            Self::Token { option, .. } => Some(format!("--{option}")),
            Self::NotUtf8 { column, place, .. }
            | Self::Failed { column, place, .. }
            | Self::NoTokens { column, place } => {
                Some(format!("{place}, column {}", escape(column)))
            }
            Self::Threads { .. } | Self::Bug { .. } => None,
        }
    }

    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::File { .. } => {
                "pass a file `tokenizer.json` of Hugging Face; `save_pretrained()` of a fast tokenizer writes one"
                    .to_owned()
            }
            Self::Random { .. } => "set `dropout` of its model to null".to_owned(),
            Self::Template { .. } => "remove its `post_processor`".to_owned(),
            Self::Token { known, .. } if known.is_empty() => "it has no special tokens".to_owned(),
            Self::Token { known, .. } => {
                let shown = known.iter().take(SHOWN_TOKENS);
                let shown: Vec<_> = shown.map(|token| format!("`{}`", escape(token))).collect();
                let more = known.len().saturating_sub(shown.len());
                let tail = match more {
                    0 => String::new(),
                    more => format!(", and {more} more"),
                };
                format!("its special tokens are {}{tail}", shown.join(", "))
            }
            Self::NotUtf8 { .. } => {
                "correct or leave out the row, or decode the column with --select".to_owned()
            }
            Self::NoTokens { .. } => {
                "pass --append for a token after each text, or --nulls drop to leave such rows out"
                    .to_owned()
            }
            Self::Threads { .. } => "choose fewer --jobs".to_owned(),
            Self::Read { .. } | Self::Failed { .. } | Self::Bug { .. } => return None,
        })
    }
}
