//! The columns of a stream: which of a file are read, and how their values are encoded.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use arrow::error::ArrowError;
use parquet::file::metadata::RowGroupMetaData;
use shardmill_core::{Error, Limits, escape};
use shardmill_mds::{Column, DType, Encoding, Layout, ShardConfig};
use shardmill_parquet::{media_bytes, media_column, plain_values, without_extensions};
use shardmill_writer::{
    ColumnEncoder, NullPlan, NullPolicy, RowEncoder, ShardFormat, Target, default_target,
    is_json_text, masked_value, parse_value, stores_null,
};

use crate::error::Problem;

/// The columns that a stream reads, by name.
#[derive(Debug)]
pub(crate) struct TableColumns {
    /// The columns as files have them, in the order of the samples.
    pub(crate) stored: Fields,
    /// The same columns as samples have them: without extension types, and bytes instead of images.
    pub(crate) schema: SchemaRef,
    encodings: Vec<Encoding>,
    /// Replaces nulls, and marks them in the columns of `masks`.
    pub(crate) nulls: NullPlan,
    /// The names of the columns that mark nulls.
    pub(crate) masks: Vec<String>,
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
    ) -> Result<Self, Error> {
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
        let sampled: Vec<FieldRef> = chosen.iter().map(sample_field).collect();
        let encodings = sampled.iter().map(|field| encoding_of(field));
        let encodings = encodings.collect::<Result<_, _>>()?;
        let schema = Arc::new(Schema::new(sampled));
        Self::with_policies(chosen.into(), schema, encodings, &BTreeSet::new(), limits)
    }

    /// Chooses the first column of a file that samples can have.
    pub(crate) fn any(file: &str, fields: &Fields, limits: &Limits) -> Result<Self, Error> {
        let mut fields_in_order = fields.iter();
        let first = fields_in_order.find(|field| encoding_of(&sample_field(field)).is_ok());
        let wanted = first.map(|field| field.name().clone());
        Self::new(file, fields, wanted.as_slice(), limits)
    }

    /// Returns these columns where those with nulls, by position, have masks unless their encoding stores a null.
    pub(crate) fn with_nulls(
        self,
        has_nulls: &BTreeSet<usize>,
        limits: &Limits,
    ) -> Result<Self, Error> {
        Self::with_policies(self.stored, self.schema, self.encodings, has_nulls, limits)
    }

    fn with_policies(
        stored: Fields,
        schema: SchemaRef,
        encodings: Vec<Encoding>,
        has_nulls: &BTreeSet<usize>,
        limits: &Limits,
    ) -> Result<Self, Error> {
        let fields = schema.fields().iter().zip(&encodings).enumerate();
        let policies = fields.map(
            |(index, (field, encoding))| match has_nulls.contains(&index) {
                true => null_policy(field, &Target::Mds(encoding.clone())),
                false => NullPolicy::Leave,
            },
        );
        let nulls = NullPlan::new(&schema, policies.collect());
        let mut all: Vec<_> = nulls.schema().fields().iter().enumerate().collect();
        // The order of the columns of MDS.
        all.sort_by(|a, b| a.1.name().cmp(b.1.name()));
        let masks = nulls.schema().fields().iter().skip(schema.fields().len());
        let masks: Vec<String> = masks.map(|field| field.name().clone()).collect();
        let mut taken = masks.iter();
        if let Some(taken) = taken.find(|name| schema.field_with_name(name).is_ok()) {
            let reason = format!(
                "nulls are marked in a column `{}`, and the table has one",
                escape(taken)
            );
            return Err(Problem::Columns.at(taken, reason));
        }
        let mut encoders = Vec::with_capacity(all.len());
        let mut columns = Vec::with_capacity(all.len());
        for (index, field) in all {
            let encoding = match encodings.get(index) {
                Some(encoding) => encoding.clone(),
                None => Encoding::Number(DType::U8),
            };
            let target = Target::Mds(encoding.clone());
            encoders.push(ColumnEncoder::compile(index, field, target, limits)?);
            columns.push(Column {
                name: field.name().clone(),
                encoding,
            });
        }
        let layout = Layout::Mds {
            columns: columns.clone(),
        };
        let config = ShardConfig::new_mds(columns, None, Vec::new(), None)
            .map_err(|error| Problem::Columns.at("columns", error.to_string()))?;
        Ok(Self {
            encoder: RowEncoder::new(encoders, &layout, limits.sample_bytes),
            config: Arc::new(config),
            stored,
            schema,
            encodings,
            nulls,
            masks,
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

    /// Returns whether a column of the files has structs of which samples have the bytes.
    pub(crate) fn is_media(&self, column: usize) -> bool {
        let field = self.stored.get(column);
        field.is_some_and(|field| media_column(field).is_some())
    }

    /// Returns what identifies the samples: names, types and encodings.
    pub(crate) fn identity(&self) -> String {
        let fields = self.schema.fields().iter();
        let types: Vec<&DataType> = fields.map(|field| field.data_type()).collect();
        format!("{} {types:?}", self.config.to_json())
    }
}

/// Returns a column of a file as samples have it.
fn sample_field(field: &FieldRef) -> FieldRef {
    let plain = without_extensions(field);
    media_column(&plain).map_or(plain, Arc::new)
}

/// Returns the values of a column of a file as samples have them.
pub(crate) fn sample_values(array: &ArrayRef, field: &Field) -> Result<ArrayRef, ArrowError> {
    let plain = plain_values(array, field)?;
    match media_column(field) {
        Some(_) => media_bytes(&plain),
        None => Ok(plain),
    }
}

/// Returns the encoding of a column.
fn encoding_of(field: &Field) -> Result<Encoding, Error> {
    match default_target(field, ShardFormat::Mds)? {
        Target::Mds(encoding) => Ok(encoding),
        _ => Err(Problem::Type.at(field.name(), "the column has no MDS encoding")),
    }
}

/// Returns what happens to the nulls of a column: as with `--nulls mask` of a conversion. A column without a value that
/// can replace a null keeps its nulls, which are errors.
fn null_policy(field: &Field, target: &Target) -> NullPolicy {
    let (value, mask) = match is_json_text(field, target) {
        true => (parse_value("null", field.data_type()), false),
        false if stores_null(field, target) => (None, false),
        false => (masked_value(field, target), true),
    };
    value.map_or(NullPolicy::Leave, |value| NullPolicy::Fill { value, mask })
}

/// Returns the number of a column in a file.
///
/// # Errors
///
/// [`Problem::Drift`] if the file lacks the column, or has it with another type.
pub(crate) fn column_of(file: &str, fields: &Fields, field: &FieldRef) -> Result<usize, Error> {
    let name = escape(field.name());
    let Some((root, own)) = fields.find(field.name()) else {
        let reason = format!("it has no column `{name}`, and other files of the table have");
        return Err(Problem::Drift.at(file, reason));
    };
    let mut types = [own.data_type().clone(), field.data_type().clone()];
    if types[0] == types[1] {
        // Tensors of different shapes are stored in the same way.
        types = [own, field].map(|field| sample_field(field).data_type().clone());
    }
    if types[0] != types[1] {
        let reason = format!(
            "column `{name}` has the type {}, and {} in other files of the table",
            types[0], types[1]
        );
        return Err(Problem::Drift.at(file, reason));
    }
    Ok(root)
}
