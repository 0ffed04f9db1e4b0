//! Conversions to tables of Parquet files.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array as _, AsArray as _};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use shardmill_core::{Diagnostic as _, Error};
use shardmill_mds::{Encoding, Value, decode};
use shardmill_parquet::{ParquetEncodeError, ParquetEncoder, check_type};
use shardmill_source::{Source, SourceKind};
use shardmill_webdataset::FieldKind;
use shardmill_writer::{
    ColumnEncoder, EncodeTable, RowEncoder, ShardForm, ShardFormat, TableError, TableForm, Target,
    default_target, encoded_as, internal, number_lists, table_not_encoded, type_unsupported,
};

use crate::error::{encoding_error, other_option};
use crate::options::ConvertOptions;

/// The encodings that a column of a table can be given, with their types.
const ENCODINGS: [(&str, DataType); 4] = [
    ("bytes", DataType::Binary),
    ("str", DataType::Utf8),
    ("int", DataType::Int64),
    ("float", DataType::Float64),
];

/// The maximum size of a row group in bytes.
pub const MAX_ROW_GROUP_BYTES: u64 = 1 << 30;

/// Returns the type that an encoding of `--to parquet` names: `bytes`, `str`, `int` or `float`.
fn table_type(encoding: &str) -> Option<DataType> {
    let mut known = ENCODINGS.into_iter();
    known.find_map(|(name, data_type)| (name == encoding).then_some(data_type))
}

/// Parses the encoding of a column of a table.
pub(crate) fn parse_target(column: &str, encoding: &str) -> Result<Target, Error> {
    let data_type = table_type(encoding).ok_or_else(|| {
        let reason = format!("unknown encoding `{}`", shardmill_core::escape(encoding));
        let names = ENCODINGS.map(|(name, _)| name).join(", ");
        let hint = format!("columns of parquet are {names}");
        encoding_error(column, "encoding-unknown", reason).with_hint(hint)
    })?;
    Ok(Target::Table(data_type))
}

/// Checks that the other options apply to tables.
pub(crate) fn check_options(options: &ConvertOptions) -> Result<(), Error> {
    if options.shards.to != ShardFormat::Parquet {
        return Ok(());
    }
    let refused = |id, fact: &str, hint: &str| Err(Error::option_hint(id, fact, hint));
    if options.run.incremental {
        let (fact, hint) = (
            "a table of Parquet files is not updated",
            "convert it again, or use --to mds",
        );
        return Err(other_option("incremental", fact).with_hint(hint));
    }
    if options.run.part.is_some() {
        let fact = "a table of Parquet files is not written in parts";
        return refused("config-part", fact, "convert in one run");
    }
    if !(1..=MAX_ROW_GROUP_BYTES).contains(&options.shards.row_group_bytes()) {
        let fact = format!(
            "{} bytes are no size of a row group",
            options.shards.row_group_bytes()
        );
        return refused("config-row-group-size", &fact, "choose 1 byte to 1 GiB");
    }
    Ok(())
}

/// Returns the types of columns of a table that their own type does not determine, by name: fields of tar files, whose
/// extensions say what they hold, and arrays of MDS, of which the first sample shows the type.
pub(crate) fn known_types(
    source: &dyn Source,
    options: &ConvertOptions,
) -> Result<BTreeMap<String, DataType>, Error> {
    let mut types = BTreeMap::new();
    if !options.shards.to.is_table() {
        return Ok(types);
    }
    let schema = source.schema();
    if source.description().kind == SourceKind::Webdataset {
        let fields = schema.fields().iter();
        types.extend(fields.filter_map(|field| Some((field.name().clone(), tar_type(field)?))));
        return Ok(types);
    }
    let undecided = schema.fields().iter().map(|field| {
        let is_bytes = default_target(field, ShardFormat::Parquet)
            .is_ok_and(|target| target == Target::Table(DataType::Binary));
        let array = |encoding: &Encoding| matches!(encoding, Encoding::NdArray { .. });
        encoded_as(field).filter(|encoding| is_bytes && array(encoding))
    });
    let undecided: Vec<Option<Encoding>> = undecided.collect();
    if undecided.iter().all(Option::is_none) {
        return Ok(types);
    }
    let Some(first) = first_row(source)? else {
        return Ok(types);
    };
    for (at, encoding) in undecided.iter().enumerate() {
        let Some(encoding) = encoding else { continue };
        let bytes = first.column(at).as_binary_opt::<i32>();
        let Some(bytes) = bytes.filter(|bytes| bytes.is_valid(0)) else {
            continue;
        };
        let value = decode(encoding, bytes.value(0), &options.source.limits);
        if let Value::NdArray(array) = value? {
            let data_type = number_lists(array.dtype, array.shape.len());
            types.insert(schema.field(at).name().clone(), data_type);
        }
    }
    Ok(types)
}

/// Returns the type of a field of a tar file whose extension says that it is text or a number.
fn tar_type(field: &Field) -> Option<DataType> {
    if !field.data_type().is_binary() {
        return None;
    }
    match FieldKind::of(field.name()) {
        (FieldKind::Text | FieldKind::Json, false) => Some(DataType::Utf8),
        (FieldKind::Int, false) => Some(DataType::Int64),
        _ => None,
    }
}

/// Returns the first row of a source, if there is one.
fn first_row(source: &dyn Source) -> Result<Option<RecordBatch>, Error> {
    for unit in 0..source.units().len() {
        let mut rows = source.open_unit(unit)?;
        while let Some(batch) = rows.next_batch()? {
            if batch.num_rows() > 0 {
                return Ok(Some(batch.slice(0, 1)));
            }
        }
    }
    Ok(None)
}

/// Compiles the encoder of the rows and the form of the files.
pub(crate) fn compile(
    columns: Vec<ColumnEncoder>,
    options: &ConvertOptions,
) -> Result<(RowEncoder, ShardForm), Error> {
    let mut fields = Vec::with_capacity(columns.len());
    for column in &columns {
        let field = column
            .table_field()
            .ok_or_else(|| internal("a column of another format in a table"))?;
        check_type(field).map_err(|error| {
            let unsupported = type_unsupported(field.name(), field.data_type(), "parquet");
            unsupported.with_any_hint(error.hint())
        })?;
        fields.push(Arc::clone(field));
    }
    let shards = &options.shards;
    let schema = Arc::new(Schema::new(fields));
    let encoder = ParquetEncoder::new(schema, shards.compression).map_err(|error| match error {
        ParquetEncodeError::Compression { .. } => Error::option_hint(
            "config-compression",
            error.to_string(),
            error.hint().unwrap_or_default(),
        ),
        error => table_not_encoded(0, error.into()),
    })?;
    let form = TableForm {
        encoder: Arc::new(Encoder(encoder)),
        compression: shards.compression.map(|name| name.to_string()),
        hashes: shards.hashes.clone(),
        size_limit: shards.size_limit,
        row_group_bytes: shards.row_group_bytes(),
    };
    let rows = RowEncoder::table(columns, options.source.limits.sample_bytes);
    Ok((rows, ShardForm::Table(Arc::new(form))))
}

/// Parquet as the encoder of a table.
#[derive(Debug)]
struct Encoder(ParquetEncoder);

impl EncodeTable for Encoder {
    fn encode(
        &self,
        groups: &mut dyn Iterator<Item = Result<RecordBatch, ArrowError>>,
        row_bytes: usize,
    ) -> Result<Vec<u8>, TableError> {
        Ok(self.0.encode(groups, row_bytes)?)
    }
}
