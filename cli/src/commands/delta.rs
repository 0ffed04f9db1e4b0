//! The details of a Delta table that `inspect` shows in addition to the columns.

use serde::Serialize;
use shardmill_source::{DeltaProtocol, DeltaSummary, SourceDescription};

use crate::output::{Table, bytes, count, many};

/// The upper bounds of the file size classes. Larger files are in a further class.
const STEPS: [u64; 6] = [64 << 10, 1 << 20, 16 << 20, 128 << 20, 512 << 20, 1 << 30];

#[derive(Serialize)]
pub struct DeltaTable<'a> {
    version: u64,
    timestamp: Option<String>,
    earliest_version: Option<u64>,
    latest_version: Option<u64>,
    id: &'a str,
    name: Option<&'a str>,
    #[serde(flatten)]
    protocol: &'a DeltaProtocol,
    partition_columns: &'a [String],
    /// The number of rows in the files, including deleted ones.
    stored_rows: u64,
    deleted_rows: u64,
    files_with_deletions: u64,
    file_sizes: Vec<FileSizes>,
}

/// The files in one range of sizes.
#[derive(Serialize)]
struct FileSizes {
    /// The upper bound of the size, exclusive. `None` for the largest class.
    below: Option<u64>,
    files: u64,
    bytes: u64,
}

impl<'a> DeltaTable<'a> {
    pub fn of(delta: &'a DeltaSummary, description: &SourceDescription) -> Self {
        let mut sizes: Vec<FileSizes> = STEPS
            .iter()
            .map(|below| Some(*below))
            .chain([None])
            .map(|below| FileSizes {
                below,
                files: 0,
                bytes: 0,
            })
            .collect();
        for file in &description.files {
            let fits = |size: &&mut FileSizes| size.below.is_none_or(|below| file.bytes < below);
            if let Some(size) = sizes.iter_mut().find(fits) {
                size.files += 1;
                size.bytes = size.bytes.saturating_add(file.bytes);
            }
        }
        Self {
            version: delta.version,
            timestamp: delta.timestamp(),
            earliest_version: delta.earliest_version,
            latest_version: delta.latest_version,
            id: &delta.id,
            name: delta.name.as_deref(),
            protocol: &delta.protocol,
            partition_columns: &delta.partition_columns,
            stored_rows: description
                .rows
                .unwrap_or(0)
                .saturating_add(delta.deleted_rows),
            deleted_rows: delta.deleted_rows,
            files_with_deletions: delta.files_with_deletions,
            file_sizes: sizes,
        }
    }

    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let time = self.timestamp.as_deref().unwrap_or("a time unknown");
        let mut rows = vec![("version", format!("{}, written {time}", self.version))];
        if let (Some(earliest), Some(latest)) = (self.earliest_version, self.latest_version) {
            rows.push(("versions", format!("{earliest} to {latest}")));
        }
        let (reader, writer) = (
            self.protocol.min_reader_version,
            self.protocol.min_writer_version,
        );
        rows.push(("protocol", format!("reader {reader}, writer {writer}")));
        let all = |names: &[String]| names.join(", ");
        if !self.protocol.reader_features.is_empty() {
            rows.push(("reader needs", all(&self.protocol.reader_features)));
        }
        if let Some(mode) = self.protocol.column_mapping {
            rows.push(("columns by", mode.to_owned()));
        }
        if !self.partition_columns.is_empty() {
            rows.push(("partitioned by", all(self.partition_columns)));
        }
        if self.files_with_deletions > 0 {
            let files = many(self.files_with_deletions, "file");
            rows.push((
                "deleted",
                format!(
                    "{} of {}, {}, in {files}",
                    count(self.deleted_rows),
                    many(self.stored_rows, "row"),
                    share(self.deleted_rows, self.stored_rows)
                ),
            ));
        }
        rows
    }

    /// Returns a table of the number of files by size.
    pub fn sizes(&self) -> Table {
        let sizes = self.file_sizes.iter().filter(|size| size.files > 0);
        let rows = sizes.map(|size| {
            let range = match (size.below, STEPS.last()) {
                (Some(below), _) => format!("  below {}", bytes(below)),
                (None, Some(last)) => format!("  from {}", bytes(*last)),
                (None, None) => "  any".to_owned(),
            };
            [range, count(size.files), bytes(size.bytes)]
        });
        Table::of("  file size|>files|>bytes", rows)
    }
}

/// Formats a percentage with two decimals, without floating point.
fn share(part: u64, whole: u64) -> String {
    let basis = u128::from(part) * 10_000 / u128::from(whole.max(1));
    format!("{}.{:02} %", basis / 100, basis % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_truncated_not_rounded() {
        assert_eq!(share(0, 0), "0.00 %");
        assert_eq!(share(1, 3), "33.33 %");
        assert_eq!(share(u64::MAX, u64::MAX), "100.00 %");
    }
}
