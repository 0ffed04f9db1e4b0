//! Encodes record batches as a Parquet file.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use parquet::arrow::{ArrowSchemaConverter, ArrowWriter};
use parquet::basic::{BrotliLevel, Compression as Codec, GzipLevel, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use shardmill_codec::{Algorithm, Compression};

use crate::error::ParquetEncodeError;

/// The size of a page before compression, in bytes. A page is the smallest part of a column that a reader can fetch.
const PAGE_BYTES: usize = 1 << 20;

/// The number of rows after which the size of a page is checked: at most, and at least.
const MAX_ROWS: usize = 1024;
const FEWEST_ROWS: usize = 1;

/// Encodes record batches as Parquet files. All files of a dataset share one encoder.
#[derive(Clone, Debug)]
pub struct ParquetEncoder {
    schema: SchemaRef,
    codec: Codec,
}

/// Checks that Parquet can store the type of a column.
///
/// # Errors
///
/// Returns [`ParquetEncodeError::Type`] if it cannot.
pub fn check_type(field: &Field) -> Result<(), ParquetEncodeError> {
    let schema = Schema::new(vec![field.clone()]);
    // The converter panics for unions.
    if matches!(field.data_type(), DataType::Union(..)) {
        return Err(ParquetEncodeError::Type {
            data_type: field.data_type().to_string(),
            source: ParquetError::NYI("unions".to_owned()),
        });
    }
    match ArrowSchemaConverter::new().convert(&schema) {
        Ok(_) => Ok(()),
        Err(source) => Err(ParquetEncodeError::Type {
            data_type: field.data_type().to_string(),
            source,
        }),
    }
}

impl ParquetEncoder {
    /// Creates an encoder of files with this schema. Files record it, so that Arrow readers return the same types.
    ///
    /// # Errors
    ///
    /// Returns [`ParquetEncodeError`] if Parquet does not have a type or the compression.
    pub fn new(
        schema: SchemaRef,
        compression: Option<Compression>,
    ) -> Result<Self, ParquetEncodeError> {
        for field in schema.fields() {
            check_type(field)?;
        }
        let codec = match compression {
            None => Codec::UNCOMPRESSED,
            Some(compression) => {
                codec(compression).ok_or_else(|| ParquetEncodeError::Compression {
                    name: compression.to_string(),
                })?
            }
        };
        Ok(Self { schema, codec })
    }

    /// Encodes a file. Each batch becomes one row group. Dictionary columns may come as their values. `row_bytes` is the
    /// average size of a row in bytes.
    ///
    /// # Errors
    ///
    /// Returns the error of a batch, or an error if a batch does not have the schema.
    pub fn encode(
        &self,
        groups: &mut dyn Iterator<Item = Result<RecordBatch, ArrowError>>,
        row_bytes: usize,
    ) -> Result<Vec<u8>, ParquetEncodeError> {
        // The size of a page is checked only between batches of rows, so large rows need small batches.
        let batch_rows = (PAGE_BYTES / row_bytes.max(1)).clamp(FEWEST_ROWS, MAX_ROWS);
        let properties = WriterProperties::builder()
            .set_created_by(concat!("shardmill version ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_compression(self.codec)
            .set_data_page_size_limit(PAGE_BYTES)
            .set_write_batch_size(batch_rows)
            // The caller ends row groups.
            .set_max_row_group_row_count(None)
            .build();
        let schema = Arc::clone(&self.schema);
        let mut writer = ArrowWriter::try_new(Vec::new(), schema, Some(properties))
            .map_err(ParquetEncodeError::File)?;
        for batch in groups {
            let batch = batch.map_err(ParquetEncodeError::Rows)?;
            let written = writer.write(&batch).and_then(|()| writer.flush());
            written.map_err(ParquetEncodeError::File)?;
        }
        writer.into_inner().map_err(ParquetEncodeError::File)
    }
}

/// Returns the compression of Parquet with the same name.
fn codec(compression: Compression) -> Option<Codec> {
    let level = compression.level();
    let codec: Result<Codec, ParquetError> = match compression.algorithm() {
        Algorithm::Zstd => ZstdLevel::try_new(level.into()).map(Codec::ZSTD),
        Algorithm::Gzip => GzipLevel::try_new(level.into()).map(Codec::GZIP),
        Algorithm::Brotli => BrotliLevel::try_new(level.into()).map(Codec::BROTLI),
        Algorithm::Snappy => Ok(Codec::SNAPPY),
        Algorithm::Bzip2 => return None,
    };
    codec.ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use arrow::array::{Array as _, ArrayRef, AsArray, BinaryArray, DictionaryArray, Int32Array};
    use arrow::datatypes::{Int8Type, Int32Type, UnionFields, UnionMode};
    use parquet::arrow::arrow_reader::{
        ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowSelection,
    };
    use parquet::file::metadata::PageIndexPolicy;

    use super::*;

    fn read(bytes: Vec<u8>) -> ParquetRecordBatchReaderBuilder<std::fs::File> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Required);
        ParquetRecordBatchReaderBuilder::try_new_with_options(file, options).unwrap()
    }

    fn numbers(from: i32, to: i32) -> RecordBatch {
        let ids: ArrayRef = Arc::new(Int32Array::from_iter_values(from..to));
        let bytes = (from..to).map(|id| vec![u8::try_from(id % 251).unwrap(); 50_000]);
        let blobs: ArrayRef = Arc::new(BinaryArray::from_iter_values(bytes));
        RecordBatch::try_from_iter([("id", ids), ("blob", blobs)]).unwrap()
    }

    #[test]
    fn each_batch_becomes_a_row_group_with_own_pages() {
        let groups = [numbers(0, 100), numbers(100, 130)];
        let encoder = ParquetEncoder::new(groups[0].schema(), "zstd:3".parse().ok()).unwrap();
        let file = encoder.encode(&mut groups.clone().into_iter().map(Ok), 50_004);
        let builder = read(file.unwrap());
        let metadata = Arc::clone(builder.metadata());
        let rows = metadata.row_groups().iter().map(|group| group.num_rows());
        assert_eq!(rows.collect::<Vec<_>>(), [100, 30]);
        let pages = &metadata.offset_index().unwrap()[0][1];
        let pages = pages.page_locations().len();
        // 5 MB of blobs do not fit into one page of 1 MiB.
        assert!((3..=8).contains(&pages), "{pages} pages");
        let selection = RowSelection::from_consecutive_ranges(std::iter::once(117..119), 130);
        let batch = builder
            .with_row_selection(selection)
            .build()
            .unwrap()
            .next();
        let batch = batch.unwrap().unwrap();
        assert_eq!(
            batch.column(0).as_primitive::<Int32Type>().values(),
            &[117, 118]
        );
    }

    #[test]
    fn dictionary_type_is_preserved() {
        let words = || vec!["a", "b", "a"];
        let dictionary: DictionaryArray<Int8Type> = words().into_iter().collect();
        let field = Field::new("word", dictionary.data_type().clone(), true);
        let values: ArrayRef = Arc::new(arrow::array::StringArray::from(words()));
        let plain = RecordBatch::try_from_iter([("word", values)]).unwrap();
        let schema = Arc::new(Schema::new(vec![field.clone()]));
        let encoder = ParquetEncoder::new(schema, None).unwrap();
        let file = encoder.encode(&mut [Ok(plain)].into_iter(), 2).unwrap();
        let builder = read(file);
        assert_eq!(builder.schema().field(0), &field);
    }

    #[test]
    fn unsupported_type_or_compression_is_an_error() {
        let empty = DataType::Union(UnionFields::empty(), UnionMode::Sparse);
        let error = check_type(&Field::new("u", empty, true)).unwrap_err();
        assert!(matches!(error, ParquetEncodeError::Type { .. }));
        let schema = numbers(0, 1).schema();
        let error = ParquetEncoder::new(schema, "bz2:9".parse().ok()).unwrap_err();
        assert_eq!(error.to_string(), "Parquet has no compression bz2:9");
    }
}
