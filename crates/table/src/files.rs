//! The files of a table: their names in messages, and their footers.

use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::{FieldRef, Fields};
use parquet::file::metadata::ParquetMetaData;
use shardmill_core::{Error, Limits, escape};
use shardmill_dataset::{DatasetError, DatasetProblem, FileEntry, ValueLocation};
use shardmill_parquet::{Partitions, arrow_fields, decode_footer, footer_range, index_range};
use shardmill_storage::{Dir, Folder, StorageError};

use crate::columns::TableColumns;
use crate::delta::DeltaFiles;
use crate::error::{self, Problem};

/// The bytes at the end of an object that are fetched in one request. Most footers fit into them.
const TAIL_BYTES: u64 = 64 << 10;

/// The files of a table.
#[derive(Debug)]
pub(crate) struct TableFiles {
    pub(crate) source: Folder,
    pub(crate) files: Vec<FileEntry>,
    /// The version of the table, if it is a Delta table. It has the same files in the same order.
    pub(crate) delta: Option<Arc<DeltaFiles>>,
    /// The columns that the names of folders form, if it is not a Delta table.
    pub(crate) partitions: Partitions,
    pub(crate) limits: Limits,
}

/// Bytes of a file, and where they begin in it.
#[derive(Debug, Default)]
pub(crate) struct FileBytes {
    pub(crate) bytes: Vec<u8>,
    pub(crate) start: u64,
}

impl TableFiles {
    /// Returns a file in messages.
    pub(crate) fn name(&self, file: usize) -> String {
        let name = self
            .files
            .get(file)
            .map_or("?", |file| &*file.info.basename);
        self.source.path_of(name).to_string_lossy().into_owned()
    }

    fn changed(&self, file: usize, found: u64) -> DatasetError {
        let listed = self.files.get(file).map_or(0, |file| file.info.bytes);
        DatasetError::listed_file_changed(
            ValueLocation::file(&self.name(file)),
            listed,
            found,
            false,
        )
    }

    /// Reads the ends of some files, with concurrent requests if they are in a store.
    pub(crate) fn tails(&self, files: Range<usize>) -> Vec<Result<Vec<u8>, DatasetError>> {
        let entries = self.files.get(files.clone()).unwrap_or_default();
        let range = |entry: &FileEntry| {
            let bytes = entry.info.bytes;
            bytes.saturating_sub(TAIL_BYTES)..bytes
        };
        let store = match &self.source {
            Folder::Store(store) => store.remote(),
            Folder::Local(dir) => {
                let read = |(number, entry)| self.read_local(dir, number, entry, range(entry));
                return files.zip(entries).map(read).collect();
            }
        };
        let wanted = entries.iter().map(|entry| {
            (
                entry.info.basename.to_string(),
                entry.info.bytes,
                range(entry),
            )
        });
        let found = store.read_ranges_of(&wanted.collect::<Vec<_>>());
        let named = |(number, result): (usize, Result<Vec<u8>, StorageError>)| {
            result.map_err(|error| self.read_error(number, error))
        };
        files.zip(found).map(named).collect()
    }

    fn read_error(&self, file: usize, error: StorageError) -> DatasetError {
        if error.is_not_found() {
            return DatasetError::file_missing(ValueLocation::file(&self.name(file)));
        }
        match error.fault() {
            StorageError::ObjectChanged => {
                let reason = "the object has changed since it was listed: it has another ETag";
                DatasetProblem::ObjectChanged.at(ValueLocation::file(&self.name(file)), reason)
            }
            _ => error.into(),
        }
    }

    fn read_local(
        &self,
        dir: &Dir,
        number: usize,
        entry: &FileEntry,
        range: Range<u64>,
    ) -> Result<Vec<u8>, DatasetError> {
        let open = dir.open_file(&entry.info.basename);
        let file = open.map_err(|error| self.read_error(number, error))?;
        if !entry.is(&file) {
            return Err(self.changed(number, file.len()));
        }
        Ok(file.read_range(range.start, range.end - range.start)?)
    }

    /// Returns the footer of a file, given its end.
    pub(crate) fn footer(&self, file: usize, tail: &[u8]) -> Result<FileBytes, DatasetError> {
        let size = self.files.get(file).map_or(0, |file| file.info.bytes);
        let range = footer_range(tail, size, self.limits.parquet.footer_bytes);
        let range = range.map_err(|problem| error::footer(&self.name(file), &problem))?;
        self.read(file, tail, range)
    }

    /// Returns the offset indexes of the large row groups of a file, given its end. Empty if it has none.
    pub(crate) fn offset_indexes(
        &self,
        file: usize,
        metadata: &ParquetMetaData,
        data_end: u64,
        tail: &[u8],
    ) -> Result<FileBytes, DatasetError> {
        match index_range(metadata, data_end, self.limits.parquet.footer_bytes) {
            Some(range) => self.read(file, tail, range),
            None => Ok(FileBytes::default()),
        }
    }

    /// Returns a range of a file, given its end.
    fn read(&self, file: usize, tail: &[u8], range: Range<u64>) -> Result<FileBytes, DatasetError> {
        let Some(entry) = self.files.get(file) else {
            return Err(self.changed(file, 0));
        };
        let tail_start = entry.info.bytes.saturating_sub(tail.len() as u64);
        let in_tail = range.start.checked_sub(tail_start).and_then(|from| {
            let (from, end) = (usize::try_from(from).ok()?, range.end - tail_start);
            tail.get(from..usize::try_from(end).ok()?)
        });
        let start = range.start;
        let bytes = match (in_tail, &self.source) {
            (Some(bytes), _) => bytes.to_vec(),
            (None, Folder::Local(dir)) => self.read_local(dir, file, entry, range)?,
            (None, Folder::Store(store)) => {
                let (remote, size) = (store.remote(), Some(entry.info.bytes));
                let found = remote.read_range(&entry.info.basename, size, range);
                found.map_err(|error| self.read_error(file, error))?
            }
        };
        Ok(FileBytes { bytes, start })
    }

    pub(crate) fn decode(
        &self,
        file: usize,
        footer: &[u8],
        start: u64,
    ) -> Result<Arc<ParquetMetaData>, Error> {
        let metadata = decode_footer(footer, start);
        let metadata = metadata.map_err(|problem| error::footer(&self.name(file), &problem))?;
        Ok(Arc::new(metadata))
    }

    /// Returns the columns that a stream reads, as the first file has them; with `any` one of them.
    pub(crate) fn columns(
        &self,
        wanted: &[String],
        any: bool,
    ) -> Result<TableColumns, DatasetError> {
        let chosen = |name: &str, fields: &Fields| match any {
            true => TableColumns::any(name, fields, &self.limits),
            false => TableColumns::new(name, fields, wanted, &self.limits),
        };
        if let Some(delta) = &self.delta {
            let table = self.source.path().to_string_lossy();
            return Ok(chosen(&table, &delta.fields())?);
        }
        let tail = self.tails(0..1).pop().unwrap_or_else(|| Ok(Vec::new()))?;
        let footer = self.footer(0, &tail)?;
        let metadata = self.decode(0, &footer.bytes, footer.start)?;
        let name = self.name(0);
        let fields = arrow_fields(&metadata).map_err(|problem| error::fields(&name, &problem))?;
        let mut all: Vec<FieldRef> = fields.iter().map(Arc::clone).collect();
        for field in &self.partitions.fields {
            if fields.find(field.name()).is_some() {
                let reason = format!(
                    "the column `{}` is both in the files and in the names of directories",
                    escape(field.name())
                );
                return Err(Problem::Partition.at(name, reason).into());
            }
            all.push(Arc::clone(field));
        }
        Ok(chosen(&name, &all.into())?)
    }
}
