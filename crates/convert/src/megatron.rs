//! The column of tokens of conversions to Megatron: which one it is, its type, and its documents as bytes.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef};
use arrow::datatypes::{DataType, Field, FieldRef};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use shardmill_core::{DType, escape};
use shardmill_records::TOKEN_TYPES;
use shardmill_source::{ENCODING_KEY, SelectColumn, Source, SourceOptions, number_type, over};
use shardmill_writer::{
    ColumnEncoder, EncodeTable, Offsets, RowEncoder, ShardForm, ShardFormat, TableError, TableForm,
    TableFormat, Target as ColumnTarget, ValueReason, WriteError, leaf_type,
};

use crate::error::ConvertError;
use crate::options::{ColumnSpec, ConvertOptions};

/// Returns the type of tokens that an encoding of `--to megatron` names, such as `int32`.
#[must_use]
pub fn token_type(name: &str) -> Option<DType> {
    TOKEN_TYPES.into_iter().find(|known| known.name() == name)
}

/// The names of the types of tokens.
#[must_use]
pub fn token_types() -> String {
    TOKEN_TYPES.map(DType::name).join(", ")
}

/// Returns the type in which numbers are written. Megatron has no unsigned types of 32 and 64 bits.
pub(crate) fn tokens_of(leaf: &DataType) -> Option<DType> {
    match leaf {
        DataType::UInt32 => Some(DType::Int32),
        DataType::UInt64 => Some(DType::Int64),
        leaf => TOKEN_TYPES
            .into_iter()
            .find(|known| number_type(*known) == *leaf),
    }
}

/// Checks that the other options apply to tokens.
pub(crate) fn check_options(options: &ConvertOptions) -> Result<(), ConvertError> {
    let run = &options.run;
    let misplaced = match () {
        () if options.shards.to != ShardFormat::Megatron => None,
        () if run.incremental => Some(("incremental", "files of tokens are not updated")),
        () if run.part.is_some() => Some(("part", "files of tokens are not written in parts")),
        () if options.shards.samples_per_shard.is_some() => {
            Some(("samples-per-shard", "all tokens are in one file"))
        }
        () => None,
    };
    match misplaced {
        Some((option, fact)) => Err(ConvertError::option_hint(option, fact, "omit it")),
        None => Ok(()),
    }
}

/// Returns the target of the column of tokens: its own type with the numbers that Megatron has, or the requested ones.
pub(crate) fn target(
    field: &Field,
    default: &ColumnTarget,
    requested: Option<&str>,
) -> Result<ColumnTarget, ConvertError> {
    let requested = match requested {
        Some(name) => Some(token_type(name).ok_or_else(|| {
            let reason = format!("unknown encoding `{}`", escape(name));
            let hint = format!("tokens of megatron are {}", token_types());
            ConvertError::encoding(field.name(), "encoding-unknown", reason, Some(hint))
        })?),
        None => None,
    };
    let ColumnTarget::Table(own) = default else {
        return Ok(default.clone());
    };
    let tokens = requested.or_else(|| tokens_of(leaf_type(own).0));
    Ok(ColumnTarget::Table(match tokens {
        Some(tokens) => with_leaf(own, &number_type(tokens)),
        None => own.clone(),
    }))
}

/// Returns nested lists with other values.
fn with_leaf(lists: &DataType, leaf: &DataType) -> DataType {
    let inner = |field: &FieldRef| -> FieldRef {
        let data_type = with_leaf(field.data_type(), leaf);
        // A number that does not fit is null for a moment, and then an error with its row.
        let field = field.as_ref().clone().with_nullable(true);
        Arc::new(field.with_data_type(data_type))
    };
    match lists {
        DataType::List(field) => DataType::List(inner(field)),
        DataType::LargeList(field) => DataType::LargeList(inner(field)),
        DataType::FixedSizeList(field, len) => DataType::FixedSizeList(inner(field), *len),
        _ => leaf.clone(),
    }
}

/// Returns the source with only its column of tokens and the column that decides the split.
pub(crate) fn only_tokens(
    source: Arc<dyn Source>,
    options: &ConvertOptions,
) -> Result<Arc<dyn Source>, ConvertError> {
    if options.shards.to != ShardFormat::Megatron {
        return Ok(source);
    }
    let name = token_column(source.as_ref(), options)?;
    let mut select = SourceOptions::default();
    select.query.columns = vec![SelectColumn::named(&name)];
    if let Some(key) = &options.columns.split_key
        && *key != name
    {
        select.query.columns.push(SelectColumn::named(key));
    }
    Ok(over(source, &select)?)
}

/// Returns the name of the column of tokens: the requested one, that of the tokenizer, or the only one with lists of
/// numbers.
fn token_column(source: &dyn Source, options: &ConvertOptions) -> Result<String, ConvertError> {
    const HINT: &str = "name the column of tokens with --column";
    let columns = &options.columns;
    let named: Vec<&ColumnSpec> = columns.named().collect();
    match (named.as_slice(), &columns.tokenize) {
        ([one], _) => return Ok(one.name.clone()),
        ([], Some(tokenize)) => return Ok(tokenize.tokens.clone()),
        ([], None) => {}
        (several, _) => {
            let fact = format!("{} columns are named, and megatron has one", several.len());
            return Err(ConvertError::option_hint("column", fact, HINT));
        }
    }
    let schema = source.schema();
    let is_tokens = |field: &&FieldRef| {
        let (leaf, levels) = leaf_type(field.data_type());
        let encoding = field.metadata().get(ENCODING_KEY);
        levels > 0 && tokens_of(leaf).is_some()
            || encoding.is_some_and(|encoding| encoding.starts_with("ndarray"))
    };
    let found: Vec<&FieldRef> = schema.fields().iter().filter(is_tokens).collect();
    match found.as_slice() {
        [one] => Ok(one.name().clone()),
        [] => {
            let fact = "no column has lists of numbers";
            let hint = "make tokens of a text with --tokenize";
            Err(ConvertError::option_hint("column", fact, hint))
        }
        several => {
            let names: Vec<_> = several.iter().map(|field| escape(field.name())).collect();
            let fact = format!("{} have lists of numbers", names.join(", "));
            Err(ConvertError::option_hint("column", fact, HINT))
        }
    }
}

/// Compiles the encoder of the tokens and the form of the files.
pub(crate) fn compile(
    mut columns: Vec<ColumnEncoder>,
    options: &ConvertOptions,
) -> Result<(RowEncoder, ShardForm), ConvertError> {
    // The column that decides the split is not written.
    let is_tokens = |column: &ColumnEncoder| {
        options.columns.split_key.as_deref() != Some(column.name())
            || options.columns.spec(column.name()).is_some()
    };
    columns.retain(is_tokens);
    let Some(field) = columns.first().and_then(ColumnEncoder::table_field) else {
        return Err(WriteError::Bug("tokens without a column").into());
    };
    let (leaf, levels) = leaf_type(field.data_type());
    let tokens = tokens_of(leaf).filter(|_| (1..=2).contains(&levels));
    let tokens = tokens.ok_or_else(|| WriteError::TypeUnsupported {
        column: field.name().clone(),
        data_type: field.data_type().to_string(),
        encoding: ShardFormat::Megatron.name().to_owned(),
        hint: Some("a document is a list of numbers, or a list of lists of them".to_owned()),
    })?;
    let form = TableForm {
        encoder: Arc::new(Encoder(tokens)),
        format: TableFormat::Megatron,
        compression: None,
        hashes: options.shards.hashes.clone(),
        size_limit: None,
        row_group_bytes: u64::MAX,
    };
    let rows = RowEncoder::table(columns, options.source.limits.sample_bytes);
    Ok((rows, ShardForm::Table(Arc::new(form))))
}

/// Tokens as the encoder of a table.
#[derive(Debug)]
struct Encoder(DType);

impl EncodeTable for Encoder {
    fn encode(
        &self,
        groups: &mut dyn Iterator<Item = Result<RecordBatch, ArrowError>>,
        _row_bytes: usize,
    ) -> Result<Vec<u8>, TableError> {
        let mut documents = Documents::default();
        for group in groups {
            documents
                .add(group?.column(0), self.0)
                .map_err(|(_, reason)| reason.to_string())?;
        }
        Ok(documents.bytes)
    }
}

/// Encoded documents in order.
#[derive(Default)]
pub(crate) struct Documents {
    pub(crate) bytes: Vec<u8>,
    /// The lengths of the sequences of each document.
    pub(crate) lengths: Vec<Vec<i32>>,
}

/// The row of a batch that cannot be written, and why.
pub(crate) type Unfit = (usize, ValueReason);

impl Documents {
    /// Adds a document for each list of a column.
    pub(crate) fn add(&mut self, column: &ArrayRef, tokens: DType) -> Result<(), Unfit> {
        let unfit = |row| {
            let (value, encoding) = ("a null in a list".to_owned(), "megatron".to_owned());
            (row, ValueReason::Range { value, encoding })
        };
        let (lists, inner) = Offsets::of_lists(column).ok_or_else(|| unfit(0))?;
        let (nested, leaf) = match Offsets::of_lists(inner) {
            Some((nested, leaf)) => (Some(nested), leaf),
            None => (None, inner),
        };
        let data = leaf.to_data();
        let width = tokens.size();
        let values = data
            .buffers()
            .first()
            .map_or(&[][..], |buffer| buffer.as_slice());
        let values = values.get(data.offset() * width..).unwrap_or_default();
        for row in 0..column.len() {
            let sequences = lists.range(row);
            let ranges: Vec<_> = match &nested {
                None => vec![sequences.clone()],
                Some(nested) => sequences.clone().map(|at| nested.range(at)).collect(),
            };
            let is_null = |range: &std::ops::Range<usize>| {
                leaf.null_count() > 0 && range.clone().any(|at| leaf.is_null(at))
            };
            let inner_null = nested.is_some()
                && inner.null_count() > 0
                && sequences.clone().any(|at| inner.is_null(at));
            if inner_null || ranges.iter().any(is_null) {
                return Err(unfit(row));
            }
            let mut lengths = Vec::with_capacity(ranges.len());
            for range in ranges {
                let length = i32::try_from(range.len()).map_err(|_| {
                    let value = format!("a sequence of {} tokens", range.len());
                    let encoding = ShardFormat::Megatron.name().to_owned();
                    (row, ValueReason::Range { value, encoding })
                })?;
                let bytes = values.get(range.start * width..range.end * width);
                self.bytes.extend_from_slice(bytes.unwrap_or_default());
                lengths.push(length);
            }
            self.lengths.push(lengths);
        }
        Ok(())
    }
}
