//! The columns that two sources have in common.

use shardmill_source::{Source, SourceError};

use super::hashes::comparable;
use super::report::ColumnChange;
use crate::column::type_name;

/// The columns that two sources have in common.
pub(crate) struct Common {
    pub(crate) names: Vec<String>,
    /// For each name, the position in the first and in the second source.
    pub(crate) positions: Vec<(usize, usize)>,
}

impl Common {
    /// Returns the names of the columns whose hashes differ.
    pub(super) fn differing(&self, before: &[u64], after: &[u64]) -> Vec<String> {
        let hashes = before.iter().zip(after);
        let names = self.names.iter().zip(hashes);
        names
            .filter(|(_, (before, after))| before != after)
            .map(|(name, _)| name.clone())
            .collect()
    }
}

/// Finds the columns to compare, and those that differ.
pub(super) fn match_columns(
    sources: [&dyn Source; 2],
    key: Option<&str>,
) -> Result<(Vec<ColumnChange>, Common), SourceError> {
    let [before, after] = sources.map(Source::schema);
    // The types of a table and the encodings of a dataset have different names.
    let [kind, other_kind] = sources.map(|source| source.description().kind);
    let same_kind = kind == other_kind;
    let mut changes = Vec::new();
    let mut common = Common {
        names: Vec::new(),
        positions: Vec::new(),
    };
    for (at, field) in before.fields().iter().enumerate() {
        let other = after.column_with_name(field.name());
        let is_comparable =
            other.is_some_and(|(_, other)| comparable(field.data_type(), other.data_type()));
        let is_same = other.is_some_and(|(_, other)| {
            is_comparable && (!same_kind || type_name(field, kind) == type_name(other, other_kind))
        });
        if !is_same {
            changes.push(ColumnChange {
                name: field.name().clone(),
                before: Some(type_name(field, kind)),
                after: other.map(|(_, other)| type_name(other, other_kind)),
            });
        }
        if let Some((other, _)) = other.filter(|_| is_comparable && key != Some(field.name())) {
            common.names.push(field.name().clone());
            common.positions.push((at, other));
        }
    }
    for field in after.fields() {
        if before.column_with_name(field.name()).is_none() {
            changes.push(ColumnChange {
                name: field.name().clone(),
                before: None,
                after: Some(type_name(field, other_kind)),
            });
        }
    }
    if let Some(key) = key {
        for (source, schema) in [&before, &after].into_iter().enumerate() {
            if schema.column_with_name(key).is_none() {
                let which = ["first", "second"].get(source).copied().unwrap_or_default();
                return Err(key_error(
                    key,
                    format!("the {which} dataset has no such column"),
                ));
            }
        }
        let types = [&before, &after].map(|schema| schema.field_with_name(key));
        if let [Ok(a), Ok(b)] = types
            && !comparable(a.data_type(), b.data_type())
        {
            let (a, b) = (a.data_type(), b.data_type());
            return Err(key_error(
                key,
                format!("it is of type {a} in one dataset and {b} in the other"),
            ));
        }
    }
    Ok((changes, common))
}

fn key_error(key: &str, message: String) -> SourceError {
    SourceError::Described {
        kind: shardmill_core::ErrorKind::InvalidInput,
        id: "column-unknown",
        object: Some(key.to_owned()),
        message,
        hint: Some("choose a column that both datasets have with --key-column".to_owned()),
    }
}
