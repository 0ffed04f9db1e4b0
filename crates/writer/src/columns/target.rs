//! The forms in which a column can be stored.

use std::str::FromStr;

use arrow::datatypes::DataType;
use shardmill_core::escape;
use shardmill_mds::{Encoding, TextEncoding};

/// The form in which a column is stored.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// A value of an MDS encoding.
    Mds(Encoding),
    /// A JSON value in a JSON line.
    Json(TextEncoding),
    /// Plain text between separators.
    Xsv(TextEncoding),
    /// A field of a WebDataset sample.
    Field(FieldEncoding),
    /// A column of a table, of this type.
    Table(DataType),
}

impl Target {
    /// Returns the name of the encoding, as in an index.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Mds(encoding) => encoding.to_string(),
            Self::Json(encoding) | Self::Xsv(encoding) => encoding.to_string(),
            Self::Field(encoding) => encoding.to_string(),
            Self::Table(data_type) => data_type.to_string(),
        }
    }
}

shardmill_core::named_enum! {
    /// How a value is encoded as the bytes of a field.
    pub enum FieldEncoding {
        /// Bytes, unchanged.
        Bytes = "bytes",
        /// UTF-8 text.
        Str = "str",
        /// An integer in ASCII digits.
        Int = "int",
        /// JSON.
        Json = "json",
        /// A NumPy file.
        Npy = "npy",
        /// One array in webdataset's own tensor format.
        Ten = "ten",
    }
}

impl FieldEncoding {
    /// Returns the extension by which readers recognise the encoding.
    pub(super) const fn extension(self) -> Option<&'static str> {
        match self {
            Self::Bytes => None,
            Self::Str => Some("txt"),
            Self::Int => Some("cls"),
            Self::Json => Some("json"),
            Self::Npy => Some("npy"),
            Self::Ten => Some("ten"),
        }
    }
}

/// The error of an unknown encoding name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown encoding `{}`", escape(name))]
pub struct ParseFieldEncodingError {
    /// The name as given.
    pub name: String,
}

impl FromStr for FieldEncoding {
    type Err = ParseFieldEncodingError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::from_name(name).ok_or_else(|| ParseFieldEncodingError {
            name: name.to_owned(),
        })
    }
}
