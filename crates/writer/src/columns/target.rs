//! The forms in which a column can be stored.

use std::fmt;
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

/// How a value is encoded as the bytes of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldEncoding {
    /// Bytes, unchanged.
    Bytes,
    /// UTF-8 text.
    Str,
    /// An integer in ASCII digits.
    Int,
    /// JSON.
    Json,
    /// A NumPy file.
    Npy,
    /// One array in webdataset's own tensor format.
    Ten,
}

impl FieldEncoding {
    /// All encodings.
    pub const ALL: [Self; 6] = [
        Self::Bytes,
        Self::Str,
        Self::Int,
        Self::Json,
        Self::Npy,
        Self::Ten,
    ];

    /// Returns the name: `bytes`, `str`, `int`, `json`, `npy` or `ten`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Str => "str",
            Self::Int => "int",
            Self::Json => "json",
            Self::Npy => "npy",
            Self::Ten => "ten",
        }
    }

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

impl fmt::Display for FieldEncoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
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
        Self::ALL
            .into_iter()
            .find(|encoding| encoding.name() == name)
            .ok_or_else(|| ParseFieldEncodingError {
                name: name.to_owned(),
            })
    }
}
