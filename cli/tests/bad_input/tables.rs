//! Builds small tables to convert.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::{EnabledStatistics, WriterProperties};

use crate::case::TestDir;

/// Columns by name.
pub fn batch<const N: usize>(columns: [(&str, ArrayRef); N]) -> RecordBatch {
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, column)| {
            Field::new(*name, column.data_type().clone(), column.null_count() > 0)
        })
        .collect();
    RecordBatch::try_new(
        Arc::new(Schema::new(fields)),
        columns.into_iter().map(|(_, column)| column).collect(),
    )
    .unwrap()
}

/// A batch of `rows` rows with `id`, `name`, `score`.
pub fn rows(rows: i64) -> RecordBatch {
    batch([
        ("id", Arc::new(Int64Array::from_iter_values(0..rows))),
        (
            "name",
            Arc::new(StringArray::from_iter_values(
                (0..rows).map(|row| format!("row {row}")),
            )),
        ),
        (
            "score",
            Arc::new(Float64Array::from_iter_values(
                (0..rows).map(|row| row as f64 / 10.0),
            )),
        ),
    ])
}

/// A batch with the one column `x`.
pub fn column(values: impl Array + 'static) -> RecordBatch {
    batch([("x", Arc::new(values))])
}

/// A Parquet file in row groups of 10 rows.
pub fn parquet_bytes(batch: &RecordBatch, statistics: EnabledStatistics) -> Vec<u8> {
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(10))
        .set_statistics_enabled(statistics)
        .build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.into_inner().unwrap()
}

impl TestDir {
    /// Writes a Parquet file with statistics, in row groups of 10 rows.
    pub fn parquet(&self, name: &str, batch: &RecordBatch) {
        self.parquet_with(name, batch, EnabledStatistics::Chunk);
    }

    /// Writes a Parquet file with these statistics.
    pub fn parquet_with(&self, name: &str, batch: &RecordBatch, statistics: EnabledStatistics) {
        self.write(name, parquet_bytes(batch, statistics));
    }

    /// Writes the directory `in` with one good Parquet file of 25 rows in three row groups.
    pub fn source(&self) {
        self.parquet("in/rows.parquet", &rows(25));
    }
}
