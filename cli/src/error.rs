//! The errors of the command line, and the form in which those of all crates are shown.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;
use shardmill_core::{Error, ErrorKind, escape};

/// Creates the error that a dataset, or a sample of it, has no such column.
pub fn unknown_column(
    object: &str,
    column: &str,
    known: impl IntoIterator<Item = impl AsRef<str>>,
) -> Error {
    let known: Vec<_> = known.into_iter().collect();
    let known: Vec<&str> = known.iter().map(AsRef::as_ref).collect();
    let message = format!("there is no column `{}`", escape(column));
    Error::usage("column-unknown", message)
        .about(object)
        .with_hint(format!("its columns are {}", known.join(", ")))
}

/// Creates the error that no sample has a key. `more` ends the message.
pub fn unknown_key(dataset: &str, key: &str, column: &str, more: &str) -> Error {
    let (key, column) = (escape(key), escape(column));
    let message = format!("no sample has `{key}` in the column `{column}`{more}");
    Error::new(ErrorKind::NotFound, "key-not-found", message)
        .about(dataset)
        .with_hint("name the column that holds keys with --key-column")
}

/// Creates the error that a dataset has no sample of this number.
pub fn unknown_sample(dataset: &str, sample: impl fmt::Display, samples: u64) -> Error {
    let message = format!("sample {sample} does not exist; the dataset has {samples}");
    let error = Error::usage("sample-out-of-range", message).about(dataset);
    match samples.checked_sub(1) {
        None => error,
        Some(last) => error.with_hint(format!(
            "samples are numbered from 0 to {last}, or from -1 backwards"
        )),
    }
}

/// An error in the form in which it is shown: each part on one line, without control characters.
#[derive(Debug, Serialize)]
pub struct Shown {
    id: &'static str,
    object: Option<String>,
    message: String,
    hint: Option<String>,
}

impl From<&Error> for Shown {
    fn from(error: &Error) -> Self {
        Self {
            id: error.id(),
            object: error.object().map(|object| escape(object).into_owned()),
            message: one_line(&error.chain()),
            hint: error.hint().map(one_line),
        }
    }
}

impl fmt::Display for Shown {
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
    Error(Error),
    /// The reader of standard output has closed it, as `head` does.
    ClosedPipe,
}

impl<E: Into<Error>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

#[cfg(test)]
mod tests {
    use shardmill_core::Diagnostic;

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
        let shown = Shown::from(&Error::from(Outer(Middle(Inner))));
        assert_eq!(
            shown.to_string(),
            "[parquet-footer]: a\\u{a}\\u{1b}[2Jb: cannot read the footer: page 3 is short: 12 of 20 bytes"
        );
    }

    #[test]
    fn hint_follows_the_message_after_a_semicolon() {
        let error = Error::option_hint(
            "config-jobs",
            "`0` is not a number of threads",
            "pass 1 or more",
        );
        assert_eq!(
            Shown::from(&error).to_string(),
            "[config-jobs]: --jobs: `0` is not a number of threads; pass 1 or more"
        );
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
}
