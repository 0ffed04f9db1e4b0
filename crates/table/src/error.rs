//! The error of this crate.

use shardmill_core::Error;
use shardmill_parquet::{FieldsProblem, FooterProblem};

shardmill_core::problems! {
    /// A problem with a file of a table.
    pub(crate) enum Problem -> Error {
        Truncated => (Corrupt, "parquet-truncated"),
        Encrypted => (Unsupported, "parquet-encrypted"),
        Footer => (Corrupt, "parquet-footer"),
        Limit => (Corrupt, "parquet-limit", "raise the limit"),
        Corrupt => (Corrupt, "parquet-corrupt"),
        Type => (Unsupported, "type-unsupported"),
        Drift => (
            Corrupt,
            "table-drift",
            "choose columns that all files have with the same type, or convert the table"
        ),
        Columns => (InvalidInput, "table-columns", "name columns of the table"),
        Delta => (InvalidInput, "table-delta", "open it with the format `delta`"),
        Partition => (InvalidInput, "source-partition"),
        List => (Corrupt, "table-list", "remove the file; it is written again"),
    }
}

/// Builds the error for a footer that cannot be used.
pub(crate) fn footer(file: &str, problem: &FooterProblem) -> Error {
    let of = match problem {
        FooterProblem::Short(_) | FooterProblem::Magic => Problem::Truncated,
        FooterProblem::Encrypted => Problem::Encrypted,
        FooterProblem::Large(_) => Problem::Limit,
        FooterProblem::Damaged(_) => Problem::Footer,
    };
    of.at(file, problem.to_string())
}

/// Builds the error for columns that cannot be read.
pub(crate) fn fields(file: &str, problem: &FieldsProblem) -> Error {
    let of = match problem {
        FieldsProblem::Unsupported { .. } => Problem::Type,
        FieldsProblem::Repeated(_) | FieldsProblem::Damaged(_) => Problem::Footer,
    };
    of.at(file, problem.to_string())
}

/// Names the ways to read a column with nulls in the error of a value that cannot be encoded as that of a sample.
pub(crate) fn value(error: impl Into<Error>) -> Error {
    let error = error.into();
    match error.id() {
        "value-null" => error.with_hint(
            "choose other columns, or convert the table with shardmill convert --nulls mask",
        ),
        _ => error,
    }
}
