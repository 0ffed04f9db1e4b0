//! The errors of conversions.

use shardmill_core::{Error, ErrorKind};

shardmill_core::problems! {
    /// What is wrong with a source or a destination, if its id is listed here.
    pub(crate) enum ConvertProblem -> Error {
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

/// Builds the error of an encoding that a column cannot have.
pub(crate) fn encoding_error(column: &str, id: &'static str, reason: String) -> Error {
    Error::usage(id, reason).about(format!("column {column}"))
}

/// Builds the error of an option whose errors have no id of their own.
pub(crate) fn other_option(option: &str, reason: impl Into<String>) -> Error {
    Error::usage("config-option", reason).about(format!("--{option}"))
}

/// Builds the error of a destination in a state that the operation cannot use.
pub(crate) fn conflict(
    dest: impl AsRef<str>,
    id: &'static str,
    reason: impl Into<String>,
    hint: impl Into<String>,
) -> Error {
    Error::new(ErrorKind::Conflict, id, reason)
        .about(dest)
        .with_hint(hint)
}

/// Returns whether a run that failed with this error can be resumed: the cause is outside the data and the
/// configuration.
pub(crate) fn is_resumable(error: &Error) -> bool {
    use ErrorKind::{Interrupted, Permission, Resource, Storage};
    matches!(error.kind(), Storage | Resource | Permission | Interrupted)
}

/// Builds the error of a source without columns.
pub(crate) fn no_columns(source: &str) -> Error {
    ConvertProblem::NoColumns.at(source, "there are no columns, because there is no data")
}
