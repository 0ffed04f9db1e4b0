//! Determines which columns are written, and how.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use shardmill_core::{Diagnostic as _, Error, escape, omit_option, shell_word, sql_name};
use shardmill_mds::{Column, DType, Encoding, MdsError, ShardConfig};
use shardmill_source::ReadAs;
use shardmill_webdataset::{FieldSet, Profile, Rules, TarStyle};
use shardmill_writer::{
    ColumnEncoder, EXPRESSION_KEY, FieldEncoding, MASK_SUFFIX, NullPlan, NullPolicy, RowEncoder,
    ShardForm, ShardFormat, TarForm, TarKeys, TarRows, Target, default_field, default_target,
    internal, is_json_text, masked_value, parse_value, stores_null, type_unsupported,
};

use crate::error::encoding_error;
use crate::options::{ColumnSpec, ConvertOptions, Nulls, TarNames};
use crate::table;

/// Returns the target of each column: the requested one, or the default of its type. `known_types` holds the types of
/// columns of tables that their own type does not determine.
pub(crate) fn targets(
    schema: &SchemaRef,
    known_types: &BTreeMap<String, DataType>,
    options: &ConvertOptions,
) -> Result<Vec<Target>, Error> {
    let requested = |name: &str| options.columns.spec(name)?.encoding.as_deref();
    schema
        .fields()
        .iter()
        .map(|field| match requested(field.name()) {
            Some(encoding) => parse_target(field.name(), encoding, options.shards.to),
            None => match known_types.get(field.name()) {
                Some(data_type) => Ok(Target::Table(data_type.clone())),
                None => Ok(default_target(field, options.shards.to)?),
            },
        })
        .collect()
}

/// Returns the types for reading numbers whose types differ between files: the types of their encodings. Floats are
/// read in full precision; the encoder rounds them.
pub(crate) fn read_as(options: &ConvertOptions) -> Vec<ReadAs> {
    let plain = options
        .columns
        .specs
        .iter()
        .filter(|column| column.expr.is_none());
    let number = |column: &ColumnSpec| {
        let target =
            parse_target(&column.name, column.encoding.as_deref()?, options.shards.to).ok()?;
        let data_type = match target {
            Target::Mds(Encoding::Number(DType::U64)) => DataType::UInt64,
            Target::Mds(Encoding::Number(DType::F16 | DType::F32 | DType::F64)) => {
                DataType::Float64
            }
            Target::Mds(Encoding::Int | Encoding::Number(_))
            | Target::Field(FieldEncoding::Int) => DataType::Int64,
            _ => return None,
        };
        Some(ReadAs {
            name: column.name.clone(),
            data_type,
            exact: true,
        })
    };
    plain.filter_map(number).collect()
}

/// Parses the encoding of a column.
pub(crate) fn parse_target(
    column: &str,
    encoding: &str,
    format: ShardFormat,
) -> Result<Target, Error> {
    match format {
        ShardFormat::Mds => {
            let parsed = encoding.parse().map(Target::Mds);
            parsed.map_err(|error: MdsError| {
                encoding_error(column, error.id(), error.to_string()).with_any_hint(error.hint())
            })
        }
        ShardFormat::Parquet => table::parse_target(column, encoding),
        ShardFormat::Webdataset => {
            let parsed = encoding.parse::<FieldEncoding>().map(Target::Field);
            parsed.map_err(|error| {
                let names = FieldEncoding::ALL.map(FieldEncoding::name).join(", ");
                let hint = format!("fields of webdataset are {names}");
                encoding_error(column, "encoding-unknown", error.to_string()).with_hint(hint)
            })
        }
    }
}

/// Determines the null policy of each column. `null_count` returns the number of nulls that the source knows without
/// reading.
pub(crate) fn null_plan(
    schema: &SchemaRef,
    targets: &[Target],
    options: &ConvertOptions,
    null_count: impl Fn(usize) -> Option<u64>,
) -> Result<NullPlan, Error> {
    for (name, _) in &options.columns.null_as {
        if schema.field_with_name(name).is_err() {
            let fact = format!("there is no column `{}`", escape(name));
            return Err(Error::option("config-null-as", fact));
        }
    }
    let mut policies = Vec::with_capacity(schema.fields().len());
    for (position, (field, target)) in schema.fields().iter().zip(targets).enumerate() {
        let mut null_as = options.columns.null_as.iter();
        if let Some((name, text)) = null_as.find(|(name, _)| name == field.name()) {
            let data_type = field.data_type();
            let value = parse_value(text, data_type).ok_or_else(|| {
                let (text, name) = (escape(text), escape(name));
                let fact =
                    format!("`{text}` is not a value of column {name}, whose type is {data_type}");
                Error::option("config-null-as", fact)
            })?;
            // A column that cannot be stored at all is another error, which is found later.
            let encoder =
                ColumnEncoder::compile(position, field, target.clone(), &options.source.limits);
            if let Ok(Err(reason)) = encoder.map(|encoder| encoder.check(&value)) {
                let (text, name) = (escape(text), escape(name));
                let fact = format!("`{text}` cannot be stored in column {name}: {reason}");
                return Err(Error::option("config-null-as", fact));
            }
            policies.push(NullPolicy::Fill { value, mask: false });
            continue;
        }
        let has_form = stores_null(field, target);
        let is_masked =
            options.columns.nulls == Nulls::Mask && has_nullable_items(field.data_type());
        let without = null_count(position) == Some(0) || !(field.is_nullable() || is_masked);
        // In text that already is JSON, a null becomes the JSON `null`, as in values that are converted to JSON.
        if !without
            && !matches!(options.columns.nulls, Nulls::Omit | Nulls::Drop)
            && is_json_text(field, target)
            && let Some(value) = parse_value("null", field.data_type())
        {
            policies.push(NullPolicy::Fill { value, mask: false });
            continue;
        }
        policies.push(match options.columns.nulls {
            // A column with only nulls needs no policy.
            _ if without || *field.data_type() == DataType::Null => NullPolicy::Leave,
            Nulls::Drop => NullPolicy::Drop,
            _ if has_form => NullPolicy::Leave,
            Nulls::Error | Nulls::Omit => NullPolicy::Leave,
            Nulls::Mask => {
                let value = masked_value(field, target).ok_or_else(|| {
                    Error::option_hint(
                        "config-nulls",
                        format!(
                            "column {} has type {}, which has no zero in {}",
                            escape(field.name()),
                            field.data_type(),
                            target.name()
                        ),
                        format!(
                            "choose --nulls drop, or omit the column with {}",
                            omit_option(field.name())
                        ),
                    )
                })?;
                NullPolicy::Fill { value, mask: true }
            }
        });
    }
    Ok(NullPlan::new(schema, policies))
}

/// Returns whether lists of this type may have nulls among their items.
fn has_nullable_items(data_type: &DataType) -> bool {
    match data_type {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            item.is_nullable() || has_nullable_items(item.data_type())
        }
        _ => false,
    }
}

/// Compiles the encoders of the output columns, sorted by name, and the form of the shards.
pub(crate) fn compile(
    source: &SchemaRef,
    plan: &NullPlan,
    mut targets: Vec<Target>,
    skip: Option<usize>,
    key: Option<Key>,
    options: &ConvertOptions,
) -> Result<(RowEncoder, ShardForm), Error> {
    let schema = plan.schema();
    for field in schema.fields().iter().skip(source.fields().len()) {
        if source.field_with_name(field.name()).is_ok() {
            let fact = format!(
                "the source already has a column `{}`, which {MASK_SUFFIX} columns would be called",
                field.name()
            );
            return Err(Error::option("config-nulls", fact));
        }
        targets.push(default_target(field, options.shards.to)?);
    }
    let mut encoders = Vec::with_capacity(targets.len());
    for (position, (field, target)) in schema.fields().iter().zip(targets).enumerate() {
        if Some(position) == skip || key.as_ref().is_some_and(|key| key.hides(position)) {
            continue;
        }
        let mut field = field.as_ref().clone();
        match options.columns.spec(field.name()) {
            // A column that was requested by name keeps its name.
            Some(spec) => {
                if let Some(expr) = &spec.expr {
                    let expr = (EXPRESSION_KEY.to_owned(), expr.clone());
                    field.metadata_mut().extend([expr]);
                }
            }
            None if options.shards.to == ShardFormat::Webdataset => {
                let name = default_field(&field)?.0;
                field.set_name(name);
            }
            None => {}
        }
        let encoder = ColumnEncoder::compile(position, &field, target, &options.source.limits)?;
        encoders.push(match options.columns.nulls {
            Nulls::Omit if field.is_nullable() => encoder.omitting_nulls(),
            _ => encoder,
        });
    }
    let mut seen = BTreeSet::new();
    let mut names = encoders.iter().map(ColumnEncoder::name);
    if let Some(twice) = names.find(|name| !seen.insert(*name)) {
        let fact = format!("there are two columns `{twice}`");
        return Err(Error::option("config-column", fact));
    }
    // Readers have a limit on the number of columns.
    let max = options.source.limits.columns;
    if encoders.len() as u64 > max {
        return Err(Error::option_hint(
            "config-column",
            format!(
                "there are {} columns, and readers take at most {max}",
                encoders.len()
            ),
            "choose some with --column NAME, or raise the limit with --safety-limit columns=N",
        ));
    }
    let max = options.source.limits.string_bytes;
    let mut names = encoders.iter().map(ColumnEncoder::name);
    if let Some(long) = names.find(|name| name.len() as u64 > max) {
        let head: String = long.chars().take(20).collect();
        return Err(Error::option_hint(
            "config-column",
            format!(
                "the name of column `{}…` has {} bytes, and readers take at most {max}",
                escape(&head),
                long.len()
            ),
            "rename it with --select LIST, or raise the limit with --safety-limit string-bytes=N",
        ));
    }
    if !options.shards.to.is_table() {
        encoders.sort_by(|a, b| a.name().cmp(b.name()));
    }
    match options.shards.to {
        ShardFormat::Mds => {
            let config = shard_config(&encoders, options)?;
            let max = options.source.limits.sample_bytes;
            let encoder = RowEncoder::new(encoders, &config.layout, max);
            Ok((encoder, ShardForm::Streaming(Arc::new(config))))
        }
        ShardFormat::Webdataset => tar_form(encoders, schema, key, options),
        ShardFormat::Parquet => table::compile(encoders, options),
    }
}

/// The column that provides the keys.
pub(crate) struct Key {
    /// Its position in the source.
    pub(crate) position: usize,
    /// Whether the source guarantees unique keys.
    pub(crate) unique: bool,
    /// Whether the column is also a field, because it was requested.
    pub(crate) is_field: bool,
}

impl Key {
    const fn hides(&self, position: usize) -> bool {
        self.position == position && !self.is_field
    }
}

fn tar_form(
    encoders: Vec<ColumnEncoder>,
    schema: &SchemaRef,
    key: Option<Key>,
    options: &ConvertOptions,
) -> Result<(RowEncoder, ShardForm), Error> {
    let profile = match options.shards.tar.names {
        TarNames::Portable => Profile::default(),
        TarNames::Any => Profile {
            style: TarStyle {
                long_names: true,
                ..TarStyle::default()
            },
            rules: Rules::Reference,
        },
    };
    if encoders.is_empty() {
        return Err(Error::option(
            "config-column",
            "a sample needs a field beside its key",
        ));
    }
    for encoder in &encoders {
        let name = encoder.name();
        let problem = match profile.field_problem(name) {
            Some(reason) => Some(reason),
            _ if name.len() > MAX_FIELD_BYTES => Some("is longer than 64 bytes"),
            _ if name.starts_with('_') => {
                Some("starts with an underscore, which the original writer leaves out")
            }
            _ => None,
        };
        if let Some(reason) = problem {
            let column = sql_name(schema.field(encoder.source()).name());
            let renamed = format!("* EXCEPT ({column}), {column} AS NAME");
            return Err(Error::option_hint(
                "config-column",
                format!("the field `{}` {reason}", escape(name)),
                format!("rename it, with --select {}", shell_word(&renamed)),
            ));
        }
    }
    let keys = match key {
        None => TarKeys::Number,
        Some(key) => {
            let field = schema.field(key.position);
            let data_type = match field.data_type() {
                DataType::Dictionary(_, values) => values,
                other => other,
            };
            if !data_type.is_string() && !data_type.is_integer() {
                return Err(
                    type_unsupported(field.name(), data_type, "the key of a sample")
                        .with_hint("keys are text or integers"),
                );
            }
            TarKeys::Column {
                source: key.position,
                name: field.name().clone(),
                unique: key.unique,
            }
        }
    };
    let (sometimes, always) = encoders.iter().partition::<Vec<_>, _>(|e| e.omits_null());
    let names = |encoders: Vec<&ColumnEncoder>| {
        let names = encoders.into_iter();
        names.map(|encoder| encoder.name().into()).collect()
    };
    let fields = FieldSet {
        always: names(always),
        sometimes: names(sometimes),
    };
    let form = TarForm {
        pattern: options.shards.tar.pattern(),
        profile,
        fields: Arc::new(fields),
        compression: options.shards.tar.compression,
        hashes: options.shards.hashes.clone(),
        size_limit: options.shards.size_limit,
    };
    let rows = TarRows { profile, keys };
    let encoder = RowEncoder::tar(encoders, rows, options.source.limits.sample_bytes);
    Ok((encoder, ShardForm::Tar(Arc::new(form))))
}

/// The maximum length of a field name in bytes, so that a plain header has space for the key.
const MAX_FIELD_BYTES: usize = 64;

fn shard_config(
    encoders: &[ColumnEncoder],
    options: &ConvertOptions,
) -> Result<ShardConfig, Error> {
    let column = |encoder: &ColumnEncoder| match encoder.target() {
        Target::Mds(encoding) => Ok(Column {
            name: encoder.name().to_owned(),
            encoding: encoding.clone(),
        }),
        _ => Err(internal("a column of another format")),
    };
    let columns = encoders.iter().map(column).collect::<Result<_, _>>()?;
    let shards = &options.shards;
    let hashes = shards.hashes.clone();
    Ok(ShardConfig::new_mds(
        columns,
        shards.compression,
        hashes,
        shards.size_limit,
    )?)
}
