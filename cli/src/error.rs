//! The form in which the errors of all crates are shown.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::io;

use serde::Serialize;
use shardmill_core::{Diagnostic, ErrorKind, escape, io_error_id};

/// An error in the form in which it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CliError {
    #[serde(skip)]
    pub kind: ErrorKind,
    pub id: Cow<'static, str>,
    pub object: Option<String>,
    pub message: String,
    pub hint: Option<String>,
}

impl CliError {
    /// Creates an error without an object and a hint. Line breaks and control characters are escaped.
    pub fn new(kind: ErrorKind, id: impl Into<Cow<'static, str>>, message: &str) -> Self {
        Self {
            kind,
            id: id.into(),
            object: None,
            message: one_line(message),
            hint: None,
        }
    }

    /// Creates the error of a command line, of a variable, or of a request that a dataset cannot fulfil.
    pub fn usage(id: impl Into<Cow<'static, str>>, message: &str) -> Self {
        Self::new(ErrorKind::InvalidInput, id, message)
    }

    /// Creates the error of an operation of the operating system.
    pub fn io(message: &str, source: &io::Error) -> Self {
        let message = format!("{message}: {source}");
        Self::new(ErrorKind::from(source), io_error_id(source), &message)
    }

    /// Creates the error of an option that cannot have its value. `option` has no dashes; the hint says what is accepted.
    pub fn option(option: &str, message: &str, hint: &str) -> Self {
        Self::usage(format!("config-{option}"), message)
            .about(&format!("--{option}"))
            .with_hint(hint)
    }

    /// Creates the error that a dataset, or a sample of it, has no such column.
    pub fn unknown_column(
        object: &str,
        column: &str,
        known: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Self {
        let known: Vec<_> = known.into_iter().collect();
        let known: Vec<&str> = known.iter().map(AsRef::as_ref).collect();
        let message = format!("there is no column `{}`", escape(column));
        Self::usage("column-unknown", &message)
            .about(object)
            .with_hint(&format!("its columns are {}", known.join(", ")))
    }

    /// Creates the error that no sample has a key.
    pub fn unknown_key(dataset: &str, key: &str, column: &str) -> Self {
        let (key, column) = (escape(key), escape(column));
        let message = format!("no sample has `{key}` in the column `{column}`");
        Self::new(ErrorKind::NotFound, "key-not-found", &message)
            .about(dataset)
            .with_hint("name the column that holds keys with --key-column")
    }

    /// Creates the error that a dataset has no sample of this number.
    pub fn unknown_sample(dataset: &str, sample: impl fmt::Display, samples: u64) -> Self {
        let message = format!("sample {sample} does not exist; the dataset has {samples}");
        let cli_error = Self::usage("sample-out-of-range", &message).about(dataset);
        match samples.checked_sub(1) {
            None => cli_error,
            Some(last) => cli_error.with_hint(&format!(
                "samples are numbered from 0 to {last}, or from -1 backwards"
            )),
        }
    }

    /// Sets what the error is about.
    pub fn about(mut self, object: &str) -> Self {
        self.object = Some(escape(object).into_owned());
        self
    }

    /// Sets the remedy.
    pub fn with_hint(mut self, hint: &str) -> Self {
        self.hint = Some(one_line(hint));
        self
    }
}

impl<E: Diagnostic> From<E> for CliError {
    fn from(error: E) -> Self {
        Self {
            kind: error.kind(),
            id: Cow::Borrowed(error.id()),
            object: error.object().map(|object| escape(&object).into_owned()),
            message: one_line(&error.chain()),
            hint: error.hint().map(|hint| one_line(&hint)),
        }
    }
}

impl Error for CliError {}

impl fmt::Display for CliError {
    /// Formats the line after `error` or `warning`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}]: ", self.id)?;
        if let Some(object) = &self.object {
            write!(f, "{object}: ")?;
        }
        f.write_str(&self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, "; {hint}")?;
        }
        Ok(())
    }
}

/// Formats a text as one line: line breaks become spaces, control characters are escaped.
pub fn one_line(text: &str) -> String {
    let joined = if text.contains(['\n', '\r']) {
        let lines = text
            .split(['\n', '\r'])
            .map(str::trim)
            .filter(|line| !line.is_empty());
        Cow::Owned(lines.collect::<Vec<_>>().join(" "))
    } else {
        Cow::Borrowed(text)
    };
    escape(&joined).into_owned()
}

/// The reason why a verb ended early.
#[derive(Debug)]
pub enum Stop {
    /// Something failed.
    CliError(Box<CliError>),
    /// The reader of standard output has closed it, as `head` does.
    ClosedPipe,
}

impl<E: Into<CliError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::CliError(Box::new(error.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read the footer")]
    struct Outer(#[source] Middle);

    #[derive(Debug, thiserror::Error)]
    #[error("page 3 is short:\n  12 of 20 bytes")]
    struct Middle(#[source] Inner);

    #[derive(Debug, thiserror::Error)]
    #[error("12 of 20 bytes")]
    struct Inner;

    impl Diagnostic for Outer {
        fn kind(&self) -> ErrorKind {
            ErrorKind::Corrupt
        }

        fn id(&self) -> &'static str {
            "parquet-footer"
        }

        fn object(&self) -> Option<String> {
            Some("a\n\u{1b}[2Jb".to_owned())
        }
    }

    #[test]
    fn error_chain_is_one_line_without_repetition() {
        let cli_error = CliError::from(Outer(Middle(Inner)));
        assert_eq!(
            cli_error.to_string(),
            "[parquet-footer]: a\\u{a}\\u{1b}[2Jb: cannot read the footer: page 3 is short: 12 of 20 bytes"
        );
    }

    #[test]
    fn hint_follows_the_message_after_a_semicolon() {
        let cli_error =
            CliError::option("jobs", "`0` is not a number of threads", "pass 1 or more");
        assert_eq!(
            cli_error.to_string(),
            "[config-jobs]: --jobs: `0` is not a number of threads; pass 1 or more"
        );
        assert_eq!(cli_error.kind, ErrorKind::InvalidInput);
    }
}
