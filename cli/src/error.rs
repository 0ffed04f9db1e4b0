//! The errors of the command line itself, and the form in which every error is shown.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

use shardmill_core::{Diagnostic, ErrorKind, NameError, Unfinished, escape};

/// The errors of this crate: options, and requests that a dataset cannot fulfil.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The command line cannot be parsed.
    #[error("{message}")]
    Usage {
        id: Cow<'static, str>,
        object: Option<String>,
        message: String,
        hint: Option<String>,
    },
    /// The value of an option cannot be used.
    #[error("{message}")]
    Option {
        /// Without the dashes: `size-limit`.
        option: &'static str,
        message: String,
        hint: Option<String>,
    },
    /// The location is not a local path.
    #[error("only local folders and files are supported here, not `{scheme}:`")]
    Scheme { location: String, scheme: String },
    #[error("sample {sample} does not exist; the dataset has {samples}")]
    SampleOutOfRange {
        dataset: String,
        sample: String,
        samples: u64,
    },
    #[error("no sample has `{}` in the column `{}`", escape(key), escape(column))]
    KeyNotFound {
        dataset: String,
        key: String,
        column: String,
    },
    #[error("there is no column `{}`", escape(column))]
    ColumnUnknown {
        object: String,
        column: String,
        known: Vec<String>,
    },
    #[error("the file cannot be named after `{}`: {source}", escape(name))]
    FileName {
        sample: u64,
        name: String,
        source: NameError,
    },
    #[error("{}", no_dataset(*.unfinished))]
    NoDataset {
        location: String,
        /// The leftovers of an unfinished conversion to it.
        unfinished: Option<Unfinished>,
    },
    #[error("the index.json files are in subdirectories")]
    SeveralDatasets {
        location: String,
        names: Vec<String>,
    },
    #[error("a different index exists")]
    IndexDiffers { path: String },
    #[error(
        "the key `{}` is that of samples {first} and {second}, and files cannot be named after both",
        escape(key)
    )]
    KeyTwice {
        dataset: String,
        key: String,
        first: u64,
        second: u64,
    },
    #[error("the column has encoding {encoding}, which cannot be a key")]
    KeyEncoding { column: String, encoding: String },
}

fn no_dataset(unfinished: Option<Unfinished>) -> String {
    match unfinished {
        Some(found @ Unfinished::Parts) => found.to_string(),
        Some(Unfinished::Conversion) => {
            "there is no `index.json`, and a conversion into it is not finished".to_owned()
        }
        None => "there is no `index.json` here or in a subdirectory".to_owned(),
    }
}

impl CliError {
    /// Returns the error that an option cannot have its value. The hint says what is accepted.
    pub fn option(
        option: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self::Option {
            option,
            message: message.into(),
            hint: Some(hint.into()),
        }
    }

    fn kind(&self) -> ErrorKind {
        match self {
            Self::Usage { .. }
            | Self::Option { .. }
            | Self::SampleOutOfRange { .. }
            | Self::Scheme { .. }
            | Self::ColumnUnknown { .. }
            | Self::SeveralDatasets { .. }
            | Self::KeyEncoding { .. } => ErrorKind::InvalidInput,
            Self::NoDataset {
                unfinished: Some(Unfinished::Parts),
                ..
            } => ErrorKind::Conflict,
            Self::KeyNotFound { .. } | Self::NoDataset { .. } => ErrorKind::NotFound,
            Self::FileName { .. } | Self::KeyTwice { .. } => ErrorKind::Corrupt,
            Self::IndexDiffers { .. } => ErrorKind::Conflict,
        }
    }

    fn id(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Usage { id, .. } => return id.clone(),
            Self::Option { option, .. } => return Cow::Owned(format!("config-{option}")),
            Self::Scheme { .. } => "url-scheme",
            Self::SampleOutOfRange { .. } => "sample-out-of-range",
            Self::KeyNotFound { .. } => "key-not-found",
            Self::ColumnUnknown { .. } => "column-unknown",
            Self::FileName { source, .. } => source.id(),
            Self::NoDataset {
                unfinished: Some(found @ Unfinished::Parts),
                ..
            } => found.id(),
            Self::NoDataset { .. } => "index-missing",
            Self::IndexDiffers { .. } => "index-exists",
            Self::SeveralDatasets { .. } => "several-datasets",
            Self::KeyEncoding { .. } => "key-encoding",
            Self::KeyTwice { .. } => "key-twice",
        })
    }

    fn object(&self) -> Option<String> {
        match self {
            Self::Usage { object, .. } => object.clone(),
            Self::Option { option, .. } => Some(format!("--{option}")),
            Self::Scheme { location, .. }
            | Self::NoDataset { location, .. }
            | Self::SeveralDatasets { location, .. } => Some(location.clone()),
            Self::SampleOutOfRange { dataset, .. }
            | Self::KeyNotFound { dataset, .. }
            | Self::KeyTwice { dataset, .. } => Some(dataset.clone()),
            Self::ColumnUnknown { object, .. } => Some(object.clone()),
            Self::FileName { sample, .. } => Some(format!("sample {sample}")),
            Self::IndexDiffers { path } => Some(path.clone()),
            Self::KeyEncoding { column, .. } => Some(column.clone()),
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Usage { hint, .. } | Self::Option { hint, .. } => hint.clone(),
            Self::Scheme { .. } => Some("give the path of a local directory".to_owned()),
            Self::SampleOutOfRange { samples: 0, .. } => None,
            Self::SampleOutOfRange { samples, .. } => Some(format!(
                "samples are numbered from 0 to {}, or from -1 backwards",
                samples.saturating_sub(1)
            )),
            Self::KeyNotFound { .. } => {
                Some("name the column that holds keys with --key-column".to_owned())
            }
            Self::ColumnUnknown { known, .. } => {
                Some(format!("its columns are {}", known.join(", ")))
            }
            Self::FileName { .. } => {
                Some("leave out --by-key to name the files by sample number".to_owned())
            }
            Self::NoDataset {
                location,
                unfinished: Some(found),
            } => Some(found.hint(location)),
            Self::NoDataset { .. } => {
                Some("`shardmill index rebuild` makes an index from shards".to_owned())
            }
            Self::SeveralDatasets { names, .. } => {
                Some(format!("name one of them: {}", names.join(", ")))
            }
            Self::KeyTwice { .. } => {
                Some("leave out --by-key to name files by the numbers of the samples".to_owned())
            }
            Self::IndexDiffers { .. } => Some("replace it with --force".to_owned()),
            Self::KeyEncoding { .. } => {
                Some("choose a column of strings or integers with --key-column".to_owned())
            }
        }
    }
}

/// An error of any crate in the form in which it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub kind: ErrorKind,
    pub id: Cow<'static, str>,
    pub object: Option<String>,
    pub message: String,
    pub hint: Option<String>,
}

impl<E: Diagnostic> From<E> for Fault {
    fn from(error: E) -> Self {
        Self {
            kind: error.kind(),
            id: Cow::Borrowed(error.id()),
            object: error.object().map(|object| escape(&object).into_owned()),
            message: chain(&error),
            hint: error.hint().map(|hint| one_line(&hint)),
        }
    }
}

impl From<CliError> for Fault {
    fn from(error: CliError) -> Self {
        Self {
            kind: error.kind(),
            id: error.id(),
            object: error.object().map(|object| escape(&object).into_owned()),
            message: one_line(&error.to_string()),
            hint: error.hint().map(|hint| one_line(&hint)),
        }
    }
}

impl fmt::Display for Fault {
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

/// Joins the messages of an error and of its sources, without repetitions.
fn chain(error: &dyn Error) -> String {
    let mut message = one_line(&error.to_string());
    let mut source = error.source();
    while let Some(cause) = source {
        let text = one_line(&cause.to_string());
        if !text.is_empty() && !message.contains(&text) {
            if !message.is_empty() {
                message.push_str(": ");
            }
            message.push_str(&text);
        }
        source = cause.source();
    }
    message
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
    Fault(Box<Fault>),
    /// The reader of standard output has closed it, as `head` does.
    ClosedPipe,
}

impl<E: Into<Fault>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Fault(Box::new(error.into()))
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
    fn a_chain_is_one_line_and_says_nothing_twice() {
        let fault = Fault::from(Outer(Middle(Inner)));
        assert_eq!(
            fault.to_string(),
            "[parquet-footer]: a\\u{a}\\u{1b}[2Jb: cannot read the footer: page 3 is short: 12 of 20 bytes"
        );
    }

    #[test]
    fn a_hint_follows_a_semicolon() {
        let fault = Fault::from(CliError::option(
            "jobs",
            "`0` is not a number of threads",
            "pass 1 or more",
        ));
        assert_eq!(
            fault.to_string(),
            "[config-jobs]: --jobs: `0` is not a number of threads; pass 1 or more"
        );
        assert_eq!(fault.kind, ErrorKind::InvalidInput);
    }
}
