//! Hints for columns that cannot be stored as requested.

use arrow::datatypes::{DataType, Field};
use shardmill_core::escape;
use shardmill_mds::{DType, Encoding};

use super::target::{FieldEncoding, Target};
use super::types::{EXPRESSION_KEY, metadata, stored_type};
use super::{json, number};

/// Returns a hint for a column whose type cannot be stored as `target`.
pub(super) fn for_target(field: &Field, data_type: &DataType, target: &Target) -> String {
    let name = field.name();
    let column = |expr: String| format!("--column '{name}:{}={expr}'", target.name());
    let quoted = match metadata(field, EXPRESSION_KEY) {
        Some(expr) => expr.to_owned(),
        None => quoted(name),
    };
    let text = format!("CAST({quoted} AS VARCHAR)");
    if data_type.is_binary() {
        let digits = |sql: &str| {
            let column = column(format!("CAST({text} AS {sql})"));
            format!("bytes are no number; where they are its digits, {column}")
        };
        match target {
            Target::Mds(Encoding::Number(dtype)) if number::is_float(*dtype) => {
                return digits("DOUBLE");
            }
            Target::Mds(Encoding::Number(DType::U64)) => return digits("BIGINT UNSIGNED"),
            Target::Mds(Encoding::Int | Encoding::Number(_))
            | Target::Field(FieldEncoding::Int) => return digits("BIGINT"),
            Target::Mds(Encoding::StrInt | Encoding::StrFloat | Encoding::StrDecimal) => {
                return format!("convert it first, with {}", column(text));
            }
            Target::Mds(Encoding::NdArray { .. }) => {
                return format!(
                    "--column {name}:bytes keeps the bytes; numbers without a header need a type and a shape, as in \
                     --column {name}:ndarray:float32:2,3"
                );
            }
            Target::Field(FieldEncoding::Npy | FieldEncoding::Ten) => {
                return format!("--column {name}:bytes keeps the bytes");
            }
            _ => {}
        }
    }
    let cast = column(format!("CAST({quoted} AS …)"));
    let convert = format!("convert it first, for example with {cast}");
    match target {
        Target::Mds(Encoding::Json) | Target::Field(FieldEncoding::Json) => {
            with_obstacle(field, &convert)
        }
        _ => convert,
    }
}

/// Returns the options that handle the nulls of a column. `name` is the column's name in the shards.
pub(super) fn for_null(name: &str, data_type: &DataType, target: &Target) -> String {
    let is_field = matches!(target, Target::Field(_));
    let omit = if is_field { "--nulls omit, " } else { "" };
    let is_file = matches!(
        target,
        Target::Mds(
            Encoding::Image(_) | Encoding::JpegArray { .. } | Encoding::List(_) | Encoding::Pkl
        )
    );
    // An empty value is not an image, so a mask column does not help.
    if is_file {
        return "choose --nulls drop".to_owned();
    }
    if data_type.is_nested() {
        return format!("choose {omit}--nulls mask or --nulls drop");
    }
    // Fields of tar files have other names than their columns.
    let name = if is_field {
        "NAME".into()
    } else {
        escape(name)
    };
    format!("choose {omit}--nulls mask or --nulls drop, or --null-as {name}=VALUE")
}

/// Adds the unsupported inner part of a nested type to the start of a hint.
pub(super) fn with_obstacle(field: &Field, hint: &str) -> String {
    let data_type = stored_type(field.data_type());
    match json::obstacle(&data_type, field.name()) {
        Some(obstacle) if data_type.is_nested() => format!("{obstacle}: {hint}"),
        _ => hint.to_owned(),
    }
}

/// Quotes a column name for SQL if necessary.
fn quoted(name: &str) -> String {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let is_plain =
        name.chars().all(is_word) && name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    match is_plain {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}
