//! The errors of tokenizers.

use std::io;

use shardmill_core::{Diagnostic, ErrorKind, escape, io_error_id};

shardmill_core::problems! {
    /// What is wrong with a tokenizer or a text.
    pub(crate) enum Problem {
        File => (Corrupt, "tokenizer-file", "pass a file `tokenizer.json` of Hugging Face; `save_pretrained()` of a fast tokenizer writes one"),
        Random => (Unsupported, "tokenizer-random", "set `dropout` of its model to null"),
        Template => (Unsupported, "tokenizer-template", "remove its `post_processor`"),
        Token => (InvalidInput, "tokenizer-token", "it has no special tokens"),
        NotUtf8 => (Corrupt, "text-utf8", "correct or remove the row, or decode the column with --select"),
        Failed => (Corrupt, "tokenizer-failed"),
        NoTokens => (Corrupt, "tokens-none", "pass --append for a token after each text, or --nulls drop to skip such rows"),
        Threads => (Resource, "tokenizer-threads", "choose fewer --jobs"),
        Bug => (Bug, "bug"),
    }
}

impl Problem {
    /// Builds the error with this problem. `object` is what it is about, if anything.
    pub(crate) fn at(self, object: Option<&str>, message: impl Into<String>) -> TokenizeError {
        let (kind, id, hint) = self.facts();
        TokenizeError {
            kind,
            id,
            object: object.map(|object| escape(object).into_owned()),
            message: message.into(),
            hint: hint.map(str::to_owned),
            source: None,
        }
    }
}

/// An error of opening a tokenizer, or of turning text into tokens.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct TokenizeError {
    kind: ErrorKind,
    id: &'static str,
    /// The file, row or option, escaped.
    object: Option<String>,
    message: String,
    pub(crate) hint: Option<String>,
    source: Option<io::Error>,
}

impl TokenizeError {
    /// Builds the error about a tokenizer file that cannot be read.
    pub(crate) fn read(path: &str, source: io::Error) -> Self {
        Self {
            kind: (&source).into(),
            id: io_error_id(&source),
            object: Some(escape(path).into_owned()),
            message: "cannot read the tokenizer".to_owned(),
            hint: None,
            source: Some(source),
        }
    }
}

impl Diagnostic for TokenizeError {
    fn kind(&self) -> ErrorKind {
        self.kind
    }

    fn id(&self) -> &'static str {
        self.id
    }

    fn object(&self) -> Option<String> {
        self.object.clone()
    }

    fn hint(&self) -> Option<String> {
        self.hint.clone()
    }
}
