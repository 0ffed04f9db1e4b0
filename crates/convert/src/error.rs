//! The errors of conversions.

use shardmill_core::{Diagnostic, ErrorKind, escape};
use shardmill_dataset::DatasetError;
use shardmill_mds::MdsError;
use shardmill_source::SourceError;
use shardmill_storage::StorageError;
use shardmill_tokenize::TokenizeError;
use shardmill_webdataset::WebdatasetError;
use shardmill_writer::WriteError;

shardmill_core::problems! {
    /// What is wrong with a source or a destination, if its id is listed here.
    pub(crate) enum ConvertProblem {
        /// The source has no columns: an empty file of a format without a schema.
        NoColumns => (InvalidInput, "config-no-columns"),
        /// Columns have nulls, and no option says what to do with them.
        Nulls => (Corrupt, "value-null"),
        /// The destination holds no parts to commit.
        NoParts => (InvalidInput, "parts-none"),
        /// The part to remove does not exist.
        NoSuchPart => (InvalidInput, "part-missing"),
        /// A manifest of a part cannot be read.
        Manifest => (Corrupt, "parts-manifest", "write the part again"),
    }
}

impl ConvertProblem {
    /// Builds the error with this problem. `hint` replaces the hint of the problem.
    pub(crate) fn at(
        self,
        object: &str,
        reason: impl Into<String>,
        hint: Option<String>,
    ) -> ConvertError {
        let (kind, id, own) = self.facts();
        ConvertError::Input {
            kind,
            id,
            object: escape(object).into_owned(),
            reason: reason.into(),
            hint: hint.or_else(|| own.map(str::to_owned)),
        }
    }
}

/// The error of a conversion.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages explain the fields")]
pub enum ConvertError {
    /// An option, a column, the source or the destination does not allow the conversion.
    #[error("{reason}")]
    Input {
        kind: ErrorKind,
        id: &'static str,
        /// What the error is about, escaped: an option, a column, a file or a location.
        object: String,
        reason: String,
        hint: Option<String>,
    },
    /// No shard can have this configuration.
    #[error(transparent)]
    Config(#[from] MdsError),
    /// The source cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The tokenizer cannot be used.
    #[error(transparent)]
    Tokenize(#[from] TokenizeError),
    /// A dataset cannot be read.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// The index format of another reader cannot express the dataset.
    #[error(transparent)]
    Sidecar(#[from] WebdatasetError),
    /// Encoding or writing failed.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A storage operation failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl ConvertError {
    /// Builds the error of an option that is invalid or cannot be used here. `option` is its name without dashes.
    pub(crate) fn option(option: &str, reason: impl Into<String>) -> Self {
        Self::Input {
            kind: ErrorKind::InvalidInput,
            id: option_id(option),
            object: format!("--{option}"),
            reason: reason.into(),
            hint: None,
        }
    }

    pub(crate) fn option_hint(
        option: &str,
        reason: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        let mut error = Self::option(option, reason);
        if let Self::Input { hint, .. } = &mut error {
            *hint = Some(advice.into());
        }
        error
    }

    /// Builds the error of an encoding that a column cannot have.
    pub(crate) fn encoding(
        column: &str,
        id: &'static str,
        reason: String,
        hint: Option<String>,
    ) -> Self {
        Self::Input {
            kind: ErrorKind::InvalidInput,
            id,
            object: format!("column {}", escape(column)),
            reason,
            hint,
        }
    }

    /// Builds the error of a destination in a state that the operation cannot use.
    pub(crate) fn conflict(
        dest: impl AsRef<str>,
        id: &'static str,
        reason: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self::Input {
            kind: ErrorKind::Conflict,
            id,
            object: escape(dest.as_ref()).into_owned(),
            reason: reason.into(),
            hint: Some(hint.into()),
        }
    }

    /// Returns whether a run that failed with this error can be resumed: the cause is outside the data and the
    /// configuration.
    pub(crate) fn is_resumable(&self) -> bool {
        matches!(
            self.kind(),
            ErrorKind::Storage
                | ErrorKind::Resource
                | ErrorKind::Permission
                | ErrorKind::Interrupted
        )
    }

    fn inner(&self) -> Option<&dyn Diagnostic> {
        match self {
            Self::Config(error) => Some(error),
            Self::Source(error) => Some(error),
            Self::Tokenize(error) => Some(error),
            Self::Dataset(error) => Some(error),
            Self::Sidecar(error) => Some(error),
            Self::Write(error) => Some(error),
            Self::Storage(error) => Some(error),
            Self::Input { .. } => None,
        }
    }
}

impl Diagnostic for ConvertError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Input { kind, .. } => *kind,
            _ => self.inner().map_or(ErrorKind::Bug, Diagnostic::kind),
        }
    }

    fn id(&self) -> &'static str {
        match self {
            Self::Input { id, .. } => id,
            _ => self.inner().map_or("internal", Diagnostic::id),
        }
    }

    fn object(&self) -> Option<String> {
        match self {
            Self::Input { object, .. } => Some(object.clone()),
            _ => self.inner().and_then(Diagnostic::object),
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Input { hint, .. } => hint.clone(),
            _ => self.inner().and_then(Diagnostic::hint),
        }
    }
}

/// Returns the error id of an option. Ids are static so that they can be listed.
fn option_id(option: &str) -> &'static str {
    match option {
        "split" => "config-split",
        "split-key" => "config-split-key",
        "null-as" => "config-null-as",
        "compression" => "config-compression",
        "row-group-size" => "config-row-group-size",
        "keep-row-groups" => "config-keep-row-groups",
        "nulls" => "config-nulls",
        "lengths" => "config-lengths",
        "text" => "config-text",
        "tokens" => "config-tokens",
        "column" => "config-column",
        "sql" => "config-sql",
        "memory-limit" => "config-memory-limit",
        "jobs" => "config-jobs",
        "key-column" => "config-key",
        "index-for" => "config-index-for",
        "group" => "config-group",
        "schema" => "config-schema",
        "part" => "config-part",
        "csv-delimiter" => "config-csv-delimiter",
        "csv-null" => "config-csv-null",
        "csv-no-header" => "config-csv-no-header",
        "infer-rows" => "config-infer-rows",
        "variable" => "config-variable",
        "window" => "config-window",
        "raw-values" => "config-raw-values",
        "follow-links" => "config-follow-links",
        "include" => "config-include",
        "exclude" => "config-exclude",
        _ => "config-option",
    }
}

/// Builds the error of a source without columns.
pub(crate) fn no_columns(source: &str) -> ConvertError {
    let reason = "there are no columns, because there is no data";
    ConvertProblem::NoColumns.at(source, reason, None)
}
