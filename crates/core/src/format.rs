//! The names of the shard formats.

use std::str::FromStr;

use crate::named::named_enum;

/// The key of the metadata of an Arrow field that suggests an MDS encoding (`jpeg`, `png`, `json`, `str`, `bytes`).
pub const ENCODING_KEY: &str = "shardmill:encoding";

named_enum! {
    /// An on-disk shard format.
    pub enum Format {
        /// MosaicML Streaming's binary shards, one file per shard.
        Mds = "mds",
        /// JSON lines with a `.meta` file of offsets.
        Json = "json",
        /// Comma-separated values, unquoted, with a `.meta` file of offsets.
        Csv = "csv",
        /// Tab-separated values, unquoted, with a `.meta` file of offsets.
        Tsv = "tsv",
        /// Values with a custom separator, with a `.meta` file of offsets.
        Xsv = "xsv",
    }
}

impl Format {
    /// Returns whether a shard consists of two files: data and `.meta`.
    #[must_use]
    pub const fn is_split(self) -> bool {
        !matches!(self, Self::Mds)
    }
}

/// A name that is not a known format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown shard format `{}`", crate::escape(name))]
pub struct ParseFormatError {
    /// The name as given.
    pub name: String,
}

impl FromStr for Format {
    type Err = ParseFormatError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::from_name(name).ok_or_else(|| ParseFormatError {
            name: name.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_names_round_trip() {
        for format in Format::ALL {
            assert_eq!(format.name().parse::<Format>(), Ok(format));
        }
        assert!("MDS".parse::<Format>().is_err());
    }
}
