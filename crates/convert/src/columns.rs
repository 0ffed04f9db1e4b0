//! Which columns are written, and how.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use shardmill_core::{Diagnostic, Format};
use shardmill_mds::{Column, Encoding, ShardConfig, TextColumn, TextEncoding};
use shardmill_writer::{ColumnEncoder, Target, default_target, stores_null};

use crate::error::ConvertError;
use crate::nulls::{MASK_SUFFIX, NullPlan, NullPolicy, parse, zero};
use crate::options::{ColumnSpec, ConvertOptions, Nulls};

/// The target of a column: the one that was asked for, or the one that follows from the type.
pub(crate) fn targets(
    schema: &SchemaRef,
    options: &ConvertOptions,
) -> Result<Vec<Target>, ConvertError> {
    schema
        .fields()
        .iter()
        .map(|field| match asked(options, field.name()) {
            Some(encoding) => parse_target(field.name(), encoding, options.to),
            None => Ok(default_target(field, options.to)?),
        })
        .collect()
}

fn asked<'a>(options: &'a ConvertOptions, name: &str) -> Option<&'a str> {
    let spec: Option<&ColumnSpec> = options.columns.iter().find(|column| column.name == name);
    spec.and_then(|column| column.encoding.as_deref())
}

fn parse_target(column: &str, encoding: &str, format: Format) -> Result<Target, ConvertError> {
    fn fail(column: &str, error: &impl Diagnostic) -> ConvertError {
        ConvertError::Encoding {
            column: column.to_owned(),
            reason: error.to_string(),
            id: error.id(),
            hint: error.hint(),
        }
    }
    match format {
        Format::Mds => encoding
            .parse::<Encoding>()
            .map(Target::Mds)
            .map_err(|error| fail(column, &error)),
        Format::Json | Format::Csv | Format::Tsv | Format::Xsv => {
            let encoding = encoding
                .parse::<TextEncoding>()
                .map_err(|error| fail(column, &error))?;
            Ok(if format == Format::Json {
                Target::Json(encoding)
            } else {
                Target::Xsv(encoding)
            })
        }
    }
}

/// What happens to the nulls of each column. `null_count` is what the source knows without reading.
pub(crate) fn null_plan(
    schema: &SchemaRef,
    targets: &[Target],
    options: &ConvertOptions,
    null_count: impl Fn(usize) -> Option<u64>,
) -> Result<NullPlan, ConvertError> {
    for (name, _) in &options.null_as {
        if schema.field_with_name(name).is_err() {
            return Err(ConvertError::option(
                "null-as",
                format!("there is no column `{}`", shardmill_core::escape(name)),
            ));
        }
    }
    let mut policies = Vec::with_capacity(schema.fields().len());
    for (position, (field, target)) in schema.fields().iter().zip(targets).enumerate() {
        let given = options
            .null_as
            .iter()
            .find(|(name, _)| name == field.name());
        if let Some((name, text)) = given {
            let value = parse(text, field.data_type()).ok_or_else(|| {
                ConvertError::option(
                    "null-as",
                    format!(
                        "`{}` is not a value of column {}, whose type is {}",
                        shardmill_core::escape(text),
                        shardmill_core::escape(name),
                        field.data_type()
                    ),
                )
            })?;
            policies.push(NullPolicy::Fill { value, mask: false });
            continue;
        }
        let has_form = stores_null(field, target);
        let without = !field.is_nullable() || null_count(position) == Some(0);
        policies.push(match options.nulls {
            _ if has_form || without => NullPolicy::Leave,
            Nulls::Error => NullPolicy::Leave,
            Nulls::Drop => NullPolicy::Drop,
            Nulls::Mask => {
                let value = zero(field.data_type()).ok_or_else(|| {
                    ConvertError::option_hint(
                        "nulls",
                        format!(
                            "column {} has type {}, which has no zero",
                            field.name(),
                            field.data_type()
                        ),
                        format!(
                            "leave the column out, or store it as JSON with --column {}:json",
                            field.name()
                        ),
                    )
                })?;
                NullPolicy::Fill { value, mask: true }
            }
        });
    }
    Ok(NullPlan::new(schema, policies))
}

/// The columns of the output with their encoders, sorted by name, and the configuration of its shards.
pub(crate) fn compile(
    source: &SchemaRef,
    plan: &NullPlan,
    mut targets: Vec<Target>,
    skip: Option<usize>,
    options: &ConvertOptions,
) -> Result<(Vec<ColumnEncoder>, Arc<ShardConfig>), ConvertError> {
    let schema = plan.schema();
    for field in schema.fields().iter().skip(source.fields().len()) {
        if source.field_with_name(field.name()).is_ok() {
            return Err(ConvertError::option(
                "nulls",
                format!(
                    "the source already has a column `{}`, which {MASK_SUFFIX} columns would be called",
                    field.name()
                ),
            ));
        }
        targets.push(default_target(field, options.to)?);
    }
    let mut seen = BTreeSet::new();
    let mut encoders = Vec::with_capacity(targets.len());
    for (position, (field, target)) in schema.fields().iter().zip(targets).enumerate() {
        if Some(position) == skip {
            continue;
        }
        if !seen.insert(field.name()) {
            return Err(ConvertError::option(
                "column",
                format!("there are two columns `{}`", field.name()),
            ));
        }
        encoders.push(ColumnEncoder::compile(
            position,
            field,
            target,
            &options.limits,
        )?);
    }
    encoders.sort_by(|a, b| a.name().cmp(b.name()));
    let config = shard_config(&encoders, options)?;
    Ok((encoders, Arc::new(config)))
}

fn shard_config(
    encoders: &[ColumnEncoder],
    options: &ConvertOptions,
) -> Result<ShardConfig, ConvertError> {
    let mut mds = Vec::new();
    let mut text = Vec::new();
    for encoder in encoders {
        let name = encoder.name().to_owned();
        match encoder.target() {
            Target::Mds(encoding) => mds.push(Column {
                name,
                encoding: encoding.clone(),
            }),
            Target::Json(encoding) | Target::Xsv(encoding) => text.push(TextColumn {
                name,
                encoding: *encoding,
            }),
        }
    }
    let (compression, hashes, limit) = (
        options.compression,
        options.hashes.clone(),
        options.size_limit,
    );
    let separator = options.separator.as_deref();
    if options.to == Format::Xsv && separator.is_none() {
        return Err(ConvertError::option_hint(
            "separator",
            "xsv needs a separator",
            "pass --separator TEXT",
        ));
    }
    Ok(match options.to {
        Format::Mds => ShardConfig::new_mds(mds, compression, hashes, limit)?,
        Format::Json => ShardConfig::new_json(text, &options.newline, compression, hashes, limit)?,
        Format::Csv | Format::Tsv | Format::Xsv => ShardConfig::new_xsv(
            options.to,
            text,
            &options.newline,
            separator,
            compression,
            hashes,
            limit,
        )?,
    })
}
