//! Creates files and reads them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::concat_batches;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use shardmill_core::Error;
use shardmill_source::{Source, SourceOptions, open};

/// A temporary directory.
pub struct TestDir(tempfile::TempDir);

impl TestDir {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    pub fn parquet(
        &self,
        name: &str,
        batch: &RecordBatch,
        properties: WriterProperties,
    ) -> PathBuf {
        self.write(name, parquet_bytes(batch, properties))
    }
}

pub fn parquet_bytes(batch: &RecordBatch, properties: WriterProperties) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
    bytes
}

pub fn rows_per_group(rows: usize) -> WriterProperties {
    WriterProperties::builder()
        .set_max_row_group_row_count(Some(rows))
        .build()
}

pub fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter(columns).unwrap()
}

pub fn array(values: impl arrow::array::Array + 'static) -> ArrayRef {
    Arc::new(values)
}

pub fn open_one(path: &Path) -> Arc<dyn Source> {
    open(&[path.into()], &SourceOptions::default()).unwrap()
}

pub fn open_with(
    path: &Path,
    change: impl FnOnce(&mut SourceOptions),
) -> Result<Arc<dyn Source>, Error> {
    let mut options = SourceOptions::default();
    change(&mut options);
    open(&[path.into()], &options)
}

/// Returns the error of opening a source, which must fail.
pub fn refused(path: &Path, change: impl FnOnce(&mut SourceOptions)) -> Error {
    match open_with(path, change) {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => check_error(error),
    }
}

/// Checks that an error has an id, a kind, and a message of one line without a full stop.
pub fn check_error(error: Error) -> Error {
    let text = error.to_string();
    assert!(
        !text.contains('\n') && !text.is_empty() && !text.ends_with('.'),
        "{text:?}"
    );
    assert!(!error.id().is_empty());
    if let Some(object) = error.object() {
        assert!(!object.contains('\n'), "{object:?}");
    }
    error
}

/// Returns all batches of all units in order.
pub fn batches(source: &dyn Source) -> Result<Vec<RecordBatch>, Error> {
    let mut all = Vec::new();
    for (number, unit) in source.units().iter().enumerate() {
        let mut rows = source.open_unit(number)?;
        let mut count = 0;
        while let Some(batch) = rows.next_batch()? {
            assert!(batch.num_rows() > 0, "an empty batch");
            assert_eq!(
                batch.schema(),
                source.schema(),
                "a batch with another schema"
            );
            count += batch.num_rows() as u64;
            all.push(batch);
        }
        assert!(rows.next_batch()?.is_none(), "a unit went on after its end");
        if let Some(claimed) = unit.rows {
            assert_eq!(count, claimed, "unit {number}");
        }
    }
    Ok(all)
}

/// Returns all rows as one batch.
pub fn read(source: &dyn Source) -> RecordBatch {
    concat_batches(&source.schema(), &batches(source).unwrap()).unwrap()
}

/// Reads a source completely, and returns the number of rows or the error.
pub fn try_read(path: &Path) -> Result<usize, Error> {
    let source = open(&[path.into()], &SourceOptions::default())?;
    let mut rows = 0;
    for unit in 0..source.units().len() {
        let mut reader = source.open_unit(unit)?;
        while let Some(batch) = reader.next_batch()? {
            rows += batch.num_rows();
        }
    }
    Ok(rows)
}
