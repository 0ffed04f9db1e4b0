//! The columns of a stream: which of a file are read, and how their values are encoded.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef};
use parquet::file::metadata::RowGroupMetaData;
use shardmill_core::{Format, Limits, escape};
use shardmill_mds::{Column, Encoding, Layout, ShardConfig};
use shardmill_writer::{ColumnEncoder, RowEncoder, Target, default_target};

use crate::error::{Problem, TableError};

/// The columns that a stream reads, by name.
#[derive(Debug)]
pub(crate) struct TableColumns {
    /// The columns as files have them, in the order of the samples.
    schema: SchemaRef,
    encodings: Vec<Encoding>,
    pub(crate) encoder: RowEncoder,
    pub(crate) config: Arc<ShardConfig>,
}

impl TableColumns {
    /// Chooses columns of a file; all if `wanted` is empty.
    pub(crate) fn new(
        file: &str,
        fields: &Fields,
        wanted: &[String],
        limits: &Limits,
    ) -> Result<Self, TableError> {
        let mut chosen = Vec::new();
        for name in wanted {
            let Some((_, field)) = fields.find(name) else {
                let names: Vec<_> = fields.iter().map(|field| escape(field.name())).collect();
                let reason = format!("the table has the columns {}", names.join(", "));
                return Err(Problem::Columns.at(name, reason));
            };
            chosen.push(Arc::clone(field));
        }
        if wanted.is_empty() {
            chosen.extend(fields.iter().map(Arc::clone));
        }
        // The order of the columns of MDS.
        chosen.sort_by(|a, b| a.name().cmp(b.name()));
        if let Some([twice, _]) = chosen.array_windows().find(|[a, b]| a.name() == b.name()) {
            return Err(Problem::Columns.at(twice.name(), "the column is named twice"));
        }
        if chosen.is_empty() {
            return Err(Problem::Columns.at(file, "the table has no columns"));
        }
        let mut encoders = Vec::with_capacity(chosen.len());
        let mut encodings = Vec::with_capacity(chosen.len());
        for (place, field) in chosen.iter().enumerate() {
            let target = default_target(field, Format::Mds)?;
            let Target::Mds(encoding) = &target else {
                return Err(Problem::Type.at(field.name(), "the column has no MDS encoding"));
            };
            encodings.push(encoding.clone());
            encoders.push(ColumnEncoder::compile(place, field, target, limits)?);
        }
        let columns = chosen
            .iter()
            .zip(&encodings)
            .map(|(field, encoding)| Column {
                name: field.name().clone(),
                encoding: encoding.clone(),
            });
        let columns: Vec<Column> = columns.collect();
        let layout = Layout::Mds {
            columns: columns.clone(),
        };
        let config = ShardConfig::new_mds(columns, None, Vec::new(), None)
            .map_err(|error| Problem::Columns.at(file, error.to_string()))?;
        Ok(Self {
            schema: Arc::new(Schema::new(chosen)),
            encodings,
            encoder: RowEncoder::new(encoders, &layout, limits.sample_bytes),
            config: Arc::new(config),
        })
    }

    /// Returns the expected length of the shard of a row group. `leaves` has the leaf columns of each column.
    ///
    /// Statistics tell the lengths of texts and bytes. Without them, the length is a generous estimate, as values may be
    /// repeated in a dictionary.
    pub(crate) fn shard_bytes(&self, group: &RowGroupMetaData, leaves: &[Vec<usize>]) -> u64 {
        /// The most bytes of a value that is stored as text: numbers, times and the brackets of JSON.
        const TEXT_BYTES: u64 = 48;
        /// The expansion that is expected of values without statistics.
        const EXPANSION: u64 = 8;

        let rows = u64::try_from(group.num_rows()).unwrap_or(0);
        let mut bytes = 8 + 4 * rows + self.config.to_json().len() as u64;
        for (encoding, leaves) in self.encodings.iter().zip(leaves) {
            if let Some(size) = encoding.fixed_size() {
                bytes = bytes.saturating_add(size.saturating_mul(rows));
                continue;
            }
            // The length of a value, and the header of an array.
            bytes = bytes.saturating_add(rows.saturating_mul(4 + 16));
            for chunk in leaves.iter().filter_map(|leaf| group.columns().get(*leaf)) {
                let values = u64::try_from(chunk.num_values()).unwrap_or(0);
                let stored = u64::try_from(chunk.uncompressed_size()).unwrap_or(0);
                let known = chunk.unencoded_byte_array_data_bytes();
                let known = known.and_then(|bytes| u64::try_from(bytes).ok());
                let own = match (encoding, known) {
                    (Encoding::Str | Encoding::Bytes, Some(known)) => known,
                    (
                        Encoding::NdArray {
                            dtype: Some(dtype), ..
                        },
                        _,
                    ) => values.saturating_mul(dtype.size_bytes()),
                    (_, known) => known
                        .unwrap_or_else(|| stored.saturating_mul(EXPANSION))
                        .saturating_add(values.saturating_mul(TEXT_BYTES)),
                };
                bytes = bytes.saturating_add(own);
            }
        }
        bytes
    }

    /// Returns the type of a column.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns what identifies the samples: names, types and encodings.
    pub(crate) fn identity(&self) -> String {
        let types: Vec<&DataType> = self
            .schema
            .fields()
            .iter()
            .map(|field| field.data_type())
            .collect();
        format!("{} {types:?}", self.config.to_json())
    }
}

/// Returns the number of a column in a file.
///
/// # Errors
///
/// [`Problem::Drift`] if the file lacks the column, or has it with another type.
pub(crate) fn column_of(file: &str, fields: &Fields, field: &Field) -> Result<usize, TableError> {
    let name = escape(field.name());
    let Some((root, own)) = fields.find(field.name()) else {
        let reason = format!("it has no column `{name}`, and other files of the table have");
        return Err(Problem::Drift.at(file, reason));
    };
    if own.data_type() != field.data_type() {
        let reason = format!(
            "column `{name}` has the type {}, and {} in other files of the table",
            own.data_type(),
            field.data_type()
        );
        return Err(Problem::Drift.at(file, reason));
    }
    Ok(root)
}
