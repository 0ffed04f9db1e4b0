//! Tables: datasets of files that store rows by column, with an index that only shardmill reads.

use std::fmt;

use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use serde_json::{Value, json};
use shardmill_core::{Limits, check_relative_path};
use shardmill_mds::{Digest, FileHashes, FileInfo};

/// The version of the index.
const VERSION: u64 = 1;

/// The error of an encoder of tables.
pub type TableError = Box<dyn std::error::Error + Send + Sync>;

/// Encodes rows as a file of a table. The bytes must depend only on the rows and their division into groups.
///
/// This crate does not know the format of the files, so that programs that only write other formats do not link it.
pub trait EncodeTable: fmt::Debug + Send + Sync {
    /// Encodes a file. Each batch becomes one row group. `row_bytes` is the average size of a row in bytes.
    ///
    /// # Errors
    ///
    /// Returns the error of a batch, or of the format.
    fn encode(
        &self,
        groups: &mut dyn Iterator<Item = Result<RecordBatch, ArrowError>>,
        row_bytes: usize,
    ) -> Result<Vec<u8>, TableError>;
}

/// The name of the format of the files. An index of another one is refused.
const FORMAT: &str = "parquet";

/// The index of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct TableIndex {
    /// The files, in order.
    pub files: Vec<TableFile>,
}

/// A file of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct TableFile {
    /// Its name, length and hashes.
    pub file: FileInfo,
    /// The number of its rows.
    pub rows: u64,
    /// The size of its rows in memory, in bytes.
    pub raw_bytes: u64,
    /// The number of rows of each row group.
    pub row_groups: Vec<u64>,
}

/// Returns whether a text begins like the index of a table. Keys are sorted, and no other index has a top-level `files`.
pub(crate) fn begins_as_table_index(head: &[u8]) -> bool {
    let body = head.trim_ascii_start().strip_prefix(b"{");
    body.is_some_and(|body| body.trim_ascii_start().starts_with(br#""files""#))
}

impl TableIndex {
    /// Returns the index as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        let files: Vec<Value> = self.files.iter().map(TableFile::to_json).collect();
        json!({"files": files, "format": FORMAT, "version": VERSION}).to_string()
    }

    /// Parses an index.
    ///
    /// # Errors
    ///
    /// Returns the reason why the text is not a valid index.
    pub fn parse(json: &[u8], limits: &Limits) -> Result<Self, &'static str> {
        if u64::try_from(json.len()).unwrap_or(u64::MAX) > limits.index_bytes {
            return Err("it is longer than the limit index-bytes");
        }
        let value: Value = serde_json::from_slice(json).map_err(|_| "it is not valid JSON")?;
        if value["version"].as_u64() != Some(VERSION) {
            return Err("its version is missing or unknown");
        }
        if value["format"] != FORMAT {
            return Err("its format is missing or unknown");
        }
        let files = value["files"].as_array().ok_or("it lists no files")?;
        let files = files.iter().map(TableFile::parse).collect::<Option<_>>();
        Ok(Self {
            files: files.ok_or("a file has no name, length, hash or number of rows")?,
        })
    }

    /// Returns the number of rows in all files.
    #[must_use]
    pub fn rows(&self) -> u64 {
        let rows = self.files.iter().map(|file| file.rows);
        rows.fold(0, u64::saturating_add)
    }
}

impl TableFile {
    fn to_json(&self) -> Value {
        let hashes = self.file.hashes.iter();
        let hashes = hashes.map(|digest| (digest.algo().to_string(), digest.to_string()));
        json!({
            "bytes": self.file.bytes,
            "hashes": hashes.collect::<std::collections::BTreeMap<_, _>>(),
            "name": &*self.file.basename,
            "raw_bytes": self.raw_bytes,
            "row_groups": self.row_groups,
            "rows": self.rows,
        })
    }

    fn parse(value: &Value) -> Option<Self> {
        let number = |key: &str| value[key].as_u64();
        let name = value["name"].as_str()?;
        check_relative_path(name).ok()?;
        let hashes = value["hashes"].as_object()?.iter();
        let hashes =
            hashes.map(|(algo, hex)| Digest::parse(algo.parse().ok()?, hex.as_str()?).ok());
        let hashes: Option<FileHashes> = hashes.collect();
        let groups = value["row_groups"].as_array()?.iter().map(Value::as_u64);
        Some(Self {
            file: FileInfo {
                basename: name.into(),
                bytes: number("bytes")?,
                hashes: hashes?,
            },
            rows: number("rows")?,
            raw_bytes: number("raw_bytes")?,
            row_groups: groups.collect::<Option<_>>()?,
        })
    }
}
