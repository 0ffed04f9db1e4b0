//! The bounds on what a file may demand.

use std::collections::BTreeSet;

/// Limits on what a file may request before shardmill rejects it as invalid.
///
/// Every length read from a file is compared with one of these limits, and with the number of remaining bytes, before
/// memory is allocated. The defaults are far above what real datasets need. Each limit can be raised.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Maximum bytes of an `index.json`.
    pub index_bytes: u64,
    /// Maximum nesting depth of parsed JSON.
    pub json_depth: u64,
    /// Maximum bytes of a string in an index.
    pub string_bytes: u64,
    /// Maximum number of shards in one index.
    pub shards: u64,
    /// Maximum number of columns in one shard.
    pub columns: u64,
    /// Maximum bytes of one raw or compressed shard.
    pub shard_bytes: u64,
    /// Maximum bytes of one sample.
    pub sample_bytes: u64,
    /// Maximum bytes of a zstd window.
    pub zstd_window_bytes: u64,
    /// What a compressed file without a declared raw size may expand to.
    pub expansion: ExpansionLimits,
    /// Maximum number of dimensions of an array.
    pub array_dims: u64,
    /// Limits of Parquet files.
    pub parquet: ParquetLimits,
    /// Limits of tar shards.
    pub tar: TarLimits,
    /// The encodings of MDS that the program decodes itself. An index may then also name encodings outside the format.
    /// `None` if the program decodes none.
    pub program_encodings: Option<BTreeSet<String>>,
}

/// What a compressed file without a declared raw size may expand to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpansionLimits {
    /// Maximum raw bytes of the file.
    pub bytes: u64,
    /// Maximum raw bytes per compressed byte.
    pub ratio: u64,
}

/// Limits of Parquet files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParquetLimits {
    /// Maximum bytes of the footer. A million column chunks take about 200 MB.
    pub footer_bytes: u64,
    /// Maximum bytes of a page, before and after decompression.
    pub page_bytes: u64,
}

/// Limits of tar shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TarLimits {
    /// Maximum bytes of an extension header of a member (PAX records or a long GNU name).
    pub extension_bytes: u64,
    /// Maximum bytes of the name of a member.
    pub name_bytes: u64,
    /// Maximum number of fields of one sample.
    pub fields: u64,
}

impl Default for Limits {
    fn default() -> Self {
        const MIB: u64 = 1 << 20;
        const GIB: u64 = 1 << 30;
        Self {
            index_bytes: 2 * GIB,
            json_depth: 32,
            string_bytes: 64 << 10,
            shards: 16_000_000,
            columns: 4096,
            shard_bytes: 16 * GIB,
            sample_bytes: GIB,
            zstd_window_bytes: 128 * MIB,
            expansion: ExpansionLimits {
                bytes: GIB,
                ratio: 1000,
            },
            array_dims: 32,
            parquet: ParquetLimits {
                footer_bytes: 256 * MIB,
                page_bytes: GIB,
            },
            tar: TarLimits {
                extension_bytes: MIB,
                name_bytes: 4096,
                fields: 1024,
            },
            program_encodings: None,
        }
    }
}

impl Limits {
    /// The names accepted by [`Limits::set`], which are also those in [`LimitExceeded::name`].
    pub const NAMES: [&'static str; 16] = [
        "index-bytes",
        "json-depth",
        "string-bytes",
        "shards",
        "columns",
        "shard-bytes",
        "sample-bytes",
        "zstd-window-bytes",
        "expansion-bytes",
        "expansion-ratio",
        "array-dims",
        "parquet-footer-bytes",
        "parquet-page-bytes",
        "tar-extension-bytes",
        "tar-name-bytes",
        "tar-fields",
    ];

    fn slot(&mut self, name: &str) -> Option<&mut u64> {
        Some(match name {
            "index-bytes" => &mut self.index_bytes,
            "json-depth" => &mut self.json_depth,
            "string-bytes" => &mut self.string_bytes,
            "shards" => &mut self.shards,
            "columns" => &mut self.columns,
            "shard-bytes" => &mut self.shard_bytes,
            "sample-bytes" => &mut self.sample_bytes,
            "zstd-window-bytes" => &mut self.zstd_window_bytes,
            "expansion-bytes" => &mut self.expansion.bytes,
            "expansion-ratio" => &mut self.expansion.ratio,
            "array-dims" => &mut self.array_dims,
            "parquet-footer-bytes" => &mut self.parquet.footer_bytes,
            "parquet-page-bytes" => &mut self.parquet.page_bytes,
            "tar-extension-bytes" => &mut self.tar.extension_bytes,
            "tar-name-bytes" => &mut self.tar.name_bytes,
            "tar-fields" => &mut self.tar.fields,
            _ => return None,
        })
    }

    /// Sets the limit called `name`. Returns whether it exists.
    #[must_use]
    pub fn set(&mut self, name: &str, value: u64) -> bool {
        match self.slot(name) {
            Some(slot) => {
                *slot = value;
                true
            }
            None => false,
        }
    }

    /// Checks `value` against a limit.
    ///
    /// # Errors
    ///
    /// [`LimitExceeded`] when `value > limit`.
    pub const fn check(name: &'static str, value: u64, limit: u64) -> Result<(), LimitExceeded> {
        if value > limit {
            return Err(LimitExceeded { name, value, limit });
        }
        Ok(())
    }
}

/// A file exceeds one of the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} is {value}, above the limit of {limit}")]
pub struct LimitExceeded {
    /// The name of the limit, as in [`Limits::NAMES`].
    pub name: &'static str,
    /// The value in the file.
    pub value: u64,
    /// The limit.
    pub limit: u64,
}

impl LimitExceeded {
    /// Returns the stable error id, such as `limit-shards`.
    #[must_use]
    pub fn id(&self) -> &'static str {
        match self.name {
            "index-bytes" => "limit-index-bytes",
            "json-depth" => "limit-json-depth",
            "string-bytes" => "limit-string-bytes",
            "shards" => "limit-shards",
            "columns" => "limit-columns",
            "shard-bytes" => "limit-shard-bytes",
            "sample-bytes" => "limit-sample-bytes",
            "zstd-window-bytes" => "limit-window",
            "expansion-bytes" | "expansion-ratio" => "limit-expansion",
            "array-dims" => "limit-array-dims",
            "parquet-footer-bytes" | "parquet-page-bytes" => "parquet-limit",
            "tar-extension-bytes" => "limit-pax",
            "tar-name-bytes" => "limit-tar-name",
            "tar-fields" => "limit-fields",
            _ => "limit",
        }
    }

    /// Returns what the user can do about it.
    #[must_use]
    pub fn hint(&self) -> String {
        format!(
            "if the file is to be trusted, pass --safety-limit {}={}",
            self.name, self.value
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_can_be_set_and_has_an_id() {
        let mut limits = Limits::default();
        for name in Limits::NAMES {
            assert!(limits.set(name, 7), "{name}");
            assert_ne!(
                LimitExceeded {
                    name,
                    value: 1,
                    limit: 0
                }
                .id(),
                "limit"
            );
        }
        assert!(!limits.set("no-such-limit", 7));
        assert_eq!(limits.sample_bytes, 7);
    }

    #[test]
    fn value_at_the_limit_passes() {
        assert_eq!(Limits::check("shards", 5, 5), Ok(()));
        let error = Limits::check("shards", 6, 5).unwrap_err();
        assert_eq!(error.to_string(), "shards is 6, above the limit of 5");
        assert_eq!(
            error.hint(),
            "if the file is to be trusted, pass --safety-limit shards=6"
        );
    }
}
