//! Which file and row of the source a sample comes from, as far as the side files of a dataset tell.

use serde::Deserialize;
use serde_json::Value;
use shardmill_storage::{Folder, StorageError};

use crate::side_files::{PROVENANCE_BYTES, PROVENANCE_NAME, RECORD_NAME, SIDE_BYTES, if_there};

/// The source of the samples of a dataset, from `index.provenance` and `index.increments`.
///
/// A conversion keeps the order of the rows. If it leaves out no row, the number of a stored sample is that of its row.
/// The files are named without their numbers of rows, so the file of a row is known for a single file only. The record
/// of increments names the file of each sample, but not the row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampleSources {
    /// The kind of the source, such as `parquet` or `delta`.
    pub kind: Option<String>,
    /// The version of the Delta table.
    pub table_version: Option<u64>,
    /// The id of the Delta table.
    pub table_id: Option<String>,
    /// What is unknown, and why; `None` if file and row of every sample are known.
    pub unknown: Option<String>,
    rows: Rows,
}

/// The source of one sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampleSource {
    /// The file, relative to the source.
    pub file: Option<String>,
    /// The row, numbered from 0 over all rows that the conversion read.
    pub row: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Rows {
    #[default]
    Unknown,
    /// The stored number of a sample is that of its row, and all rows are from this file, if there is only one.
    InOrder(Option<String>),
    /// Ranges of stored samples, and the number of their file; sorted.
    Recorded(Vec<(u64, u64, usize)>, Vec<String>),
}

/// The parts of `index.increments` that name the files of samples.
#[derive(Deserialize)]
struct Record {
    generations: Vec<Generation>,
    all_file_samples: Vec<FileSamples>,
}

#[derive(Deserialize)]
struct Generation {
    samples: u64,
}

#[derive(Deserialize)]
struct FileSamples {
    /// Pairs of path and deletion vector.
    files: Vec<(String, Option<String>)>,
    /// Pairs of start and end (exclusive).
    samples: Vec<(u64, u64)>,
}

impl SampleSources {
    /// Reads the side files of a dataset with this many stored samples. A missing or damaged file makes the source
    /// unknown.
    pub fn read(folder: &Folder, stored: u64) -> Result<Self, StorageError> {
        let read = |name, max| if_there(folder.read(name, max));
        let Some(text) = read(PROVENANCE_NAME, PROVENANCE_BYTES)? else {
            return Ok(Self::unknown("there is no index.provenance"));
        };
        let Ok(provenance) = serde_json::from_slice::<Value>(&text) else {
            return Ok(Self::unknown("index.provenance is damaged"));
        };
        let record = match provenance.get("increment") {
            None | Some(Value::Null) => None,
            Some(_) => read(RECORD_NAME, SIDE_BYTES)?,
        };
        Ok(Self::of(&provenance, record.as_deref(), stored))
    }

    fn unknown(reason: &str) -> Self {
        Self {
            unknown: Some(format!("file and row: {reason}")),
            ..Self::default()
        }
    }

    fn of(provenance: &Value, record: Option<&[u8]>, stored: u64) -> Self {
        let text = |pointer: &str| {
            let value = provenance.pointer(pointer);
            value.and_then(Value::as_str).map(str::to_owned)
        };
        let mut found = Self {
            kind: text("/source/kind"),
            table_version: provenance
                .pointer("/source/delta/version")
                .and_then(Value::as_u64),
            table_id: text("/source/delta/id"),
            ..Self::default()
        };
        let is_incremental = provenance
            .get("increment")
            .is_some_and(|value| !value.is_null());
        let (rows, unknown) = if is_incremental {
            recorded(record, stored)
        } else {
            in_order(provenance, stored)
        };
        found.rows = rows;
        found.unknown = unknown;
        found
    }

    /// Returns the source of a stored sample, as far as it is known.
    #[must_use]
    pub fn source_of(&self, stored: u64) -> SampleSource {
        match &self.rows {
            Rows::Unknown => SampleSource::default(),
            Rows::InOrder(file) => SampleSource {
                file: file.clone(),
                row: Some(stored),
            },
            Rows::Recorded(ranges, files) => {
                let after = ranges.partition_point(|(start, ..)| *start <= stored);
                let range = after.checked_sub(1).and_then(|index| ranges.get(index));
                let file = range.filter(|(_, end, _)| stored < *end);
                SampleSource {
                    file: file.and_then(|(.., file)| files.get(*file).cloned()),
                    row: None,
                }
            }
        }
    }
}

/// Reads which file each sample comes from. Files whose rows were moved together have no single file.
fn recorded(record: Option<&[u8]>, stored: u64) -> (Rows, Option<String>) {
    let lost = |reason: &str| (Rows::Unknown, Some(format!("file and row: {reason}")));
    let Some(record) = record else {
        return lost("there is no index.increments");
    };
    let Ok(record) = serde_json::from_slice::<Record>(record) else {
        return lost("index.increments is damaged");
    };
    if record.generations.last().map(|last| last.samples) != Some(stored) {
        return lost("index.increments is of another index");
    }
    let (mut ranges, mut files) = (Vec::new(), Vec::new());
    for found in record.all_file_samples {
        let [(file, _)] = found.files.as_slice() else {
            continue;
        };
        let number = files.len();
        files.push(file.clone());
        ranges.extend(
            found
                .samples
                .iter()
                .map(|(start, end)| (*start, *end, number)),
        );
    }
    ranges.sort_unstable();
    let unknown = "row: index.increments names the file of a sample, not the row";
    (Rows::Recorded(ranges, files), Some(unknown.to_owned()))
}

/// Decides whether the number of a stored sample is that of its row.
fn in_order(provenance: &Value, stored: u64) -> (Rows, Option<String>) {
    let lost = |reason: &str| (Rows::Unknown, Some(format!("file and row: {reason}")));
    let is_set = |pointer: &str| {
        let value = provenance.pointer(pointer);
        value.is_some_and(|value| !matches!(value, Value::Null))
    };
    let number = |pointer: &str| provenance.pointer(pointer).and_then(Value::as_u64);
    if provenance.get("split").and_then(Value::as_str) != Some("") {
        return lost("the dataset is one of several splits, or its provenance is incomplete");
    }
    if is_set("/config/where") || is_set("/config/sql") {
        return lost("the conversion selected rows with a query");
    }
    if is_set("/config/shuffle") {
        return lost("the conversion shuffled the rows");
    }
    if number("/dropped_rows").unwrap_or(0) > 0 {
        return lost("the conversion left out rows with nulls");
    }
    if number("/samples") != Some(stored) || number("/source/rows") != Some(stored) {
        return lost("the source had a different number of rows, or did not report it");
    }
    let files = provenance
        .pointer("/source/files")
        .and_then(Value::as_array);
    let files = files.map_or(&[][..], Vec::as_slice);
    let is_tree = provenance.pointer("/source/kind").and_then(Value::as_str) == Some("tree");
    match files {
        [only] if !is_tree && number("/source/files_not_named") == Some(0) => {
            let file = only.get("path").and_then(Value::as_str);
            (Rows::InOrder(file.map(str::to_owned)), None)
        }
        _ => {
            let unknown = match is_tree {
                true => "file: index.provenance does not name the files of a tree; see the key",
                false => "file: index.provenance names several files without their numbers of rows",
            };
            (Rows::InOrder(None), Some(unknown.to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn provenance(files: &[&str]) -> Value {
        let files: Vec<Value> = files.iter().map(|path| json!({"path": path})).collect();
        json!({
            "config": {"where": null, "sql": null, "shuffle": null},
            "split": "",
            "samples": 10,
            "dropped_rows": 0,
            "increment": null,
            "source": {
                "kind": "parquet", "rows": 10, "files": files, "files_not_named": 0,
                "delta": {"version": 4, "id": "t"},
            },
        })
    }

    #[test]
    fn single_source_file_gives_file_and_row() {
        let found = SampleSources::of(&provenance(&["a.parquet"]), None, 10);
        assert_eq!(found.unknown, None);
        assert_eq!(
            (found.table_version, found.table_id.as_deref()),
            (Some(4), Some("t"))
        );
        let expected = SampleSource {
            file: Some("a.parquet".to_owned()),
            row: Some(7),
        };
        assert_eq!(found.source_of(7), expected);
        let several = SampleSources::of(&provenance(&["a", "b"]), None, 10);
        assert_eq!(
            (several.source_of(7).file, several.source_of(7).row),
            (None, Some(7))
        );
        assert!(several.unknown.unwrap().starts_with("file: "));
    }

    #[test]
    fn dropped_rows_make_the_source_unknown() {
        let changes: [(&str, Value, &str); 7] = [
            ("/split", json!("train"), "splits"),
            ("/config/where", json!("a > 1"), "query"),
            ("/config/sql", json!("select"), "query"),
            ("/config/shuffle", json!(7), "shuffled"),
            ("/dropped_rows", json!(1), "nulls"),
            ("/samples", json!(9), "number of rows"),
            ("/source/rows", Value::Null, "number of rows"),
        ];
        for (pointer, value, reason) in changes {
            let mut changed = provenance(&["a"]);
            *changed.pointer_mut(pointer).unwrap() = value;
            let found = SampleSources::of(&changed, None, 10);
            assert_eq!(found.source_of(3), SampleSource::default(), "{pointer}");
            assert!(found.unknown.unwrap().contains(reason), "{pointer}");
        }
    }

    #[test]
    fn increment_record_gives_the_source_file() {
        let mut changed = provenance(&["a"]);
        changed["increment"] = json!({"generation": 2});
        let record = json!({
            "generations": [{"samples": 4}, {"samples": 10}],
            "all_file_samples": [
                {"files": [["a", null]], "samples": [[0, 3], [8, 9]]},
                {"files": [["b", "dv"]], "samples": [[3, 8]]},
                {"files": [["c", null], ["d", null]], "samples": [[9, 10]]},
            ],
        });
        let record = record.to_string();
        let found = SampleSources::of(&changed, Some(record.as_bytes()), 10);
        let files: Vec<_> = (0..11).map(|stored| found.source_of(stored).file).collect();
        let names: Vec<_> = files.iter().map(Option::as_deref).collect();
        let (a, b) = (Some("a"), Some("b"));
        assert_eq!(names, [a, a, a, b, b, b, b, b, a, None, None]);
        assert!(found.unknown.unwrap().starts_with("row: "));
        for (record, reason) in [
            (None, "there is no index.increments"),
            (Some(&b"{"[..]), "damaged"),
        ] {
            let found = SampleSources::of(&changed, record, 10);
            assert!(found.unknown.unwrap().contains(reason));
        }
        let found = SampleSources::of(&changed, Some(record.as_bytes()), 11);
        assert!(found.unknown.unwrap().contains("another index"));
    }

    #[test]
    fn missing_provenance_makes_the_source_unknown() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::Local(shardmill_storage::Dir::open(dir.path()).unwrap());
        let found = SampleSources::read(&folder, 10).unwrap();
        assert_eq!(
            found.unknown.as_deref(),
            Some("file and row: there is no index.provenance")
        );
        std::fs::write(dir.path().join(PROVENANCE_NAME), "{").unwrap();
        let found = SampleSources::read(&folder, 10).unwrap();
        assert_eq!(
            found.unknown.as_deref(),
            Some("file and row: index.provenance is damaged")
        );
    }
}
