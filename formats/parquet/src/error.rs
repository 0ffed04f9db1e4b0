//! The error of this crate.

use arrow::error::ArrowError;
use parquet::errors::ParquetError;
use shardmill_core::{Diagnostic, ErrorKind};

/// The error of encoding a Parquet file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages explain the fields")]
pub enum ParquetEncodeError {
    /// Parquet cannot store the type of a column.
    #[error("Parquet cannot store the type {data_type}")]
    Type {
        data_type: String,
        #[source]
        source: ParquetError,
    },
    /// Parquet does not have this compression.
    #[error("Parquet has no compression {name}")]
    Compression { name: String },
    /// The rows of a row group could not be combined.
    #[error("the rows of a row group could not be combined")]
    Rows(#[source] ArrowError),
    /// The file could not be encoded.
    #[error("the file could not be encoded")]
    File(#[source] ParquetError),
}

impl Diagnostic for ParquetEncodeError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Type { .. } | Self::Rows(_) | Self::File(_) => ErrorKind::Unsupported,
            Self::Compression { .. } => ErrorKind::InvalidInput,
        }
    }

    fn id(&self) -> &'static str {
        match self {
            Self::Type { .. } => "type-unsupported",
            Self::Compression { .. } => "config-compression",
            Self::Rows(_) | Self::File(_) => "parquet-encode",
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Type { .. } => Some("convert it first, with CAST in an expression".to_owned()),
            Self::Compression { .. } => Some("choose zstd, gz, br, snappy or none".to_owned()),
            Self::Rows(_) | Self::File(_) => None,
        }
    }
}
