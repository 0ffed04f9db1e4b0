//! A Delta table with an id and a text per row, written directly from the protocol specification.
//!
//! Each operation is one commit. [`Table::rows`] returns the rows that any reader of the latest version has to find.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use roaring::RoaringTreemap;
use serde_json::{Value, json};

/// A row: its id and its text.
pub type Row = (i64, String);

/// A table in a directory.
#[derive(Debug)]
pub struct Table {
    root: PathBuf,
    files: Vec<Data>,
    commits: u64,
    next_file: u64,
}

/// A data file.
#[derive(Clone, Debug)]
struct Data {
    path: String,
    bytes: u64,
    rows: Vec<Row>,
    deleted: BTreeSet<usize>,
}

impl Data {
    fn live(&self) -> impl Iterator<Item = &Row> {
        let rows = self.rows.iter().enumerate();
        rows.filter(|(at, _)| !self.deleted.contains(at))
            .map(|(_, row)| row)
    }

    fn deletion(&self) -> Option<Value> {
        let rows: Vec<u64> = self.deleted.iter().map(|row| *row as u64).collect();
        (!rows.is_empty()).then(|| inline_deletion(&rows))
    }

    fn add(&self, changes_data: bool) -> Value {
        let mut add = json!({
            "path": self.path,
            "partitionValues": {},
            "size": self.bytes,
            "modificationTime": 1_700_000_000_000_i64,
            "dataChange": changes_data,
            "stats": json!({"numRecords": self.rows.len()}).to_string(),
        });
        if let (Some(deletion), Some(add)) = (self.deletion(), add.as_object_mut()) {
            add.insert("deletionVector".to_owned(), deletion);
        }
        json!({ "add": add })
    }

    fn remove(&self, changes_data: bool) -> Value {
        let mut remove = json!({
            "path": self.path,
            "deletionTimestamp": 1_700_000_000_000_i64,
            "dataChange": changes_data,
            "extendedFileMetadata": true,
            "partitionValues": {},
            "size": self.bytes,
        });
        if let (Some(deletion), Some(remove)) = (self.deletion(), remove.as_object_mut()) {
            remove.insert("deletionVector".to_owned(), deletion);
        }
        json!({ "remove": remove })
    }
}

impl Table {
    /// Creates a table without rows, as version 0.
    ///
    /// # Errors
    ///
    /// Returns I/O errors, as every other operation does.
    pub fn create(root: &Path) -> io::Result<Self> {
        fs::create_dir_all(root.join("_delta_log"))?;
        let mut table = Self {
            root: root.to_owned(),
            files: Vec::new(),
            commits: 0,
            next_file: 0,
        };
        let field = |name: &str, data_type: &str| json!({"name": name, "type": data_type, "nullable": false, "metadata": {}});
        let fields = [field("id", "long"), field("text", "string")];
        table.commit(&[
            json!({"protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": ["deletionVectors"],
                "writerFeatures": ["deletionVectors"],
            }}),
            json!({"metaData": {
                "id": "0d5b1c2e-6a1e-4a52-9a43-7ac3a1f0b9d1",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json!({"type": "struct", "fields": fields}).to_string(),
                "partitionColumns": [],
                "configuration": {},
                "createdTime": 1_700_000_000_000_i64,
            }}),
        ])?;
        Ok(table)
    }

    /// Returns the latest version.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.commits - 1
    }

    /// Returns the number of data files.
    #[must_use]
    pub const fn files(&self) -> usize {
        self.files.len()
    }

    /// Returns all rows, sorted.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        let mut rows: Vec<Row> = self.files.iter().flat_map(Data::live).cloned().collect();
        rows.sort();
        rows
    }

    /// Returns the path of the file of a commit.
    #[must_use]
    pub fn commit_file(&self, version: u64) -> PathBuf {
        self.root.join(format!("_delta_log/{version:020}.json"))
    }

    /// Appends a file with these rows.
    pub fn append(&mut self, rows: &[Row]) -> io::Result<()> {
        let data = self.write(rows.to_vec())?;
        let actions = [data.add(true)];
        self.files.push(data);
        self.commit(&actions)
    }

    /// Deletes rows with deletion vectors.
    pub fn delete(&mut self, is_gone: impl Fn(&Row) -> bool) -> io::Result<()> {
        let mut actions = Vec::new();
        for data in &mut self.files {
            let before = data.clone();
            let rows = data.rows.iter().enumerate();
            let gone = rows.filter(|(_, row)| is_gone(row)).map(|(at, _)| at);
            data.deleted.extend(gone);
            if data.deleted != before.deleted {
                actions.extend([before.remove(true), data.add(true)]);
            }
        }
        self.commit(&actions)
    }

    /// Rewrites the files that have rows which `change` modifies, or deletes by returning `None`. Their other rows are
    /// copied.
    pub fn rewrite(&mut self, change: impl Fn(&Row) -> Option<Row>) -> io::Result<()> {
        let mut actions = Vec::new();
        let mut files = Vec::new();
        for data in std::mem::take(&mut self.files) {
            let rows: Vec<Row> = data.live().filter_map(&change).collect();
            if data.live().eq(rows.iter()) {
                files.push(data);
                continue;
            }
            actions.push(data.remove(true));
            if !rows.is_empty() {
                let new = self.write(rows)?;
                actions.push(new.add(true));
                files.push(new);
            }
        }
        self.files = files;
        self.commit(&actions)
    }

    /// Moves the rows of some files, given by their numbers, into one file in another order, as `OPTIMIZE` does.
    pub fn compact(&mut self, numbers: &[usize]) -> io::Result<()> {
        let mut actions = Vec::new();
        let mut rows = Vec::new();
        let mut kept = Vec::new();
        for (number, data) in std::mem::take(&mut self.files).into_iter().enumerate() {
            if numbers.contains(&number) {
                rows.extend(data.live().cloned());
                actions.push(data.remove(false));
            } else {
                kept.push(data);
            }
        }
        self.files = kept;
        rows.reverse();
        if !rows.is_empty() {
            let new = self.write(rows)?;
            actions.push(new.add(false));
            self.files.push(new);
        }
        self.commit(&actions)
    }

    /// Removes data files that the latest version does not use, as `VACUUM` does.
    pub fn vacuum(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.root)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            let is_used = self.files.iter().any(|data| Some(&*data.path) == name);
            if path.is_file() && !is_used {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, rows: Vec<Row>) -> io::Result<Data> {
        // Names do not sort by time.
        let mixed = (self.next_file + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let path = format!("part-{mixed:06x}-{:04}.parquet", self.next_file);
        self.next_file += 1;
        let ids = Int64Array::from_iter_values(rows.iter().map(|(id, _)| *id));
        let texts = StringArray::from_iter_values(rows.iter().map(|(_, text)| text));
        let columns: [(&str, ArrayRef); 2] = [("id", Arc::new(ids)), ("text", Arc::new(texts))];
        let batch = RecordBatch::try_from_iter(columns).map_err(io::Error::other)?;
        let file = File::create(self.root.join(&path))?;
        let mut writer =
            ArrowWriter::try_new(file, batch.schema(), None).map_err(io::Error::other)?;
        writer.write(&batch).map_err(io::Error::other)?;
        writer.close().map_err(io::Error::other)?;
        Ok(Data {
            bytes: fs::metadata(self.root.join(&path))?.len(),
            path,
            rows,
            deleted: BTreeSet::new(),
        })
    }

    fn commit(&mut self, actions: &[Value]) -> io::Result<()> {
        // Every writer puts at least one line into a commit.
        let mut lines = String::from("{\"commitInfo\":{}}\n");
        for action in actions {
            lines.push_str(&format!("{action}\n"));
        }
        fs::write(self.commit_file(self.commits), lines)?;
        self.commits += 1;
        Ok(())
    }
}

/// Returns an inline deletion vector, which is stored in the log itself.
#[must_use]
pub fn inline_deletion(rows: &[u64]) -> Value {
    let (bitmap, mut bytes) = bitmap(rows);
    let size = bytes.len();
    bytes.resize(size.next_multiple_of(4), 0);
    json!({
        "storageType": "i",
        "pathOrInlineDv": z85(&bytes),
        "sizeInBytes": size,
        "cardinality": bitmap.len(),
    })
}

/// Returns rows as the bitmap of a deletion vector, and its bytes.
#[must_use]
pub fn bitmap(rows: &[u64]) -> (RoaringTreemap, Vec<u8>) {
    const MAGIC: u32 = 1_681_511_377;

    let bitmap: RoaringTreemap = rows.iter().copied().collect();
    let mut bytes = MAGIC.to_le_bytes().to_vec();
    // INVARIANT: writing to a vector cannot fail.
    let _ = bitmap.serialize_into(&mut bytes);
    (bitmap, bytes)
}

/// Encodes bytes in ZeroMQ's base 85. Their number has to be a multiple of 4.
#[must_use]
pub fn z85(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 85] =
        b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";
    let (groups, _) = bytes.as_chunks::<4>();
    groups
        .iter()
        .flat_map(|group| {
            let mut value = u32::from_be_bytes(*group);
            let mut digits = [0_u8; 5];
            for digit in digits.iter_mut().rev() {
                *digit = DIGITS.get((value % 85) as usize).copied().unwrap_or(b'0');
                value /= 85;
            }
            digits
        })
        .map(char::from)
        .collect()
}
