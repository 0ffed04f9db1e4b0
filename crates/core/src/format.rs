//! The names of the shard formats.

use std::fmt;
use std::str::FromStr;

/// An on-disk shard format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Format {
    /// MosaicML Streaming's binary shards, one file per shard.
    Mds,
    /// JSON lines with a `.meta` file of offsets.
    Json,
    /// Comma-separated values, unquoted, with a `.meta` file of offsets.
    Csv,
    /// Tab-separated values, unquoted, with a `.meta` file of offsets.
    Tsv,
    /// Values with a custom separator, with a `.meta` file of offsets.
    Xsv,
}

impl Format {
    /// All formats, in declaration order.
    pub const ALL: [Self; 5] = [Self::Mds, Self::Json, Self::Csv, Self::Tsv, Self::Xsv];

    /// Returns the name used in `index.json` and as the file extension of a shard.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mds => "mds",
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Tsv => "tsv",
            Self::Xsv => "xsv",
        }
    }

    /// Returns whether a shard consists of two files: data and `.meta`.
    #[must_use]
    pub const fn is_split(self) -> bool {
        !matches!(self, Self::Mds)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
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
        Self::ALL
            .into_iter()
            .find(|format| format.name() == name)
            .ok_or_else(|| ParseFormatError {
                name: name.to_owned(),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for format in Format::ALL {
            assert_eq!(format.name().parse::<Format>(), Ok(format));
        }
        assert!("MDS".parse::<Format>().is_err());
    }
}
