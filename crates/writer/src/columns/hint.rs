//! Hints for columns that cannot be stored as requested.

use std::fmt;

use arrow::datatypes::{DataType, Field};
use shardmill_core::{escape, shell_word, sql_name};
use shardmill_mds::{DType, Encoding};

use super::json;
use super::target::{FieldEncoding, Target};
use super::types::{EXPRESSION_KEY, metadata, stored_type};

/// Returns a hint for a column whose type cannot be stored as `target`.
pub(super) fn for_target(field: &Field, data_type: &DataType, target: &Target) -> String {
    let name = field.name();
    let column = |expr: String| {
        format!(
            "--column {}",
            shell_word(&format!("{name}:{}={expr}", target.name()))
        )
    };
    let quoted = match metadata(field, EXPRESSION_KEY) {
        Some(expr) => expr.to_owned(),
        None => sql_name(name),
    };
    let text = format!("CAST({quoted} AS VARCHAR)");
    if data_type.is_binary() {
        let digits = |sql: &str| {
            let column = column(format!("CAST({text} AS {sql})"));
            format!("bytes are no number; where they are its digits, {column}")
        };
        match target {
            Target::Mds(Encoding::Number(dtype)) if dtype.is_float() => {
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

/// The options that handle the nulls of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NullHint {
    /// The options for all columns, in words.
    choices: String,
    /// The name of the column, if it can have a value in place of its nulls.
    fill: Option<String>,
}

impl NullHint {
    /// Returns the options for a column. `name` is the column's name in the shards.
    pub(super) fn new(name: &str, data_type: &DataType, target: &Target) -> Self {
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
            return Self {
                choices: "choose --nulls drop".to_owned(),
                fill: None,
            };
        }
        // Fields of tar files have other names than their columns.
        let fill = || {
            if is_field {
                "NAME".into()
            } else {
                escape(name)
            }
        };
        Self {
            choices: format!("choose {omit}--nulls mask or --nulls drop"),
            fill: (!data_type.is_nested()).then(|| fill().into_owned()),
        }
    }

    /// Returns the options that work for all of these columns.
    #[must_use]
    pub fn for_all(hints: &[&Self]) -> String {
        // The shortest choices work for all columns.
        let choices = hints.iter().map(|hint| &hint.choices);
        let Some(choices) = choices.min_by_key(|choices| choices.len()) else {
            return String::new();
        };
        match hints {
            [one] => one.to_string(),
            _ if hints.iter().all(|hint| hint.fill.is_some()) => {
                format!("{choices}, or --null-as NAME=VALUE for each")
            }
            _ => choices.clone(),
        }
    }
}

impl fmt::Display for NullHint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.choices)?;
        match &self.fill {
            Some(name) => write!(f, ", or --null-as {name}=VALUE"),
            None => Ok(()),
        }
    }
}

/// Adds the unsupported inner part of a nested type to the start of a hint.
pub(super) fn with_obstacle(field: &Field, hint: &str) -> String {
    let data_type = stored_type(field.data_type());
    match json::obstacle(&data_type, field.name()) {
        Some(obstacle) if data_type.is_nested() => format!("{obstacle}: {hint}"),
        _ => hint.to_owned(),
    }
}
