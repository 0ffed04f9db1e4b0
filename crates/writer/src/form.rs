//! The form of the shards of a dataset: a MosaicML Streaming format, or WebDataset.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use shardmill_core::{Format, INDEX_NAME, TABLE_INDEX_NAME, check_relative_path, escape};
use shardmill_mds::{HashAlgo, ShardConfig};
use shardmill_webdataset::{FieldSet, Profile, TarCompression};

use crate::entry::{DatasetIndex, IndexEntry};
use crate::part_names::{is_digits, name_in, part_of, without_part};
use crate::table::{EncodeTable, TableIndex};

/// A shard format that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardFormat {
    /// MDS, the binary format of MosaicML Streaming. [`SampleWriter`](crate::SampleWriter) also writes its text formats.
    Mds,
    /// Tar files of samples.
    Webdataset,
    /// Parquet files.
    Parquet,
}

impl ShardFormat {
    /// Returns the name of the format, as on the command line and in provenance.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mds => Format::Mds.name(),
            Self::Webdataset => "webdataset",
            Self::Parquet => "parquet",
        }
    }

    /// Returns whether the format has files that other programs read, so that its index and provenance are hidden.
    #[must_use]
    pub const fn is_table(self) -> bool {
        matches!(self, Self::Parquet)
    }

    /// Returns the name of the file that holds the index.
    #[must_use]
    pub const fn index_name(self) -> &'static str {
        match self {
            Self::Mds | Self::Webdataset => INDEX_NAME,
            Self::Parquet => TABLE_INDEX_NAME,
        }
    }

    /// Creates an index of these entries. Entries of another format are left out.
    pub(crate) fn index(self, entries: impl Iterator<Item = IndexEntry>) -> DatasetIndex {
        let (mut streaming, mut tar, mut files) = (Vec::new(), Vec::new(), Vec::new());
        for entry in entries {
            match entry {
                IndexEntry::Streaming(entry) => streaming.push(entry),
                IndexEntry::Tar(entry) => tar.push(entry),
                IndexEntry::Table(entry) => files.push(entry),
            }
        }
        match self {
            Self::Mds => DatasetIndex::Streaming(shardmill_mds::Index { shards: streaming }),
            Self::Webdataset => DatasetIndex::Tar(shardmill_webdataset::Index { shards: tar }),
            Self::Parquet => DatasetIndex::Table(TableIndex { files }),
        }
    }
}

impl fmt::Display for ShardFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The settings that all shards of one dataset share.
#[derive(Clone, Debug)]
pub enum ShardForm {
    /// MosaicML Streaming shards.
    Streaming(Arc<ShardConfig>),
    /// Tar shards.
    Tar(Arc<TarForm>),
    /// Files of tables.
    Table(Arc<TableForm>),
}

/// The settings that all tar shards of one dataset share.
#[derive(Clone, Debug)]
pub struct TarForm {
    /// The pattern of the shard names.
    pub pattern: ShardPattern,
    /// The rules for headers and member names.
    pub profile: Profile,
    /// The fields of the samples, sorted by code point.
    pub fields: Arc<FieldSet>,
    /// The compression of whole shards.
    pub compression: Option<TarCompression>,
    /// The hashes in the index.
    pub hashes: Vec<HashAlgo>,
    /// The maximum size of an uncompressed shard in bytes.
    pub size_limit: Option<u64>,
}

/// The settings that all files of one table share.
#[derive(Clone, Debug)]
pub struct TableForm {
    /// Encodes rows as a file.
    pub encoder: Arc<dyn EncodeTable>,
    /// The name of the compression.
    pub compression: Option<String>,
    /// The hashes in the index.
    pub hashes: Vec<HashAlgo>,
    /// The maximum size of the rows of a file in bytes.
    pub size_limit: Option<u64>,
    /// The maximum size of the rows of a row group in bytes.
    pub row_group_bytes: u64,
}

impl ShardForm {
    /// Returns the format.
    #[must_use]
    pub fn format(&self) -> ShardFormat {
        match self {
            Self::Streaming(_) => ShardFormat::Mds,
            Self::Tar(_) => ShardFormat::Webdataset,
            Self::Table(_) => ShardFormat::Parquet,
        }
    }

    /// Returns the hashes in the index.
    #[must_use]
    pub fn hashes(&self) -> &[HashAlgo] {
        match self {
            Self::Streaming(config) => &config.hashes,
            Self::Tar(form) => &form.hashes,
            Self::Table(form) => &form.hashes,
        }
    }

    /// Returns the maximum size of an uncompressed shard in bytes.
    #[must_use]
    pub fn size_limit(&self) -> Option<u64> {
        match self {
            Self::Streaming(config) => config.size_limit,
            Self::Tar(form) => form.size_limit,
            Self::Table(form) => form.size_limit,
        }
    }

    /// Creates an index of these entries. Entries of another format are left out.
    #[must_use]
    pub fn index(&self, entries: impl Iterator<Item = IndexEntry>) -> DatasetIndex {
        self.format().index(entries)
    }

    /// Returns the start of the shard file names, before the number.
    #[must_use]
    pub fn prefix(&self) -> &str {
        match self {
            Self::Streaming(_) => STREAMING_PREFIX,
            Self::Tar(form) => form.pattern.prefix(),
            Self::Table(_) => TABLE_PREFIX,
        }
    }

    /// Returns the name of a file with the number of a generation: `shard.00003-00012.mds`.
    #[must_use]
    pub fn numbered(&self, name: &str, number: u64) -> String {
        name_in(name, self.prefix(), number, None)
    }

    /// Returns the largest number of a part or a generation in these file names; 0 for names without one. Returns `None`
    /// if none of the names can be one of this form.
    #[must_use]
    pub fn last_number<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Option<u64> {
        let number_of = |name: &str| {
            name.strip_prefix(self.prefix())?;
            Some(part_of(name, self.prefix()).unwrap_or(0))
        };
        names.into_iter().filter_map(number_of).max()
    }

    /// Returns the name of the compression.
    #[must_use]
    pub fn compression(&self) -> Option<String> {
        match self {
            Self::Streaming(config) => config.compression.map(|name| name.to_string()),
            Self::Tar(form) => form.compression.map(|name| name.to_string()),
            Self::Table(form) => form.compression.clone(),
        }
    }
}

impl From<Arc<ShardConfig>> for ShardForm {
    fn from(config: Arc<ShardConfig>) -> Self {
        Self::Streaming(config)
    }
}

/// The start of the file names of MosaicML Streaming shards.
pub(crate) const STREAMING_PREFIX: &str = "shard.";

/// The start of the file names of tables.
const TABLE_PREFIX: &str = "shard-";

/// Returns the name of a file of a table.
pub(crate) fn table_file_name(shard: u64) -> String {
    format!("{TABLE_PREFIX}{shard:06}.parquet")
}

/// Returns whether a name is that of a file of a table.
#[must_use]
pub fn is_table_file_name(name: &str) -> bool {
    let number = name.strip_prefix(TABLE_PREFIX).map(without_part);
    let number = number.and_then(|rest| rest.strip_suffix(".parquet"));
    number.is_some_and(|number| (6..=20).contains(&number.len()) && is_digits(number))
}

/// The name pattern of tar shards: a name with a placeholder for the number, such as `shard-%06d.tar`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardPattern {
    before: String,
    digits: usize,
    after: String,
}

/// The maximum number of digits; more than any number of shards needs.
const MAX_DIGITS: usize = 18;

impl ShardPattern {
    /// Returns the name of a shard, with the suffix of the compression if there is one.
    #[must_use]
    pub fn name(&self, shard: u64, compression: Option<TarCompression>) -> String {
        let ending = compression.map_or("", TarCompression::ending);
        let digits = self.digits;
        format!("{}{shard:0digits$}{}{ending}", self.before, self.after)
    }

    /// Returns the start of the names, before the number.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.before
    }

    /// Returns whether a file name fits the pattern: a shard, compressed or not, or an offset table. A number of a part or a
    /// generation may precede that of the shard.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let raw = [".gz", ".zst", ".idx"]
            .iter()
            .find_map(|ending| name.strip_suffix(ending))
            .unwrap_or(name);
        let is_number = |rest: &str| {
            rest.strip_suffix(self.after.as_str())
                .is_some_and(|number| {
                    number.len() >= self.digits.max(1) && number.len() <= 20 && is_digits(number)
                })
        };
        raw.strip_prefix(self.before.as_str())
            .is_some_and(|rest| is_number(rest) || is_number(without_part(rest)))
    }
}

impl Default for ShardPattern {
    fn default() -> Self {
        Self {
            before: "shard-".to_owned(),
            digits: 6,
            after: ".tar".to_owned(),
        }
    }
}

impl fmt::Display for ShardPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            before,
            digits,
            after,
        } = self;
        let (before, after) = (before.replace('%', "%%"), after.replace('%', "%%"));
        match digits {
            0 => write!(f, "{before}%d{after}"),
            _ => write!(f, "{before}%0{digits}d{after}"),
        }
    }
}

/// The error of an invalid pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` {reason}", escape(text))]
pub struct PatternError {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl FromStr for ShardPattern {
    type Err = PatternError;

    /// Parses `NAME%06dNAME.tar`. `%d` is a number without leading zeros, `%%` is a percent sign.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = |reason| PatternError {
            text: text.to_owned(),
            reason,
        };
        let mut texts = [String::new(), String::new()];
        let mut digits = None;
        let mut rest = text;
        while let Some((plain, after)) = rest.split_once('%') {
            let index = usize::from(digits.is_some());
            if let Some(text) = texts.get_mut(index) {
                text.push_str(plain);
            }
            if let Some(after) = after.strip_prefix('%') {
                if let Some(text) = texts.get_mut(index) {
                    text.push('%');
                }
                rest = after;
                continue;
            }
            let (width, after) = after
                .split_once('d')
                .ok_or_else(|| error("has a `%` that is neither a number (`%06d`) nor `%%`"))?;
            let width = match width {
                "" => 0,
                _ => width
                    .strip_prefix('0')
                    .and_then(|width| width.parse().ok())
                    .filter(|width| (1..=MAX_DIGITS).contains(width))
                    .ok_or_else(|| error("has a `%` that is neither a number (`%06d`) nor `%%`"))?,
            };
            if digits.replace(width).is_some() {
                return Err(error("has two places for the number"));
            }
            rest = after;
        }
        let Some(digits) = digits else {
            return Err(error("has no place for the number, such as `%06d`"));
        };
        let [before, mut after] = texts;
        after.push_str(rest);
        let pattern = Self {
            before,
            digits,
            after,
        };
        if !pattern.after.ends_with(".tar") {
            return Err(error("does not end in `.tar`"));
        }
        if text.contains('/') || pattern.before.starts_with('.') {
            return Err(error("names a file in another folder, or a hidden one"));
        }
        if check_relative_path(&pattern.name(0, None)).is_err() {
            return Err(error("is not the name of a file"));
        }
        Ok(pattern)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shard_pattern_follows_webdataset_syntax() {
        for (text, name) in [
            ("shard-%06d.tar", "shard-000007.tar"),
            ("%d.tar", "7.tar"),
            ("a%%b-%03d-x.tar", "a%b-007-x.tar"),
        ] {
            let pattern: ShardPattern = text.parse().unwrap();
            assert_eq!(pattern.name(7, None), name);
            assert_eq!(pattern.to_string(), text);
            assert!(pattern.matches(name) && pattern.matches(&format!("{name}.idx")));
            let zstd = TarCompression::Zstd { level: 3 };
            assert!(pattern.matches(&pattern.name(123_456_789, Some(zstd))));
        }
        assert_eq!(ShardPattern::default(), "shard-%06d.tar".parse().unwrap());
        for text in [
            "shard.tar",
            "%06d",
            "%06d.zip",
            "%6d.tar",
            "%x.tar",
            "%06d-%06d.tar",
            "a/%06d.tar",
            ".%06d.tar",
            "%099d.tar",
            "%0d.tar",
            "\u{1}%d.tar",
        ] {
            assert!(text.parse::<ShardPattern>().is_err(), "{text}");
        }
        let pattern = ShardPattern::default();
        for name in [
            "shard-00001.tar",
            "shard-x.tar",
            "shard-000001.zip",
            "x-000001.tar",
        ] {
            assert!(!pattern.matches(name), "{name}");
        }
    }
}
